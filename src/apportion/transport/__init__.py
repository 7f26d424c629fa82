"""Federated fits by letters: a closed list of questions, a client's own conditions and account, and the post."""

from apportion.transport.account import ClientAccount, Entry
from apportion.transport.catalogue import CATALOGUE
from apportion.transport.conditions import Conditions
from apportion.transport.desk import Desk
from apportion.transport.listed import PublicFacts
from apportion.transport.post import ClientsByPost, LocalPost, Post

__all__ = [
    "CATALOGUE",
    "ClientAccount",
    "ClientsByPost",
    "Conditions",
    "Desk",
    "Entry",
    "LocalPost",
    "Post",
    "PublicFacts",
]
