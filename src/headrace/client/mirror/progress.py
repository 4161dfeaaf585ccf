"""How far the copies of partitions are."""

from enum import Enum

import msgspec

from headrace.client.mirror.choice import source_topic_id
from headrace.client.topics import TopicPartition
from headrace.ids import ZERO_TOPIC_ID, TopicId


class Phase(Enum):
    """What is done about a partition."""

    LOOKING = "looking"
    """Where both clusters are is being asked."""
    COPYING = "copying"
    HALTED = "halted"
    """A person has to decide."""


class Copy(msgspec.Struct, kw_only=True, eq=False):
    """One partition, on its way."""

    partition: TopicPartition
    source: str
    """The topic, as the config headrace.mirror.source has it."""
    is_compacted: bool = False
    may_end_early: bool = False
    """Whether the source may have no record before the end of its log, see `choice`."""
    phase: Phase = Phase.LOOKING
    problem: str = ""
    """Why it is halted, or what delays it."""
    position: int = 0
    """The next offset to fetch."""
    expected_end: int = 0
    """Where the target's log ends when all that was fetched is appended."""
    last_epoch: int = -1
    """The source's leader epoch of the last batch that was fetched."""
    life: int = 0
    """One more with each look: what was fetched in a former one is dropped."""
    begins_at: int = -1
    """Where the source's log begins inside of its first batch, which is copied whole: the target's
    is to begin there too, once it has that batch. -1 if there is nothing to do."""
    source_start: int = 0
    source_end: int = 0
    target_end: int = 0
    goal: int = -1
    """Where the source ended at the first look, -1 before it."""
    copied_bytes: int = 0
    copied_batches: int = 0
    topic_id: TopicId = ZERO_TOPIC_ID
    """The id of the topic at the source; zeros if the source predates topic ids."""

    def __post_init__(self) -> None:
        self.topic_id = source_topic_id(self.source)

    @property
    def lag(self) -> int:
        """How many offsets the target is behind, as far as known."""
        return max(self.source_end - self.target_end, 0)

    @property
    def is_at_goal(self) -> bool:
        """Whether all is copied that the source had at the first look, or nothing will be."""
        return self.phase is Phase.HALTED or (self.goal >= 0 and self.target_end >= self.goal)

    def is_other(self, topic_id: TopicId) -> bool:
        """Return whether an id is that of another topic of this name; zeros are none."""
        return ZERO_TOPIC_ID not in (topic_id, self.topic_id) and topic_id != self.topic_id

    def halt(self, reason: str) -> None:
        """Copy nothing any more."""
        self.phase, self.problem = Phase.HALTED, reason
        self.life += 1

    def look_again(self, reason: str = "") -> None:
        """Find out anew where both clusters are."""
        if self.phase is not Phase.HALTED:
            self.phase, self.problem = Phase.LOOKING, reason
            self.life += 1
