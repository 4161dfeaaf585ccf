"""Methods that are replaced for one thread alone.

A worker that plays simulations may have brokers of other tests too, each in a thread of its own:
what these do is none of a simulation's business.
"""

from collections.abc import Callable
from functools import wraps
from threading import get_ident
from typing import Any

import pytest


def patch_here(
    patch: pytest.MonkeyPatch, owner: type, name: str, method: Callable[..., Any]
) -> None:
    """Put a function in the place of a method, for calls of this thread."""
    here, real = get_ident(), getattr(owner, name)

    @wraps(real)
    def choose(*arguments: Any, **named: Any) -> Any:
        return (method if get_ident() == here else real)(*arguments, **named)

    patch.setattr(owner, name, choose)
