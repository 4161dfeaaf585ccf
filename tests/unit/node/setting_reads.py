"""Which settings code reads, by its syntax, and which a running node has read."""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import headrace
from headrace.config import Settings
from headrace.config.setting import AnySetting, Setting

SOURCE = Path(headrace.__file__).parent
HOLDERS = {"settings", "_settings", "live", "_live", "node"}
"""The names that the settings of a node have in code which reads them."""


class Use(NamedTuple):
    """A setting in the source of a module."""

    setting: AnySetting
    node: ast.AST
    parents: dict[ast.AST, ast.AST]

    @property
    def is_read(self) -> bool:
        """Whether it is `settings[...]` of it, in whatever object `settings` is."""
        parent = self.parents[self.node]
        return (
            isinstance(parent, ast.Subscript)
            and parent.slice is self.node
            and isinstance(parent.ctx, ast.Load)
            and _last_name(parent.value) in HOLDERS
        )

    @property
    def is_default(self) -> bool:
        """Whether its default is used, other than as the default of a parameter or field."""
        parent = self.parents[self.node]
        if not isinstance(parent, ast.Attribute) or parent.attr != "default":
            return False
        above = self.parents[parent]
        while isinstance(above, ast.Compare | ast.BoolOp):
            above = self.parents[above]
        return not isinstance(above, ast.arguments | ast.AnnAssign)


def uses(*packages: str) -> Iterator[tuple[str, Use]]:
    """Yield each use of a setting in modules of the given packages, and the module's path."""
    for package in packages:
        for path, module in _modules(package):
            yield from ((path, use) for use in _uses_in(module))


@cache
def texts(*packages: str) -> frozenset[str]:
    """Return every text that is a constant in modules of the given packages."""
    return frozenset(
        node.value
        for package in packages
        for _, module in _modules(package)
        for node in ast.walk(module)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


@cache
def attributes_read(*packages: str) -> frozenset[str]:
    """Return the names of all attributes that are read in modules of the given packages."""
    return frozenset(
        node.attr
        for package in packages
        for _, module in _modules(package)
        for node in ast.walk(module)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    )


def record_reads(patch: pytest.MonkeyPatch) -> set[str]:
    """Return a set that fills with the names of the settings that code reads from now on.

    What `headrace.config` itself reads, to check settings against each other, does not count.
    """
    found: set[str] = set()
    read = Settings.__getitem__

    def reading(settings: Settings, wanted: AnySetting) -> Any:
        frame = sys._getframe(1)
        if frame.f_globals["__name__"] == "headrace.config.live" and frame.f_back is not None:
            frame = frame.f_back
        if not frame.f_globals["__name__"].startswith("headrace.config"):
            found.add(wanted.name)
        return read(settings, wanted)

    patch.setattr(Settings, "__getitem__", reading)
    return found


@cache
def _modules(package: str) -> tuple[tuple[str, ast.Module], ...]:
    return tuple(
        (str(path.relative_to(SOURCE)), ast.parse(path.read_text()))
        for path in sorted((SOURCE / package).rglob("*.py"))
    )


def _uses_in(module: ast.Module) -> Iterator[Use]:
    names: dict[str, object] = {}
    parents: dict[ast.AST, ast.AST] = {}
    for node in ast.walk(module):
        parents.update((child, node) for child in ast.iter_child_nodes(node))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("headrace"):
            origin = import_module(node.module or "")
            for alias in node.names:
                names[alias.asname or alias.name] = getattr(origin, alias.name, None)
    config = import_module("headrace.config")
    for node in ast.walk(module):
        found: object = None
        if isinstance(node, ast.Name):
            found = names.get(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found = getattr(config, node.attr, None) if names.get(node.value.id) is config else None
        if isinstance(found, Setting):
            yield Use(found, node, parents)


def _last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
