"""A life of share states: partitions that begin, are written, change leaders and fall silent."""

from typing import Final

from headrace.config import load_settings
from headrace.ids import SharePartitionKey
from headrace.share.durable import StateBatch, StateWrite
from headrace.share.state.machine import ShareStatesMachine
from headrace.share.state.operations import Beginning, delete, initialize, read, write
from headrace.share.state.records import RECORD_TYPES
from headrace.share.state.states import ShareStates
from headrace.share.state.upkeep import forget_topic
from tests.crash.coordinator_histories import Known, Life
from tests.unit.share.state.world import OTHER, TOPIC, image_with, key

PARTITIONS: Final = 4
SETTINGS: Final = load_settings(
    overrides={
        "share.coordinator.snapshot.update.records.per.snapshot": "4",
        "share.coordinator.cold.partition.snapshot.interval.ms": "30000",
        "share.coordinator.state.topic.prune.interval.ms": "60000",
    }
)


class ShareStatesLife(Life[ShareStatesMachine]):
    """Two topics of one group."""

    types = RECORD_TYPES

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.image = image_with((TOPIC, PARTITIONS), (OTHER, PARTITIONS))
        self.starts: dict[SharePartitionKey, int] = {}
        self.redundant: list[tuple[int, int]] = []
        """Where the log ended when it was said to be needed from an offset on, and that offset."""

    def make(self) -> ShareStatesMachine:
        return ShareStatesMachine(ShareStates(SETTINGS, lambda: self.image, self._on_redundant))

    def tell(self, machine: ShareStatesMachine, before: Known) -> Known:
        state = machine.state
        return {
            each.text: (known, state.update_counts[each], state.snapshot_offsets[each])
            for each, known in state.states.items()
        }

    def _on_redundant(self, offset: object) -> None:
        if isinstance(offset, int):
            self.redundant.append((self.log.end_offset, offset))

    def act(self) -> None:
        # More often the first ones, so that others are quiet for long.
        index = min(self.random.randrange(PARTITIONS) for _ in range(2))
        where = key(index, topic_id=self.random.choice((TOPIC, OTHER)))
        what = self.random.random()
        if where not in self.starts or what < 0.05:
            self.starts[where] = self.random.randrange(10)
            self.do(initialize, where, Beginning(self.number(), self.starts[where]))
        elif what < 0.15:
            self.do(read, where, self.number())
        elif what < 0.93:
            self._write(where)
        elif what < 0.97:
            del self.starts[where]
            self.do(delete, where, is_timeless=True)
        else:
            self.starts = {each: at for each, at in self.starts.items() if each.topic_id != OTHER}
            self.write(
                lambda machine, now_ms: forget_topic(machine.state, OTHER, now_ms), lambda _: None
            )

    def _write(self, where: SharePartitionKey) -> None:
        start = self.starts[where] = self.starts[where] + self.random.randrange(3)
        batches = tuple(
            StateBatch(
                first := start + self.random.randrange(15),
                first + self.random.randrange(5),
                self.random.choice((0, 2, 4)),
                self.random.randrange(1, 4),
            )
            for _ in range(self.random.randrange(4))
        )
        is_moved = self.random.random() < 0.5
        count = self.random.randrange(-1, 9)
        self.do(write, where, StateWrite(-1, -1, start if is_moved else -1, count, batches))
