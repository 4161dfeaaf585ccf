"""Names of megabytes, which a frame has room for: refused before the loop has to look at them.

To decode or to hash such a name takes milliseconds, and no topic or node has one.
"""

from typing import Final

from headrace.cluster.protocol import ClusterErrorCode, ClusterRequest, requests
from headrace.server.interchange.refusals import NAME_CHARACTERS_MAX, Refusal, shown

SMALL_FRAME_BYTES_MAX: Final = 32 * 1024
NAME_BYTES_MAX: Final = 4 * NAME_CHARACTERS_MAX
_NUMBER_BYTES_MAX: Final = 10


def explain_long_name(asked: ClusterRequest) -> Refusal | None:
    """Return why a request is refused whose node or topic has too long a name."""
    source = asked.header.source
    if len(source) > NAME_CHARACTERS_MAX:
        return Refusal(
            ClusterErrorCode.INVALID_REQUEST,
            f"source {shown(source)}: a node's name has {NAME_CHARACTERS_MAX} characters at most",
        )
    if isinstance(
        asked, requests.Append | requests.Fetch | requests.ReplicaState | requests.ElectLeader
    ):
        try:
            require_short(asked.partition.topic)
        except Refusal as refusal:
            return refusal
    return None


def require_short(topic: str) -> None:
    """Refuse a name that is too long for any topic."""
    if len(topic) > NAME_CHARACTERS_MAX:
        raise Refusal(ClusterErrorCode.UNKNOWN_TOPIC, f"there is no topic {shown(topic)}")


def has_long_names(frame: memoryview) -> bool:
    """Return whether a large frame begins with names that take long to decode.

    It is for an Append, whose names come before its records: version, id, source, timeout, topic.
    What breaks off has none.
    """
    if len(frame) <= SMALL_FRAME_BYTES_MAX:
        return False
    position = 1
    for skipped in (2, 1):  # numbers before the source, and before the topic
        for _ in range(skipped):
            _, position = _number(frame, position)
        length, position = _number(frame, position)
        if length > NAME_BYTES_MAX:
            return True
        position += length
    return False


def _number(frame: memoryview, position: int) -> tuple[int, int]:
    """Return a number of variable length, and where it ends."""
    number = shift = 0
    for byte in frame[position : position + _NUMBER_BYTES_MAX]:
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    return number, position
