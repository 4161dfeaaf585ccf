"""What the controller does for partitions besides electing when brokers go and come.

It journals reassignments and ends those whose replicas have caught up, lets preferred replicas lead
again, lets others lead what a node leads that is to leave the cluster, or that was fenced while
partitions were created for it, elects unclean leaders where that is allowed, and raises internal
topics to their configured replication factor when there are brokers for it. It puts its
min.insync.replicas into the metadata log where there is none: only what all nodes agree on tells
who is eligible to lead (KIP-966, as in Kafka).

Most of it is caused by an entry of the metadata log: `note` says of each what is due then, so that
the cost is that of what changed. The rest has its interval. A new controller looks at everything
once, as nobody knows what the former one had yet to do.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from headrace import config
from headrace.cluster.plans import Plan, propose_plan
from headrace.config import Settings
from headrace.ids import BrokerId, PartitionIndex, TopicName
from headrace.metadata.applier import Outcome
from headrace.metadata.ddl import Ddl, SetConfigs
from headrace.metadata.eligible import ALL_BROKERS, MIN_INSYNC_REPLICAS
from headrace.metadata.entries import Entry
from headrace.metadata.events import (
    BrokerChanged,
    BrokerRegistered,
    ConfigsChanged,
    Event,
    LeaderChanged,
    MigrationAborted,
    MigrationAdvanced,
    NodeChanged,
    PartitionsAdded,
    ReplicasChanged,
    TopicCreated,
)
from headrace.metadata.image import Image, Slot
from headrace.metadata.quorum import MetadataQuorum
from headrace.metadata.state import NodeState, ResourceType
from headrace.replication.elections import (
    Changes,
    is_active,
    plan_handover,
    plan_new,
    plan_preferred,
    plan_unclean,
)
from headrace.replication.move_journal import plan_journal
from headrace.replication.moves import is_moving
from headrace.replication.raising import Wanted, plan_min_isr, plan_replicas

UNCLEAN: Final = config.UNCLEAN_LEADER_ELECTION_ENABLE.name
TRUE: Final = "true"
EVERY_BROKER: Final = (ResourceType.BROKER, ALL_BROKERS)


class CareSettings(Struct, frozen=True):
    """How a controller treats partitions."""

    allows_unclean: bool = False
    """Where neither the topic nor the cluster says so."""
    unclean_seconds: float = 300.0
    rebalances_leaders: bool = True
    rebalance_seconds: float = 300.0
    internal_topics: Mapping[TopicName, Wanted] = {}
    min_insync_replicas: int = 1
    """The value for topics without their own, where the cluster has none."""

    @classmethod
    def of(cls, settings: Settings) -> "CareSettings":
        """Return what a node's settings say."""
        return cls(
            settings[config.UNCLEAN_LEADER_ELECTION_ENABLE],
            settings[config.UNCLEAN_LEADER_ELECTION_INTERVAL_MS] / 1000,
            settings[config.AUTO_LEADER_REBALANCE_ENABLE],
            settings[config.LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS],
            {
                TopicName("__consumer_offsets"): Wanted(
                    settings[config.OFFSETS_TOPIC_REPLICATION_FACTOR]
                ),
                TopicName("__transaction_state"): Wanted(
                    settings[config.TRANSACTION_STATE_LOG_REPLICATION_FACTOR],
                    settings[config.TRANSACTION_STATE_LOG_MIN_ISR],
                ),
                TopicName("__share_group_state"): Wanted(
                    settings[config.SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR],
                    settings[config.SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR],
                ),
                TopicName("__remote_log_metadata"): Wanted(
                    settings[config.RLMM_TOPIC_REPLICATION_FACTOR],
                    settings[config.RLMM_TOPIC_MIN_ISR],
                ),
            },
            settings[config.MIN_INSYNC_REPLICAS],
        )


class PartitionCare:
    """The part of a controller that looks after partitions."""

    def __init__(
        self, quorum: MetadataQuorum, settings: CareSettings, now_ms: Callable[[], int]
    ) -> None:
        """`now_ms` is the wall clock."""
        self._quorum = quorum
        self._settings = settings
        self._now_ms = now_ms
        self._moved: dict[tuple[TopicName, PartitionIndex], None] = {}
        """Partitions on the move, or just arrived, that have changed."""
        self._is_all_moved = False
        """Whether to look at everything that is on the move."""
        self._led_by_leaving: dict[tuple[TopicName, PartitionIndex], None] = {}
        """Partitions that others may lead now."""
        self._leaving: set[BrokerId] = set()
        """Nodes that have just begun to leave."""
        self._new: dict[TopicName, None] = {}
        """Topics with new partitions, whose leaders may have gone since they were chosen."""
        self._must_agree = False
        self._must_raise = False
        self._must_elect = False
        self._unclean_at = 0.0
        self._rebalance_at = 0.0

    def begin(self, now: float) -> None:
        """Look at everything: this node is the controller from now on."""
        self._moved, self._new = {}, {}
        self._is_all_moved = True
        image = self._quorum.image
        self._leaving = {
            BrokerId(node) for node in image.state.nodes if image.is_leaving(BrokerId(node))
        }
        self._must_agree = self._must_raise = self._must_elect = True
        self._unclean_at = now + self._settings.unclean_seconds
        self._rebalance_at = now + self._settings.rebalance_seconds

    def note(self, outcome: Outcome) -> bool:
        """Record what an entry changed; return whether something is due."""
        is_due = False
        for event in outcome.events:
            is_due |= self._note(event)
        return is_due

    def allows_unclean(self, topic: TopicName) -> bool:
        """Return whether any replica of a topic may lead if all that are complete are gone."""
        image, node = self._quorum.image, self._quorum.driver.node
        for resource in (
            (ResourceType.TOPIC, topic),
            (ResourceType.BROKER, str(node)),
            (ResourceType.BROKER, ""),
        ):
            text = image.configs(*resource).get(UNCLEAN)
            if text is not None:
                return text.strip().lower() == TRUE
        return self._settings.allows_unclean

    def seconds_left(self, now: float) -> float:
        """Return when something is due by its interval."""
        due = self._unclean_at
        if self._settings.rebalances_leaders:
            due = min(due, self._rebalance_at)
        return max(0.0, due - now)

    async def run(self, now: float) -> bool:
        """Do what is due; return whether nothing is left to be done."""
        is_done = await self._agree()
        is_done &= await self._settle_new()
        is_done &= await self._move()
        is_done &= await self._hand_over()
        is_done &= await self._raise()
        is_done &= await self._elect(now)
        return is_done & await self._rebalance(now)

    def _note(self, event: Event) -> bool:
        match event:
            case (
                LeaderChanged(name=name, partition=index)
                | ReplicasChanged(name=name, partition=index)
            ):
                return self._note_partition(name, index)
            case MigrationAdvanced(vshard=vshard):
                self._note_moved(vshard)
            case MigrationAborted(vshard=vshard):
                self._note_moved(vshard)
                self._must_elect = True  # it may have left a partition without a leader
            case NodeChanged(node_id=node_id, state=NodeState.DRAINING):
                self._leaving.add(BrokerId(node_id))
            case BrokerChanged() | BrokerRegistered():
                self._must_raise = True
                self._is_all_moved = True  # one that is back may take over
            case TopicCreated(name=name) | PartitionsAdded(name=name):
                self._new[name] = None
                self._must_raise |= name in self._settings.internal_topics
            case ConfigsChanged(names=names) if UNCLEAN in names:
                self._must_elect = True
            case ConfigsChanged(names=names) if config.VOTERS_MAX.name in names:
                pass  # the controller may have votes to give
            case _:
                return False
        return True

    def _note_partition(self, name: TopicName, index: PartitionIndex) -> bool:
        image = self._quorum.image
        row = image.partition(name, index)
        is_due = False
        if row is not None and (
            is_moving(row) or image.migration_of_vshard(row.vshard_id) is not None
        ):
            self._moved[name, index] = None
            is_due = True
        elif name in self._settings.internal_topics:
            self._must_raise = is_due = True
        if row is not None and len(row.isr) > 1 and image.is_leaving(row.leader):
            self._led_by_leaving[name, index] = None
            is_due = True
        return is_due

    async def _agree(self) -> bool:
        """Make this node's min.insync.replicas the cluster's, if it is above the default.

        Without it they would count with 1 who is eligible, and the ELR of a topic that relies on
        the brokers' setting would be empty.
        """
        if not self._must_agree:
            return True
        wanted = self._settings.min_insync_replicas

        def plan(image: Image) -> Iterator[Ddl | None]:
            if wanted > 1 and MIN_INSYNC_REPLICAS not in image.configs(*EVERY_BROKER):
                yield SetConfigs(*EVERY_BROKER, {MIN_INSYNC_REPLICAS: str(wanted)})

        is_done = await propose_plan(self._quorum, plan)
        self._must_agree = not is_done
        return is_done

    async def _settle_new(self) -> bool:
        """Elect others for new partitions whose leader was fenced before they were in the log.

        Whoever creates partitions chooses who leads them, and the plan by which a broker is fenced
        has those alone that were there when it was made.
        """
        new, self._new = self._new, {}
        image = self._quorum.image
        if not new or all(is_active(image, each) for each in image.state.brokers):
            return True

        def plan(image: Image) -> Changes:
            yield from plan_new(image, _all_slots(image, new), self.allows_unclean)

        def put_back() -> None:
            self._new = {**new, **self._new}

        return await self._propose(plan, put_back)

    def _note_moved(self, vshard: int) -> None:
        slot = self._quorum.image.slot(vshard)
        if slot is not None:
            self._moved[slot.topic.name, slot.partition] = None

    async def _move(self) -> bool:
        """Advance moves; partitions that this changes are looked at again."""
        moved, self._moved = self._moved, {}
        is_all, self._is_all_moved = self._is_all_moved, False
        if not moved and not is_all:
            return True

        def plan(image: Image) -> Iterable[Entry | Ddl | None]:
            slots = _moving(image) if is_all else _slots(image, moved)
            return plan_journal(image, slots, self._now_ms())

        def put_back() -> None:
            self._moved = {**moved, **self._moved}
            self._is_all_moved |= is_all

        return await self._propose(plan, put_back)

    async def _hand_over(self) -> bool:
        """Move leadership off nodes that are to leave, where others are in sync."""
        led, self._led_by_leaving = self._led_by_leaving, {}
        leaving, self._leaving = self._leaving, set()
        if not led and not leaving:
            return True

        def plan(image: Image) -> Changes:
            yield from plan_handover(image, _slots(image, led))
            for node in leaving:
                yield from plan_handover(image, image.partitions_of(node))

        def put_back() -> None:
            self._led_by_leaving = {**led, **self._led_by_leaving}
            self._leaving |= leaving

        return await self._propose(plan, put_back)

    async def _raise(self) -> bool:
        if not self._must_raise:
            return True
        self._must_raise = False
        wanted = self._settings.internal_topics

        def put_back() -> None:
            self._must_raise = True

        is_done = await self._propose(lambda image: plan_replicas(image, wanted), put_back)
        return is_done & await self._propose(lambda image: plan_min_isr(image, wanted), put_back)

    async def _elect(self, now: float) -> bool:
        """Elect where there is no leader and an unclean one is allowed."""
        if not self._must_elect and now < self._unclean_at:
            return True
        self._must_elect = False
        self._unclean_at = now + self._settings.unclean_seconds

        def put_back() -> None:
            self._must_elect = True

        return await self._propose(lambda image: plan_unclean(image, self.allows_unclean), put_back)

    async def _rebalance(self, now: float) -> bool:
        """Return leadership to preferred replicas."""
        if not self._settings.rebalances_leaders or now < self._rebalance_at:
            return True
        self._rebalance_at = now + self._settings.rebalance_seconds
        return await propose_plan(self._quorum, plan_preferred)

    async def _propose(self, plan: Plan, put_back: Callable[[], None]) -> bool:
        """Propose a plan; return whether that is done. If not, or it fails, `put_back` is called.

        What the log did not take, as its disk was full, say, is due again, and no event says so.
        """
        is_done = False
        try:
            is_done = await propose_plan(self._quorum, plan)
        finally:
            if not is_done:
                put_back()
        return is_done


def _moving(image: Image) -> Iterator[Slot]:
    """Yield the partitions that are on the move, and those whose journal is still open."""
    yield from image.moving()
    for row in tuple(image.state.migrations.values()):
        slot = image.slot(row.vshard)
        if slot is not None and not is_moving(slot.topic.partitions[slot.partition]):
            yield slot


def _all_slots(image: Image, topics: Iterable[TopicName]) -> Iterator[Slot]:
    """Yield the partitions of topics that are still there."""
    for name in topics:
        topic = image.topic(name)
        for index in range(0 if topic is None else len(topic.partitions)):
            assert topic is not None
            yield Slot(topic, PartitionIndex(index))


def _slots(image: Image, moved: Mapping[tuple[TopicName, PartitionIndex], None]) -> list[Slot]:
    """Return the partitions that are still there."""
    return [
        Slot(topic, index)
        for name, index in moved
        if (topic := image.topic(name)) is not None and index < len(topic.partitions)
    ]
