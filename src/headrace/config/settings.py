"""The settings of one node, by the objects that define them.

    settings[config.NUM_PARTITIONS]

The later of these wins: default, file, environment, override; while the node runs, a dynamic
default of the cluster and a dynamic value of the node win over all of them.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, TypeVar

import msgspec

from headrace.config import storage
from headrace.config.registry import LISTENER_PREFIX, SETTINGS, find_setting, setting
from headrace.config.setting import InvalidSetting, Setting

T = TypeVar("T")


class Source(Enum):
    """The source of a value."""

    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"
    OVERRIDE = "override"
    DYNAMIC_DEFAULT = "dynamic default of the cluster"
    DYNAMIC_BROKER = "dynamic config of the node"


class Given(msgspec.Struct, frozen=True):
    """A value that was set, as text and parsed."""

    text: str
    value: Any
    source: Source


class Settings:
    """The settings of a node. They are immutable; `with_dynamic` returns new ones."""

    __slots__ = ("_given", "given", "notes")

    def __init__(
        self, given: Mapping[str, Given] | None = None, notes: tuple[str, ...] = ()
    ) -> None:
        self._given: Final = dict(given or {})
        self.given: Final[Mapping[str, str]] = {
            name: each.text for name, each in self._given.items()
        }
        """The texts that were set, by name, secrets included: for reading, never for printing."""
        self.notes: Final = notes
        """Notes for the operator about how they were loaded, one readable line each."""

    def __getitem__(self, wanted: Setting[T]) -> T:
        """Return the value of a node's setting. On hot paths, keep the value instead."""
        if found := self._given.get(wanted.name):
            value: T = found.value
            return value
        if wanted.name not in SETTINGS:
            raise KeyError(f"{wanted.name} is not a setting of a node")
        return wanted.default

    def for_listener(self, listener: str, wanted: Setting[T], mechanism: str = "") -> T:
        """Return the value that holds for a listener, or for a SASL mechanism of it."""
        prefix = f"{LISTENER_PREFIX}{listener.lower()}."
        names = [f"{prefix}{wanted.name}"]
        if mechanism:
            names.insert(0, f"{prefix}{mechanism.lower()}.{wanted.name}")
        for name in names:
            if found := self._given.get(name):
                value: T = found.value
                return value
        return self[wanted]

    def source(self, name: str) -> Source:
        """Return the source of a setting's value; InvalidSetting if there is no such setting."""
        if found := self._given.get(name):
            return found.source
        setting(name)
        return Source.DEFAULT

    def text(self, name: str) -> str | None:
        """Return the value as it was set, or the default; None if there is none."""
        found = self._given.get(name)
        return found.text if found else setting(name).default_text

    @property
    def data_folder(self) -> str:
        """The data folder."""
        return (self[storage.LOG_DIRS] or self[storage.LOG_DIR])[0]

    def with_dynamic(
        self, cluster_dynamic: Mapping[str, str], broker_dynamic: Mapping[str, str]
    ) -> "Settings":
        """Return these settings with dynamic configs on top.

        A config that cannot be parsed, or may not change at run time, is ignored: entries of
        the metadata log were checked when they were proposed, perhaps by another version.
        """
        given = dict(self._given)
        layers = (
            (Source.DYNAMIC_DEFAULT, cluster_dynamic),
            (Source.DYNAMIC_BROKER, broker_dynamic),
        )
        for source, layer in layers:
            for name, text in layer.items():
                definition = find_setting(name)
                if definition is None:
                    continue
                try:
                    value = definition.parse(text)
                except InvalidSetting:
                    continue
                if definition.is_dynamic:
                    given[name] = Given(text, value, source)
        return Settings(given, self.notes)

    def with_listening(self, where: Setting[str], text: str) -> "Settings":
        """Return these settings with the bound address of a listener, as its port may be 0."""
        found = Given(text, where.parse(text), self.source(where.name))
        return Settings({**self._given, where.name: found}, self.notes)

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{name}={'(hidden)' if setting(name).is_sensitive else each.text}"
            for name, each in sorted(self._given.items())
        )
        return f"Settings({shown})"
