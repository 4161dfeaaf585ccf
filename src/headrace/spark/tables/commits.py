"""When a batch may be committed: the one rule behind exactly once. Pure.

A table's head says up to which offset each partition is in it. It is read before every attempt,
and the commit succeeds only on that head, whatever the format. So a batch is either the
continuation of the head, or in it already, or outdated; no lease has to hold for that.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final

import msgspec

from headrace.errors import HeadraceError

COMMIT_ATTEMPTS_MAX: Final = 20
"""How often a commit is tried against others that commit to the same table."""

PREFIX: Final = "headrace."
OFFSETS: Final = PREFIX + "offsets"
BEGINS: Final = PREFIX + "begins"
EPOCH: Final = PREFIX + "epoch"
BATCH: Final = PREFIX + "batch-id"
QUERY: Final = PREFIX + "query-id"
TOPIC_ID: Final = PREFIX + "topic-id"
LEADERS: Final = PREFIX + "leader-epochs"


class CommitConflict(HeadraceError):
    """The head changed: surely nothing was committed."""


class FilesGone(CommitConflict):
    """Files that were to be replaced are not in the table any more."""


class OutcomeUnknown(HeadraceError):
    """The catalog did not say whether it committed. No file may be removed: look again."""


class Superseded(HeadraceError):
    """Another writer has taken the table over."""


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """What a table says of itself."""

    offsets: Mapping[int, int]
    """The next offset of each partition; partitions without one have not been begun."""
    begins: Mapping[int, int] = {}
    """The first offset of each partition that belongs into the table."""
    leaders: Mapping[int, int] = {}
    """The leader epoch of each partition when its offset was committed, or a later one."""
    epoch: int = 0
    """The epoch of the writer that committed last."""
    batch: int = -1
    topic_id: str = ""
    version: str = ""
    """What the format calls this state, for people."""


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Offsets that are to be committed, `start` to `stop` in each partition."""

    start: Mapping[int, int]
    stop: Mapping[int, int]
    epoch: int
    number: int
    query: str
    topic_id: str = ""
    leaders: Mapping[int, int] = {}


class Verdict(Enum):
    """What is to be done with a batch."""

    COMMIT = "commit"
    SKIP = "skip"
    """The table has it: an earlier attempt got through."""
    PLAN_AGAIN = "plan again"
    """The table is somewhere else than where the batch begins."""


def judge(head: Head, batch: Batch) -> Verdict:
    """Return what to do with a batch; raise Superseded if a newer writer has committed."""
    if batch.epoch < head.epoch:
        raise Superseded(
            f"a newer writer (epoch {head.epoch}, this one has {batch.epoch}) commits to the "
            "table: this one stops, nothing is lost"
        )
    touched = [each for each, stop in batch.stop.items() if stop > batch.start.get(each, 0)]
    if all(
        head.offsets.get(each, batch.start.get(each, 0)) == batch.start.get(each, 0)
        for each in touched
    ):
        return Verdict.COMMIT
    if all(head.offsets.get(each, -1) >= batch.stop[each] for each in touched):
        return Verdict.SKIP
    return Verdict.PLAN_AGAIN


def judge_letters(head: Head, batch: Batch) -> Verdict:
    """Return what to do with a batch's dead letters.

    Batches without any commit nothing there, so that head may be behind. They are committed before
    the batch: if it is ahead, a batch was not finished, and is planned again exactly.
    """
    if batch.epoch < head.epoch:
        return judge(head, batch)
    touched = [each for each, stop in batch.stop.items() if stop > batch.start.get(each, 0)]
    if all(head.offsets.get(each, -1) >= batch.stop[each] for each in touched):
        return Verdict.SKIP
    if any(head.offsets.get(each, -1) > batch.start.get(each, 0) for each in touched):
        return Verdict.PLAN_AGAIN
    return Verdict.COMMIT


def unfinished(head: Head, letters: Head) -> dict[int, int]:
    """Return where a batch ended whose dead letters are committed and whose rows are not."""
    if all(stop <= head.offsets.get(each, -1) for each, stop in letters.offsets.items()):
        return {}
    return dict(letters.offsets)


def advanced(head: Head, batch: Batch) -> dict[int, int]:
    """Return the offsets after a batch: no partition ever goes back."""
    offsets = dict(head.offsets)
    for each, stop in batch.stop.items():
        assert stop >= offsets.get(each, 0) or stop == batch.start.get(each, 0), (each, stop)
        offsets[each] = max(stop, offsets.get(each, 0))
    return offsets


def to_properties(head: Head, batch: Batch) -> dict[str, str]:
    """Return what a commit carries."""
    return {
        OFFSETS: offsets_text(advanced(head, batch)),
        BEGINS: offsets_text({**batch.start, **head.begins}),
        EPOCH: str(batch.epoch),
        BATCH: str(batch.number),
        QUERY: batch.query,
        TOPIC_ID: batch.topic_id,
        LEADERS: offsets_text({**head.leaders, **batch.leaders}),
    }


def kept_properties(head: Head, query: str) -> dict[str, str]:
    """Return what a commit carries that moves no offset, such as a compaction's."""
    return {
        OFFSETS: offsets_text(head.offsets),
        BEGINS: offsets_text(head.begins),
        EPOCH: str(head.epoch),
        BATCH: str(head.batch),
        QUERY: query,
        TOPIC_ID: head.topic_id,
        LEADERS: offsets_text(head.leaders),
    }


def from_properties(properties: Mapping[str, str], version: str) -> Head:
    """Read what a commit carried."""
    return Head(
        offsets=offsets_of(properties.get(OFFSETS, "{}")),
        begins=offsets_of(properties.get(BEGINS, "{}")),
        leaders=offsets_of(properties.get(LEADERS, "{}")),
        epoch=int(properties.get(EPOCH, 0)),
        batch=int(properties.get(BATCH, -1)),
        topic_id=properties.get(TOPIC_ID, ""),
        version=version,
    )


def offsets_text(offsets: Mapping[int, int]) -> str:
    """Return offsets as JSON, sorted."""
    return msgspec.json.encode({str(each): offsets[each] for each in sorted(offsets)}).decode()


def offsets_of(text: str) -> dict[int, int]:
    """Read what `offsets_text` wrote."""
    return {int(each): offset for each, offset in msgspec.json.decode(text).items()}
