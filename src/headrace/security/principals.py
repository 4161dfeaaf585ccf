"""Principals: who a connection belongs to, as `User:NAME`."""

from typing import Final

from headrace.config import NODE_USER

USER: Final = "User"
ANONYMOUS: Final = "User:ANONYMOUS"
"""Whoever did not authenticate, as on a PLAINTEXT listener."""
NODE: Final = f"Node:{NODE_USER}"
"""Another node of the cluster, or this one as its own client. No user has a name of this type."""


def user(name: str) -> str:
    """Return the principal of a user."""
    return f"{USER}:{name}"
