"""A machine of groups without a shell: what an operation wants to write is replayed at once."""

from typing import Any

from headrace.config import load_settings
from headrace.coordinator.machine import Outcome
from headrace.coordinator.records import CoordinatorRecord
from headrace.groups.classic.group import ClassicGroup
from headrace.groups.kinds import Committer
from headrace.groups.machine import GroupsMachine
from headrace.groups.offsets.commits import Commit, TopicOffsets, commit_offsets
from headrace.groups.offsets.fetches import FetchedOffset, OffsetQuery, fetch_offsets
from headrace.groups.state import GroupsState
from headrace.metadata.image import Image
from headrace.wire.messages.offset_commit_request import OffsetCommitRequestPartition
from headrace.wire.schema import Message

NOW_MS = 1_700_000_000_000


class Subscribed(ClassicGroup):
    """A group whose members want topic `wanted`."""

    __slots__ = ()

    def is_subscribed_to(self, topic: str) -> bool:
        return topic == "wanted"


class Groups:
    """One partition of `__consumer_offsets`, on a clock that stands still."""

    def __init__(self, **settings: str) -> None:
        overrides = {name.replace("_", "."): value for name, value in settings.items()}
        image = Image()
        self.now_ms = NOW_MS
        self.state = GroupsState(
            load_settings(overrides=overrides), lambda: image, new_id=lambda: "id"
        )
        self.machine = GroupsMachine(self.state)

    def plan(self, commit: Commit) -> Outcome:
        return commit_offsets(self.state, commit, self.now_ms, _ignore)

    def do(self, outcome: Outcome, producer_id: int = -1) -> Any:
        """Write what an operation wants; give its answer."""
        for take_note in outcome.notes:
            take_note()
        for record in outcome.records:
            self.machine.replay(record._replace(producer_id=producer_id))
        return outcome.replies[-1][1] if outcome.replies else None

    def replay(self, key: Message, value: Message | None) -> None:
        self.machine.replay(CoordinatorRecord(key, value))

    def commit(
        self,
        group_id: str,
        *topics: TopicOffsets,
        committer: Committer | None = None,
        producer_id: int = -1,
        retention_ms: int = -1,
    ) -> Any:
        """Commit; give what was refused."""
        who = committer or Committer(is_transactional=producer_id >= 0)
        return self.do(self.plan(Commit(group_id, topics, who, retention_ms)), producer_id)

    def fetch(self, query: OffsetQuery) -> dict[str, list[FetchedOffset]]:
        return dict(self.do(fetch_offsets(self.state, query, _ignore)))

    def offset(self, group_id: str, topic_name: str, partition: int) -> int | None:
        found = self.state.offsets.get(group_id, topic_name, partition)
        return None if found is None else found.offset


def topic(name: str, *offsets: Any, topic_id: bytes = bytes(16)) -> TopicOffsets:
    return TopicOffsets(name, topic_id, offsets)


def offset(
    partition: int, value: int, metadata: str | None = "", *, epoch: int = -1
) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=partition,
        committed_offset=value,
        committed_metadata=metadata,
        committed_leader_epoch=epoch,
    )


def _ignore(_: object) -> None:
    """Nobody waits."""
