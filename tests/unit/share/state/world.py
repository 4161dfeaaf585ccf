"""One partition of `__share_group_state` in memory: what it wrote, answered and would prune."""

from collections.abc import Callable
from typing import Any

from headrace.config import Settings, load_settings
from headrace.coordinator.machine import Outcome
from headrace.coordinator.records import CoordinatorRecord
from headrace.errors import KafkaError
from headrace.ids import BrokerId, PartitionIndex, SharePartitionKey, TopicId, TopicName
from headrace.metadata.image import Image
from headrace.metadata.state import Partition, Topic
from headrace.share.durable import DurableState, StateBatch, StateSummary, StateWrite
from headrace.share.state.machine import ShareStatesMachine
from headrace.share.state.operations import (
    Beginning,
    delete,
    initialize,
    read,
    read_summary,
    write,
)
from headrace.share.state.states import ShareState, ShareStates

T0 = 1_700_000_000_000
TOPIC = TopicId(b"t" * 16)
OTHER = TopicId(b"u" * 16)
AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4


def key(partition: int = 0, *, topic_id: TopicId = TOPIC, group: str = "g") -> SharePartitionKey:
    return SharePartitionKey(group, topic_id, PartitionIndex(partition))


def image_with(*topics: tuple[TopicId, int]) -> Image:
    """An image that has these topics with so many partitions, led by node 1."""
    image, node = Image(), BrokerId(1)
    for number, (topic_id, count) in enumerate(topics):
        rows = [Partition((node,), (node,), node, 1000 * number + each) for each in range(count)]
        image.add_topic(Topic(TopicName(f"topic-{number}"), topic_id, rows))
    return image


class World:
    """A machine whose records are committed as soon as they are written."""

    def __init__(self, settings: dict[str, str] | None = None) -> None:
        self.settings: Settings = load_settings(overrides=settings or {})
        self.image = image_with((TOPIC, 100), (OTHER, 3))
        self.now_ms = T0
        self.log: list[CoordinatorRecord] = []
        self.start_offset = 0
        """Where the log begins after pruning."""
        self.machine = self.new()

    def new(self) -> ShareStatesMachine:
        return ShareStatesMachine(ShareStates(self.settings, lambda: self.image, self._prune))

    def _prune(self, offset: int | KafkaError) -> None:
        assert not isinstance(offset, KafkaError)
        self.start_offset = offset

    @property
    def states(self) -> ShareStates:
        return self.machine.state

    def of(self, partition: int = 0) -> ShareState:
        return self.states.states[key(partition)]

    def do(self, operation: Callable[..., Outcome], *arguments: Any) -> Any:
        """Do an operation that takes a reply last; give its answer, or raise the error."""
        answers: list[Any] = []
        self.commit(operation(self.states, *arguments, answers.append))
        (answer,) = answers
        if isinstance(answer, KafkaError):
            raise answer
        return answer

    def commit(self, outcome: Outcome) -> None:
        for record in outcome.records:
            self.log.append(record._replace(offset=len(self.log)))
            self.machine.replay(self.log[-1])
        for reply, answer in outcome.replies:
            reply(answer)

    def reload(self) -> None:
        """Begin anew with what is left of the log."""
        self.machine = self.new()
        for record in self.log[self.start_offset :]:
            self.machine.replay(record)
        self.commit(self.machine.on_loaded(self.now_ms))

    def pass_time(self, milliseconds: int) -> None:
        """Let time pass, and everything happen that is due meanwhile."""
        end_ms = self.now_ms + milliseconds
        while (due_ms := self.machine.next_deadline_ms()) is not None and due_ms <= end_ms:
            self.now_ms = max(due_ms, self.now_ms)
            self.commit(self.machine.on_deadline(self.now_ms))
        self.now_ms = end_ms

    # What leaders and groups do, in few words

    def begin(
        self, partition: int = 0, *, start: int = 0, epoch: int = 0, topic_id: TopicId = TOPIC
    ) -> None:
        where = key(partition, topic_id=topic_id)
        self.do(initialize, where, Beginning(epoch, start), self.now_ms)

    def read(self, partition: int = 0, *, leader_epoch: int = -1) -> DurableState:
        answer: DurableState = self.do(read, key(partition), leader_epoch, self.now_ms)
        return answer

    def write(
        self,
        *batches: tuple[int, int, int, int],
        partition: int = 0,
        start: int = -1,
        complete: int = 0,
        leader_epoch: int = -1,
        epoch: int = -1,
    ) -> None:
        states = tuple(StateBatch(*batch) for batch in batches)
        change = StateWrite(epoch, leader_epoch, start, complete, states)
        self.do(write, key(partition), change, self.now_ms)

    def summary(self, partition: int = 0) -> StateSummary:
        answer: StateSummary = self.do(read_summary, key(partition))
        return answer

    def delete(self, partition: int = 0) -> None:
        self.do(delete, key(partition))
