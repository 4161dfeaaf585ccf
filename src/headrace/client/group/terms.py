"""The membership settings of a consumer."""

from enum import Enum
from typing import Final

import msgspec

from headrace.client.group.assignors import ASSIGNORS, COOPERATIVE_STICKY, RANGE

SESSION_TIMEOUT_MS: Final = 45_000
HEARTBEAT_INTERVAL_MS: Final = 3_000
MAX_POLL_INTERVAL_MS: Final = 300_000
AUTO_COMMIT_INTERVAL_MS: Final = 5_000


class Protocol(Enum):
    """The protocol by which a group assigns partitions."""

    AUTO = "auto"
    """KIP-848 if the broker has it, else classic."""
    CONSUMER = "consumer"
    """KIP-848: the coordinator decides."""
    CLASSIC = "classic"
    """The members decide, led by one of them."""


class GroupTerms(msgspec.Struct, frozen=True, kw_only=True):
    """A group, and how to be in it. The names are those of Kafka's clients."""

    group_id: str
    protocol: Protocol = Protocol.AUTO
    instance_id: str | None = None
    rack: str | None = None
    auto_commit: bool = True
    auto_commit_interval_ms: int = AUTO_COMMIT_INTERVAL_MS
    max_poll_interval_ms: int = MAX_POLL_INTERVAL_MS
    server_assignor: str | None = None
    """For KIP-848; the broker's first if it is not given."""
    assignors: tuple[str, ...] = (RANGE, COOPERATIVE_STICKY)
    """For the classic protocol, the preferred one first."""
    session_timeout_ms: int = SESSION_TIMEOUT_MS
    """For the classic protocol: in KIP-848 it is the broker's setting."""
    heartbeat_interval_ms: int = HEARTBEAT_INTERVAL_MS
    """For the classic protocol, as well."""

    def __post_init__(self) -> None:
        if not self.group_id:
            raise ValueError("a group has a name: group must not be empty")
        if self.instance_id == "":
            raise ValueError("instance_id must not be empty; leave it out for a dynamic member")
        for name in ("auto_commit_interval_ms", "max_poll_interval_ms", "session_timeout_ms"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, and must be at least 1")
        if not 0 < self.heartbeat_interval_ms < self.session_timeout_ms:
            raise ValueError(
                f"heartbeat_interval_ms is {self.heartbeat_interval_ms}, and must be less than "
                f"session_timeout_ms, which is {self.session_timeout_ms}"
            )
        unknown = [name for name in self.assignors if name not in ASSIGNORS]
        if unknown or not self.assignors:
            raise ValueError(
                f"assignors {unknown or '()'}: name one or more of {', '.join(ASSIGNORS)}"
            )
