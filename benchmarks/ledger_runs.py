"""What processes do on a ledger's accounts: charge, with a reservation or without, and write down what they hear."""

from __future__ import annotations

import json
import os
import random
import time
import warnings

from apportion.errors import BudgetError
from apportion.privacy import Account
from apportion.privacy.ledger import GaussianRelease, PureRelease, Reservation
from apportion.privacy.ledger.events import Event, to_json

LONGEST = 3  # charges in a schedule


def told(account: Account | Reservation, event: Event, started: float) -> bytes:
    """Charge; what is written afterwards stands for the draw."""
    try:
        receipt = account.charge("release", event)
    except BudgetError as refused:
        kept = json.dumps([account.name, to_json(event), " is left" in str(refused)])
        return f"refused {kept}\n".encode()
    return f"charged {json.dumps([receipt.account, receipt.number, receipt.hash, started])}\n".encode()


def charge_against_a_reservation(account: Account, rng: random.Random, written: int) -> None:
    """Set a part aside, or be refused; charge at most three quarters of it, and give the rest back."""
    try:
        mine = account.reserve(rng.uniform(0.01, 0.2))
    except BudgetError:
        return
    if mine.number is None:  # on an account of kind "renyi" nothing is set aside
        return
    with warnings.catch_warnings(), mine:
        warnings.simplefilter("ignore")  # a server that crashes now keeps the reservation open
        for _ in range(rng.randint(0, LONGEST)):
            started, pure = time.monotonic(), mine.budget.pure
            event = PureRelease(mine.budget.epsilon / 4) if pure else GaussianRelease(mine.budget.mu / 2)
            said = told(mine, event, started)
            os.write(written, said if said.startswith(b"charged") else f"half-way {json.dumps([mine.name])}\n".encode())


def given_back(account: Account) -> tuple[int, bool]:
    """Give back what killed processes left open. Return how much that was, and whether it changed nothing else."""
    before = account.status()
    for each in before.reserved:
        account.give_back(each.number)
    after = account.verify()
    return len(before.reserved), not after.reserved and after.spent == before.spent
