"""What the audit log says of an event, and how repeated ones become one line. Pure.

    folding = Folding()
    folding.take(event, now_ms)        # the event if it is to be written, None if it was counted
    folding.due(now_ms)                # lines for what was counted, once their time has come

A change of the metadata has a line of its own. Denials and logins are repeated by clients that do
not give up: the first of its kind is written at once, and those of the next seconds as one line
with their number. So a client has a bounded share of the file, however fast it asks.
"""

from typing import Final

import msgspec
from msgspec import Struct

WINDOW_MS: Final = 10_000
"""How long events of a kind are counted before there is a line with their number."""
KINDS_MAX: Final = 1000
"""How many are told apart of a kind and outcome; what comes beyond them counts as from others.

Each kind and outcome has its own, so that those who fail to log in do not hide who succeeds.
"""
NAMES_MAX: Final = 10
"""How many resources a line names."""
TEXT_CHARACTERS_MAX: Final = 256
OTHERS: Final = "(others)"

DENIED: Final = "denied"
CHANGE: Final = "change"
AUTHENTICATION: Final = "authentication"
DONE: Final = "done"
REFUSED: Final = "refused"
SUCCEEDED: Final = "succeeded"
FAILED: Final = "failed"


class AuditEvent(Struct, frozen=True, kw_only=True):
    """One line, with every field. It never has a secret: no value of a config, no password."""

    kind: str
    outcome: str
    principal: str
    address: str = ""
    listener: str = ""
    client_id: str = ""
    api: str = ""
    operation: str = ""
    resource: str = ""
    names: tuple[str, ...] = ()
    change: str = ""
    """The change of the metadata, by its name there."""
    details: str = ""
    error: str = ""
    reason: str = ""
    count: int = 1
    """How many events the line stands for."""


def clip(text: str) -> str:
    """Return a text that is short enough for a line."""
    return text if len(text) <= TEXT_CHARACTERS_MAX else f"{text[:TEXT_CHARACTERS_MAX]}..."


def host_of(address: str) -> str:
    return address.rpartition(":")[0]


_Kind = tuple[str, str, str, str, str]


class Folding:
    """The events of the last seconds by their kinds."""

    def __init__(self) -> None:
        self._counted: dict[_Kind, tuple[int, int, AuditEvent]] = {}
        """When the window of each kind ends, how many were counted in it, and the last."""
        self._told_apart: dict[tuple[str, str], int] = {}
        """How many of these there are of each kind and outcome."""

    @property
    def is_counting(self) -> bool:
        return bool(self._counted)

    def take(self, event: AuditEvent, now_ms: int) -> AuditEvent | None:
        """Return an event that is to be written now; None if it was counted instead."""
        if event.kind == CHANGE:
            return event
        kind = (event.kind, event.outcome, event.principal, host_of(event.address), event.api)
        known = self._counted.get(kind)
        told_apart = self._told_apart.get(kind[:2], 0)
        if known is None and told_apart >= KINDS_MAX:
            kind = (event.kind, event.outcome, OTHERS, "", event.api)
            event = msgspec.structs.replace(
                event, principal=OTHERS, address="", client_id="", names=(), reason=""
            )
            known = self._counted.get(kind)
        if known is None:
            self._counted[kind] = now_ms + WINDOW_MS, 0, event
            self._told_apart[kind[:2]] = told_apart + 1
            return event
        ends_ms, count, _ = known
        self._counted[kind] = ends_ms, count + 1, event
        return None

    def due(self, now_ms: int) -> list[AuditEvent]:
        """Return a line for each kind whose window has ended with events in it."""
        lines = []
        for kind, (ends_ms, count, event) in list(self._counted.items()):
            # A clock that was moved back must not keep a window open.
            if ends_ms <= now_ms or ends_ms > now_ms + WINDOW_MS:
                del self._counted[kind]
                self._told_apart[kind[:2]] -= 1
                if count:
                    lines.append(msgspec.structs.replace(event, count=count))
        return lines

    def finish(self) -> list[AuditEvent]:
        """Return the lines that are left, at the end."""
        left = [
            msgspec.structs.replace(event, count=count)
            for _, count, event in self._counted.values()
            if count
        ]
        self._counted.clear()
        self._told_apart.clear()
        return left
