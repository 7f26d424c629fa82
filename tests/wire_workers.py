"""What a worker process does in tests of messages between processes; a module, so that it can be sent."""

from __future__ import annotations

import os

import numpy as np

from apportion.engines import Processors
from apportion.privacy.contributions import Channel, PartialSums


def send_partial_sums(users, contributions, secret, dtype=np.float32):
    """The partial sums of these users as a message, and which process made it."""
    sums = PartialSums.over(users, contributions, Processors(dtype, 1, exact=True))
    return sums.to_wire(Channel(secret)), os.getpid()
