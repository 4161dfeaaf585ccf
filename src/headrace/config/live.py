"""The settings of a running node: those at startup, and changes since.

    live = LiveSettings(load_settings(...))
    live[config.LOG_CLEANER_BACKOFF_MS]     # what holds now
    live.change(of_all_brokers, of_this_one)

A part of a node keeps the `LiveSettings` and reads a value when it needs it. One that has to keep
values, as its path is hot or it sleeps on them, puts a function into `on_changed`.
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias, TypeVar

from headrace.config.setting import Setting
from headrace.config.settings import Settings

T = TypeVar("T")


class LiveSettings:
    """The settings of a node as they are now."""

    __slots__ = ("at_start", "now", "on_changed")

    def __init__(self, at_start: Settings) -> None:
        self.at_start = at_start
        """What the node started with: the file, the environment, the command line."""
        self.now = at_start
        """What holds now. Another object after each change."""
        self.on_changed: list[Callable[[], None]] = []
        """Called after each change."""

    def __getitem__(self, wanted: Setting[T]) -> T:
        """Return the value that a setting has now."""
        return self.now[wanted]

    def change(self, cluster_dynamic: Mapping[str, str], broker_dynamic: Mapping[str, str]) -> None:
        """Replace the dynamic configs that override the settings at startup."""
        self.now = self.at_start.with_dynamic(cluster_dynamic, broker_dynamic)
        for take_note in self.on_changed:
            take_note()

    def note_listening(self, where: Setting[str], text: str) -> None:
        """Record the bound address of a listener, as its port may have been 0."""
        self.at_start = self.at_start.with_listening(where, text)
        self.now = self.now.with_listening(where, text)


AnySettings: TypeAlias = Settings | LiveSettings
"""Settings to read: those of a node that runs, or fixed ones."""
