"""What heartbeats of consumer (KIP-848), share (KIP-932) and streams groups (KIP-1071) share.

Members of these groups do everything by heartbeats: some epochs have a special meaning.
"""

from typing import Final, NamedTuple

JOINING_EPOCH: Final = 0
LEAVING_EPOCH: Final = -1
STATIC_LEAVING_EPOCH: Final = -2
"""What a static member (KIP-345) sends when it leaves for a while, to come back to what it had."""
FIRST_EPOCH: Final = 1
"""The epoch of a group that was never bumped: no member has that of one who joins."""
NOT_GIVEN: Final = -1
"""A number that a heartbeat leaves as it was."""
SOON_MS: Final = 100
"""The shortest heartbeat interval of a member that waits for its first partitions."""


class Sender(NamedTuple):
    """Where a heartbeat comes from."""

    client_id: str
    client_host: str
    version: int = 0
    """The version of the request, for kinds whose versions differ in what they demand."""


def soon_ms(member_count: int, due_in_ms: int) -> int:
    """Return in how many ms a member without partitions should ask for a target due in so many.

    All members of a group together ask about a thousand times a second at the most.
    """
    return max(due_in_ms, SOON_MS, member_count)
