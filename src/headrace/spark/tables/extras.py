"""Packages that only tables need, imported when they are used."""

from importlib import import_module
from types import ModuleType

from headrace.errors import HeadraceError


class MissingExtra(HeadraceError):
    """A package is not installed."""


def import_extra(name: str) -> ModuleType:
    """Return a module of the extra `tables`; MissingExtra says how to install it."""
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingExtra(
            f"this table needs {name} ({error}): pip install 'headrace[tables]'"
        ) from None
