"""Missing data: the kind of loss, and what to do.

A gap is not a loss: compaction leaves gaps, and so do transaction markers and aborted records. Data
is lost if it was in a range that Spark planned and is no longer available. Then the read fails with
a `DataLoss`, or, with failOnDataLoss=false, the rest is read and the loss is logged.
"""

import logging

from headrace.client.topics import TopicPartition
from headrace.errors import HeadraceError

LOG = logging.getLogger("headrace.spark")

_WAY_OUT = (
    "set failOnDataLoss=false to continue with what is left, or start over with another "
    "checkpointLocation or startingOffsets"
)


class DataLoss(HeadraceError):
    """Records of a planned range do not exist (any more)."""


def report(what: str, *, fails: bool) -> None:
    """Raise or log a loss."""
    if fails:
        raise DataLoss(f"{what}; {_WAY_OUT}")
    LOG.warning("%s; reading on, as failOnDataLoss is false", what)


def expired(partition: TopicPartition, wanted: int, earliest: int) -> str:
    """The beginning of a partition was removed."""
    return (
        f"truncated: offsets {wanted} to {earliest - 1} of {partition} are gone, it begins at "
        f"{earliest} now (retention or a deletion of records removed them)"
    )


def cut_off(partition: TopicPartition, wanted: int, latest: int) -> str:
    """The end of a partition was removed, or was never there."""
    return (
        f"truncated: {partition} ends at offset {latest}, before {wanted}, and is still the same "
        "topic (its log was cut off, as after an unclean election, or the offset was never written)"
    )


def recreated(topic: str, old_id: str, new_id: str) -> str:
    """A topic of the same name is another one."""
    return (
        f"re-created: topic {topic!r} was deleted and created again (id {old_id} then, {new_id} "
        "now), so its old records are gone and offsets count from 0"
    )


def deleted(topic: str) -> str:
    """A topic does not exist any more."""
    return f"deleted: topic {topic!r} does not exist any more"


def held_by_transaction(partition: TopicPartition, wanted: int, stable: int, seconds: int) -> str:
    """Records are there, but undecided."""
    return (
        f"transactional: offsets of {partition} up to {wanted} were to be read, but a transaction "
        f"has been open at offset {stable} for {seconds} s and read_committed ends there (see "
        "`headrace txn list`; kafka.isolation.level=read_uncommitted reads on)"
    )
