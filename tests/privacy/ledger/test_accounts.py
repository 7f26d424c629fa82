"""Accounts: charged first, drawn afterwards; refused in words; bound to one relation; whole sessions fit."""

from __future__ import annotations

import os
import threading
from fractions import Fraction

import numpy as np
import pytest

from apportion.errors import BudgetError, InputError
from apportion.privacy import (
    REPLACE_LABELS,
    REPLACE_VALUES,
    BoundedSum,
    Budget,
    Ledger,
    LedgerError,
    Neighbours,
    Rows,
    SeededNoise,
    Session,
    Statement,
)
from apportion.privacy.gaussian import epsilon_of, mu_of_pure, pure_of_mu
from apportion.privacy.ledger import GaussianRelease, PureRelease, SampledRun, SelectionRun
from apportion.privacy.ledger.events import ListedRelease, as_dp_event, from_json
from apportion.privacy.neighbours import RELATIONS
from apportion.privacy.selection import Tries, divergence

BUDGET = Budget(2.0, 1e-6)


class Untouchable(SeededNoise):
    def normal(self, shape, dtype):
        raise AssertionError("noise was drawn")

    def uniform(self, size):
        raise AssertionError("noise was drawn")

    def key(self):
        raise AssertionError("a secret was drawn")


def a_sum(size=3):
    return BoundedSum.user_total(np.zeros(size), Rows.clipped(np.zeros((1, size)), 1.0))


def plan_a_run(session):
    """Always the same, since finding its noise takes a second, once."""
    return session.plan_sampled(3, 0.1, counts=0.2)


def test_a_session_of_the_whole_budget_spends_all_of_the_account_and_nothing_fits_afterwards(ledger):
    account = ledger.create_account("visits", BUDGET, window="2025", owner="data office")
    session = account.session(BUDGET, noise=SeededNoise(0))
    plan = session.plan(first=1 / 3, rest=[1 / 3, 1 / 7, 4 / 21])
    session.release("first", a_sum(), plan.one("first"))
    for k, share in enumerate(plan.several("rest")):
        session.release(f"rest {k}", a_sum(), share)
    status = account.status()
    assert status.entries == 4
    assert status.spent_epsilon == pytest.approx(2.0)
    assert status.spent_epsilon <= 2.0
    assert status.left_mu < 1e-5 * BUDGET.mu
    assert (status.window, status.owner) == ("2025", "data office")
    with pytest.raises(BudgetError, match=r"'more' asks for mu 0.01, .* account 'visits' has left: .* is left"):
        account.charge("more", GaussianRelease(0.01))
    assert account.status() == status


def test_nothing_is_drawn_or_written_when_the_account_refuses(ledger):
    account = ledger.create_account("visits", Budget(0.5, 1e-6))
    session = Session(BUDGET, noise=Untouchable(0), ledger=account)
    with pytest.raises(BudgetError, match=r"mu 0.124106 of 0.124106 is left, worth epsilon 0.5 at delta 1e-06"):
        session.release("x", a_sum(), session.plan(a=1.0).one("a"))
    with pytest.raises(BudgetError, match="is left"):
        session.release_laplace("y", a_sum(), session.plan(a=1.0).one("a"))
    assert account.status().entries == 0
    assert session.statement().releases == ()


def test_a_charge_stands_even_if_the_draw_crashes(ledger):
    account = ledger.create_account("visits", BUDGET)
    session = account.session(0.5, noise=Untouchable(0))
    with pytest.raises(AssertionError, match="noise was drawn"):
        session.release("x", a_sum(), session.plan(a=1.0).one("a"))
    assert account.status().entries == 1
    assert account.status().left_mu < 0.71 * BUDGET.mu


def test_a_pure_release_on_a_gaussian_account_is_charged_the_curve_below_its_own(ledger):
    account = ledger.create_account("visits", BUDGET)
    session = account.session(Budget(0.25, 0.0), noise=SeededNoise(0))
    session.release_laplace("x", a_sum(), session.plan(a=1.0).one("a"))
    (entry,) = account.history()
    assert entry.event == PureRelease(0.25 * (1 - 1e-12))
    assert entry.cost == (Fraction(mu_of_pure(0.25 * (1 - 1e-12))) ** 2,)
    assert account.status().spent_mu == mu_of_pure(0.25 * (1 - 1e-12))


def test_pure_accounts_add_up_epsilon_and_refuse_gaussian_noise(ledger):
    account = ledger.create_account("visits", Budget(1.0, 0.0))
    for _ in range(4):
        account.charge("quarter", PureRelease(0.25))
    assert account.status().spent_epsilon == 1.0
    assert account.status().left_epsilon == 0.0
    with pytest.raises(BudgetError, match=r"epsilon 1e-09, .* account 'visits' has left: epsilon 0 of 1 is left"):
        account.charge("one more", PureRelease(1e-9))
    with pytest.raises(BudgetError, match="open one of kind 'gaussian'"):
        account.charge("noise", GaussianRelease(0.1))
    with pytest.raises(BudgetError, match="Nothing is left"):
        account.session(0.5)


@pytest.mark.parametrize("budget", [BUDGET, Budget(2.0, 0.0)])
def test_runs_on_samples_are_sent_to_a_renyi_account(ledger, budget):
    account = ledger.create_account("visits", budget)
    session = Session(Budget(1.0, 1e-6), noise=Untouchable(0), ledger=account)
    with pytest.raises(BudgetError, match="Open an account of kind 'renyi'"):
        plan_a_run(session)
    assert account.status().entries == 0


def test_a_run_on_samples_is_one_charge_before_anything_is_drawn(ledger):
    account = ledger.create_account("visits", Budget(4.0, 1e-6), kind="renyi")
    session = account.session(Budget(1.0, 1e-6), noise=Untouchable(0))
    plan, share = plan_a_run(session)
    (entry,) = account.history()
    assert entry.event == SampledRun((plan.one("counts").mu,), share.noise_multiplier, 0.1, 3)
    with pytest.raises(AssertionError, match="noise was drawn"):
        session.release("counts", a_sum(), plan.one("counts"))
    assert account.status().entries == 1  # it was paid for with the run
    assert session.statement().ledger.last_entry == 1
    with pytest.raises(BudgetError, match="before anything else"):
        plan_a_run(session)
    assert account.status().entries == 1


def test_a_run_on_samples_that_does_not_fit_leaves_the_session_without_a_plan(ledger):
    account = ledger.create_account("visits", Budget(0.5, 1e-6), kind="renyi")
    session = Session(Budget(1.0, 1e-6), noise=SeededNoise(0), ledger=account)
    with pytest.raises(BudgetError, match=r"3 releases on samples at 0.1 .* beside 1 on all users, .* is left"):
        plan_a_run(session)
    assert session.plan(a=0.01)  # still open
    assert account.status().entries == 0


def test_a_session_for_other_neighbours_is_refused(ledger):
    account = ledger.create_account("visits", BUDGET, neighbours=REPLACE_VALUES)
    with pytest.raises(BudgetError, match=r"'add or remove one user', those of its account .replace the contents"):
        Session(BUDGET, ledger=account)
    assert account.session(0.5).neighbours == REPLACE_VALUES
    renyi = ledger.create_account("samples", BUDGET, neighbours=REPLACE_LABELS, kind="renyi")
    with pytest.raises(BudgetError, match="need the neighbours 'add or remove one user'"):
        renyi.charge("run", SampledRun((), 2.0, 0.1, 3))


@pytest.mark.parametrize("relation", [*RELATIONS.values(), Neighbours("drop-task", "task", "drop a task")])
def test_an_account_remembers_its_relation(ledger, relation):
    ledger.create_account("visits", BUDGET, neighbours=relation)
    assert ledger.account("visits").neighbours == relation


def test_the_key_of_a_relation_is_not_given_to_another(ledger):
    with pytest.raises(InputError, match=r"a new key for a neighbour relation .*, got 'add-remove', which is taken"):
        ledger.create_account("visits", BUDGET, neighbours=Neighbours("add-remove", "task", "drop a task"))


def test_sessions_for_parts_of_what_is_left_always_fit_and_use_it_up(ledger):
    account = ledger.create_account("visits", BUDGET)
    for k in range(6):
        before = Fraction(account.status().total[0]) - Fraction(account.status().spent[0])
        session = account.session(0.5, noise=SeededNoise(0))
        assert before * Fraction(0.499999) < Fraction(session.budget.mu) ** 2 <= before / 2
        for half in session.plan(halves=[0.5, 0.5]).several("halves"):
            session.release(f"{k} {half.mu} {id(half)}", a_sum(), half)
    last = account.session(noise=SeededNoise(0))
    last.release("last", a_sum(), last.plan(a=1.0).one("a"))
    assert account.status().spent_epsilon == pytest.approx(2.0)
    assert account.verify().entries == 13


def test_a_session_that_does_not_fit_is_refused_before_it_is_opened(ledger):
    account = ledger.create_account("visits", BUDGET)
    account.charge("half", GaussianRelease(BUDGET.mu / 2))
    assert account.session(Budget(1.5, 1e-6))
    with pytest.raises(BudgetError, match="A session of epsilon 2 at delta 1e-06 does not fit"):
        account.session(BUDGET)
    for part in (0.0, -1.0, 1.5, float("nan")):
        with pytest.raises(BudgetError, match="Expected a fraction in"):
            account.session(part)


@pytest.mark.parametrize("kind", ["gaussian", "pure"])
def test_a_pure_session_that_does_not_fit_is_refused_before_it_is_opened(ledger, kind):
    budget = BUDGET if kind == "gaussian" else Budget(2.0, 0.0)
    account = ledger.create_account("visits", budget, kind=kind)
    largest = pure_of_mu(BUDGET.mu) if kind == "gaussian" else 2.0
    session = account.session(Budget(largest, 0.0), noise=SeededNoise(0))
    assert session.budget.epsilon == largest
    with pytest.raises(BudgetError, match=r"A session of epsilon .* at delta 0 does not fit .*epsilon"):
        account.session(Budget(1.01 * largest, 0.0))
    assert account.status().entries == 0


def test_the_statement_names_the_entries_and_survives_json(ledger):
    account = ledger.create_account("visits", BUDGET)
    account.charge("by another run", GaussianRelease(0.01))
    mine = ledger.account("visits", run="nightly")
    session = mine.session(0.5, noise=SeededNoise(0))
    assert session.statement().ledger is None
    for name, share in session.plan(a=0.5, b=0.5).items():
        session.release(name, a_sum(), share)
    statement = session.statement()
    kept = statement.ledger
    assert (kept.account, kept.run, kept.entries, kept.last_entry) == ("visits", "nightly", 2, 3)
    assert kept.head == mine.status().head
    assert (
        f"account 'visits', 2 entries of run nightly, the last one number 3 with hash {kept.head}"
        in statement.to_text()
    )
    assert Statement.from_json(statement.to_json()) == statement
    assert [entry.run for entry in mine.history()] == [account.run, "nightly", "nightly"]


def test_the_event_of_a_list_of_keys_is_one_that_dp_accounting_has():
    from dp_accounting import dp_event

    noisy, alone = as_dp_event(ListedRelease(GaussianRelease(0.5), 1e-7))["events"]
    assert noisy == as_dp_event(GaussianRelease(0.5))
    assert (alone["sampling_probability"], alone["event"]["class_name"]) == (1e-7, "NonPrivateDpEvent")
    assert all(hasattr(dp_event, each["class_name"]) for each in (noisy, alone))


def test_what_is_exported_can_be_composed_by_dp_accounting(ledger):
    from dp_accounting import NeighboringRelation, dp_event, pld
    from dp_accounting.rdp import RdpAccountant

    account = ledger.create_account("visits", Budget(4.0, 1e-5), kind="renyi")
    events = [
        GaussianRelease(0.3),
        PureRelease(0.2),
        SampledRun((0.2, 0.1), 1.5, 0.05, 20),
        SelectionRun(0.1, 5.0, "logarithmic"),
    ]
    for k, event in enumerate(events):
        account.charge(f"release {k}", event)
    exported = account.export()
    assert [from_json(entry["event"]) for entry in exported["entries"]] == events
    assert exported["head"] == account.status().head == exported["entries"][-1]["hash"]
    assert exported["account"]["spent"] == account.status().spent

    def rebuilt(said):
        fields = {key: value for key, value in said.items() if key != "class_name"}
        if "event" in fields:
            fields["event"] = rebuilt(fields["event"])
        if "events" in fields:
            fields["events"] = [rebuilt(each) for each in fields["events"]]
        return getattr(dp_event, said["class_name"])(**fields)

    first, second, third, fourth = (rebuilt(entry["dp_event"]) for entry in exported["entries"])
    gaussians = pld.PLDAccountant()
    gaussians.compose(first)
    assert gaussians.get_epsilon(1e-5) == pytest.approx(epsilon_of(0.3, 1e-5), rel=1e-3)
    response = pld.PLDAccountant(neighboring_relation=NeighboringRelation.REPLACE_ONE)
    response.compose(second)
    assert response.get_epsilon(0.0) == pytest.approx(0.2, abs=2e-4)
    gaussians.compose(third)
    assert gaussians.get_epsilon(1e-5) < account.status().spent_epsilon
    orders = [2, 5, 20]
    selection = RdpAccountant(orders)
    selection.compose(fourth)  # by the theorem with a second order, which promises a little less
    for order, promised in zip(orders, selection.rdp, strict=True):
        assert 0.5 * promised < divergence(order, 0.1, Tries(5.0, "logarithmic")) <= promised * (1 + 1e-9)


def test_accounts_are_never_replaced_and_are_known_by_name(ledger):
    ledger.create_account("visits", BUDGET)
    ledger.create_account("a ü 'quoted' name", Budget(1.0, 0.0))
    with pytest.raises(InputError, match="'visits' already exists"):
        ledger.create_account("visits", Budget(9.0, 1e-6))
    assert ledger.accounts() == ["a ü 'quoted' name", "visits"]
    assert ledger.account("visits").budget == BUDGET
    with pytest.raises(InputError, match=r"no account 'visit'; it has: .*'visits'"):
        ledger.account("visit")
    for name in ("", "  ", "x\n", "x" * 201):
        with pytest.raises(InputError, match="printable characters"):
            ledger.create_account(name, BUDGET)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"kind": "zcdp"}, "'zcdp'"),
        ({"kind": "pure"}, "delta of 0 for an account of kind 'pure', got 1e-06"),
        ({"orders": [2]}, "only for an account of kind 'renyi'"),
        ({"kind": "renyi", "orders": [1]}, r"whole orders from 2 to 1024, got \(1,\)"),
        ({"kind": "renyi", "orders": [2.5]}, "whole orders"),
        ({"kind": "renyi", "orders": [2]}, "got 2"),  # at that delta order 2 promises no such epsilon
    ],
)
def test_an_account_that_makes_no_sense_is_refused(ledger, arguments, words):
    with pytest.raises(InputError, match=words):
        ledger.create_account("visits", BUDGET, **arguments)
    assert ledger.accounts() == []


@pytest.mark.parametrize("kind", ["gaussian", "renyi"])
def test_accounts_with_noise_that_needs_a_delta_refuse_none(ledger, kind):
    with pytest.raises(InputError, match="delta above 0"):
        ledger.create_account("visits", Budget(1.0, 0.0), kind=kind)


@pytest.mark.parametrize("event", [(GaussianRelease, 0.0), (GaussianRelease, float("inf")), (PureRelease, -1.0)])
def test_an_event_that_costs_nothing_or_everything_is_refused(event):
    make, value = event
    with pytest.raises(InputError, match=f"got {value}"):
        make(value)


def test_a_ledger_that_is_not_there_says_so(tmp_path):
    missing = tmp_path / "missing.db"
    with pytest.raises(LedgerError, match="no ledger at"):
        Ledger.open(missing, create=False)
    assert not missing.exists()
    with pytest.raises(LedgerError, match="no folder"):
        Ledger.open(tmp_path / "nowhere" / "ledger.db")
    other = tmp_path / "other.db"
    other.write_text("not a database at all, but quite some text in its place\n" * 20)
    with pytest.raises(LedgerError, match="cannot be used: file is not a database"):
        Ledger.open(other)
    for wrong in ("mysql://host/db", "", "sqlite:///", ":memory:"):
        with pytest.raises(InputError, match="Expected a path"):
            Ledger.open(wrong)


def test_a_server_that_is_not_there_says_so_without_the_password(tmp_path):
    pytest.importorskip("psycopg")
    with pytest.raises(LedgerError, match=r"cannot be used: ") as refused:
        Ledger.open(f"postgresql://me:secret@/data?host={tmp_path}")
    assert "secret" not in str(refused.value)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_and_threads_charge_through_connections_of_their_own(ledger):
    account = ledger.create_account("visits", BUDGET)
    account.charge("before", GaussianRelease(0.01))
    child = os.fork()
    if child == 0:
        try:
            account.charge("in the child", GaussianRelease(0.01))
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0

    def charge():
        account.charge("in a thread", GaussianRelease(0.01))
        ledger.close()

    threads = [threading.Thread(target=charge) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    account.charge("after", GaussianRelease(0.01))
    names = [entry.name for entry in account.history()]
    assert names == ["before", "in the child", *["in a thread"] * 4, "after"]
