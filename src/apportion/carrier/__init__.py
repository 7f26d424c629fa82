"""Letters of a federation between machines, over HTTPS: clients ask for letters and post answers, and nothing else.

It needs uvicorn and cryptography (extra `federated`). What is carried are bytes of a limited size. Neither side runs,
unpacks or stores any of them here: a server gives answers to its pass of secure aggregation, and a client gives letters
to its desk.
"""

from apportion.carrier.client import Letterbox, answer_letters
from apportion.carrier.server import HttpsPost

__all__ = ["HttpsPost", "Letterbox", "answer_letters"]
