"""An engine of several processes: this file is all that adding the engine takes.

Each worker gets a run of users and the contributions, and answers with sealed whole-number sums. The reducer adds them
up and seals the total, as every engine does.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from functools import reduce
from multiprocessing import get_context
from operator import add

import numpy as np

from apportion.engines import Processors
from apportion.privacy.contributions import Channel, PartialSums


def work(secret, users, contributions):
    """What one worker sends back."""
    kernels = Processors(np.float64, threads=1, exact=True)
    return PartialSums.over(users, contributions, kernels).to_wire(Channel(secret))


class ProcessesEngine:
    """Adds up in several processes of this machine."""

    exact = True

    def __init__(self, processes=2):
        self.processes = processes
        self.kernels = Processors(np.float64, exact=True)

    def add_up(self, users, contributions):
        channel = Channel()
        with ProcessPoolExecutor(self.processes, get_context("spawn")) as pool:
            runs = users.cut(self.processes)
            sent = pool.map(work, *zip(*((channel.secret, run, contributions) for run in runs), strict=True))
            return reduce(add, (PartialSums.from_wire(each, channel) for each in sent)).sealed(contributions)
