"""The share partitions that this node leads: loaded on first use, dropped with the leadership.

They are also dropped when their group has no session here any more, as in Kafka, which bounds what
short-lived groups leave behind: not before the locks of the last members would have expired, and
only once everything is persisted. A member that comes back reloads them.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from headrace.config import GROUP_SHARE_MAX_SHARE_SESSIONS, AnySettings
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import PartitionIndex, SharePartitionKey
from headrace.loop.clock import Clock
from headrace.loop.turns import TURN_COST_MAX, Turns
from headrace.metadata.image import Image
from headrace.replication.partition import Partition
from headrace.replication.replicas import Replicas
from headrace.share.breakers import GroupBreaker
from headrace.share.dead_letter_sending import LetterSender
from headrace.share.dead_letters import DeadLetters, Refuse
from headrace.share.durable import DeliveryState
from headrace.share.group_configs import ShareGroupConfigs, ShareGroupSettings
from headrace.share.led_partition import LOOK_COST, RUNS_SHIFT, LedSharePartition
from headrace.share.partition.changes import Change
from headrace.share.partition.types import Cause
from headrace.share.ports import MemberConnection, Persister
from headrace.share.sessions import PartitionId, ShareSession, ShareSessions

RELEASES_AT_ONCE: Final = 16
"""How many partitions release a member's records in the turn that ends its session."""
UNLOAD_RETRY_MS: Final = 1000
"""The minimum wait before a group without sessions is checked."""


class ShareCounters:
    """Outcomes of records since the node started."""

    __slots__ = (
        "accepted_records",
        "acquired_records",
        "archived_records",
        "breaker_openings",
        "lock_timeouts",
        "released_records",
    )

    def __init__(self) -> None:
        self.acquired_records = 0
        self.accepted_records = 0
        self.released_records = 0
        self.archived_records = dict.fromkeys(Cause, 0)
        self.lock_timeouts = 0
        self.breaker_openings = 0

    def count(self, change: Change) -> None:
        """Count a durable change."""
        for first, last, state, _, cause in change.outcomes:
            if state == DeliveryState.ACKNOWLEDGED:
                self.accepted_records += last - first + 1
            elif state == DeliveryState.AVAILABLE:
                self.released_records += last - first + 1
            elif state == DeliveryState.ARCHIVED and cause is not None:
                self.archived_records[cause] += last - first + 1

    def count_opening(self) -> None:
        """Count a circuit breaker that opened."""
        self.breaker_openings += 1


class _ShareGroup:
    """The share partitions of one group that this node leads."""

    __slots__ = ("breaker", "configs", "group_id", "partitions", "timer", "topics", "unload_ms")

    def __init__(self, group_id: str, configs: ShareGroupConfigs, home: "SharePartitions") -> None:
        self.group_id = group_id
        self.configs = configs
        self.partitions: dict[PartitionId, LedSharePartition] = {}
        self.topics: Counter[str] = Counter()
        """The number of partitions of each topic."""
        self.timer: asyncio.TimerHandle | None = None
        self.unload_ms: int | None = None
        """When to check whether it can be unloaded; None while it has sessions."""
        self.breaker = GroupBreaker(
            group_id,
            configs.breaker_limits,
            home.clock,
            on_opened=home.counters.count_opening,
            on_delivery=self._wake,
        )

    @property
    def is_pausing(self) -> bool:
        """Whether its circuit breaker is open, which unloading would forget."""
        return self.breaker.pause_left_ms() is not None

    def disarm(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _wake(self) -> None:
        for led in self.partitions.values():
            if led.waiters:
                led.wake_soon()


class SharePartitions:
    """Share partitions by group, and the sessions of their members."""

    def __init__(
        self,
        settings: AnySettings,
        replicas: Replicas,
        image_of: Callable[[], Image],
        clock: Clock,
        persister: Persister,
        *,
        letters: LetterSender,
        refuse_letters: Refuse,
        turns: Turns,
    ) -> None:
        self.persister = persister
        self.dead_letters = DeadLetters(letters, refuse_letters)
        self.inflating = letters.inflating
        self.clock = clock
        self.turns = turns
        self.counters = ShareCounters()
        self.sessions = ShareSessions(settings[GROUP_SHARE_MAX_SHARE_SESSIONS])
        self._settings = settings
        self.replicas = replicas
        self._image_of = image_of
        self._groups: dict[str, _ShareGroup] = {}
        self._by_partition: dict[PartitionId, dict[LedSharePartition, None]] = {}
        """Share partitions of all groups."""

    def __iter__(self) -> Iterator[LedSharePartition]:
        for group in self._groups.values():
            yield from group.partitions.values()

    # Looking up

    def find(self, group_id: str, partition_id: PartitionId) -> LedSharePartition | None:
        """Return a share partition that is loaded or loading."""
        group = self._groups.get(group_id)
        return None if group is None else group.partitions.get(partition_id)

    def lead(self, group_id: str, partition_id: PartitionId) -> LedSharePartition | None:
        """Return a share partition, loading it if needed; None if this node does not lead it."""
        group = self._groups.get(group_id)
        if group is not None and (found := group.partitions.get(partition_id)) is not None:
            return found
        topic_id, index = partition_id
        partition = self.replicas.find_by_id(topic_id, index)
        if partition is None or not partition.is_leader:
            return None
        if group is None:
            configs = ShareGroupConfigs(group_id, self._settings, self._image_of)
            group = self._groups[group_id] = _ShareGroup(group_id, configs, self)
        key = SharePartitionKey(group_id, topic_id, PartitionIndex(index))
        led = LedSharePartition(key, partition, group.configs, self, group.breaker)
        group.partitions[partition_id] = led
        group.topics[partition.topic] += 1
        self._by_partition.setdefault(partition_id, {})[led] = None
        led.load()
        return led

    def settings_of(self, group_id: str) -> ShareGroupSettings:
        group = self._groups.get(group_id)
        if group is not None:
            return group.configs.now()
        return ShareGroupConfigs(group_id, self._settings, self._image_of).now()

    def breaker_of(self, group_id: str) -> GroupBreaker | None:
        """Return the circuit breaker of a group; None if this node leads nothing of it."""
        group = self._groups.get(group_id)
        return None if group is None else group.breaker

    def breakers(self) -> Iterator[GroupBreaker]:
        """Return the circuit breakers of all groups with share partitions here."""
        for group in self._groups.values():
            yield group.breaker

    def has_group_read(self, group_id: str, topic: str) -> bool:
        """Return whether a group reads partitions of a topic that this node leads."""
        group = self._groups.get(group_id)
        return group is not None and group.topics[topic] > 0

    # Sessions

    def begin_session(
        self,
        group_id: str,
        member_id: str,
        partitions: Sequence[PartitionId],
        peer: MemberConnection,
    ) -> ShareSession:
        """Open a session that ends with its connection; raise KafkaError if there are too many."""
        session = self.sessions.begin(group_id, member_id, partitions)
        group = self._groups.get(group_id)
        if group is not None and group.unload_ms is not None:
            group.unload_ms = None
            group.disarm()
        session.client_host = peer.address.rpartition(":")[0]

        def on_disconnected() -> None:
            self.end_session(session)

        peer.on_close[on_disconnected] = None
        session.on_ended = lambda: peer.on_close.pop(on_disconnected, None)
        return session

    def end_session(self, session: ShareSession) -> None:
        """Forget a session and release its member's records.

        The first partitions release at once, the others in later turns of the loop.
        """
        if session.is_ended:
            return
        self.sessions.end(session)
        group = self._groups.get(session.group_id)
        if group is None:
            return
        member_id, later = session.member_id, list[LedSharePartition]()
        for number, partition_id in enumerate(session.touched):
            if (led := group.partitions.get(partition_id)) is None:
                continue
            if number < RELEASES_AT_ONCE:
                led.release_member(member_id)
            else:
                led.releasing.add(member_id)
                later.append(led)
        if later:
            self._release_later(member_id, iter(later))
        if not self.sessions.count_of(session.group_id):
            self._unload_later(group)

    def _release_later(self, member_id: str, leds: Iterator[LedSharePartition]) -> None:
        def release_some() -> int:
            cost = 0
            for led in leds:
                if member_id in led.releasing:
                    led.release_member(member_id)
                    cost += LOOK_COST + (led.machine.run_count >> RUNS_SHIFT)
                if cost >= TURN_COST_MAX:
                    self.turns.soon(release_some)
                    break
            return cost

        self.turns.soon(release_some)

    # Groups without sessions

    def _unload_later(self, group: _ShareGroup) -> None:
        """Check a group again when the locks of its last member would have expired."""
        lock_ms = group.configs.limits().lock_duration_ms
        group.unload_ms = self.clock.now_ms() + lock_ms
        self._arm_unloading(group)

    def _arm_unloading(self, group: _ShareGroup) -> None:
        group.disarm()
        if group.unload_ms is not None:
            delay_ms = max(group.unload_ms - self.clock.now_ms(), 0)
            group.timer = asyncio.get_running_loop().call_later(
                delay_ms / 1000, self._start_unloading, group
            )

    def _start_unloading(self, group: _ShareGroup) -> None:
        if group.unload_ms is None:
            return
        if group.unload_ms > self.clock.now_ms() or group.is_pausing:
            group.unload_ms = max(group.unload_ms, self.clock.now_ms() + UNLOAD_RETRY_MS)
            self._arm_unloading(group)
            return
        leds = iter(tuple(group.partitions.values()))
        self.turns.soon(lambda: self._unload_some(group, leds))

    def _unload_some(self, group: _ShareGroup, leds: Iterator[LedSharePartition]) -> int:
        cost = 0
        for led in leds:
            if group.unload_ms is None:
                return cost  # a member has come back
            cost += 2 + (led.machine.run_count >> RUNS_SHIFT)
            if led.is_idle:
                self.drop(led, _unloaded(led))
            if cost >= TURN_COST_MAX:
                self.turns.soon(lambda: self._unload_some(group, leds))
                return cost
        if group.partitions and group.unload_ms is not None:
            self._unload_later(group)
        return cost

    # What changes

    def forget_group(self, group_id: str) -> None:
        """Reload a group's states on their next use: they were changed elsewhere."""
        group = self._groups.get(group_id)
        if group is not None:
            error = KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"the offsets of group {group_id!r} were changed"
            )
            for led in tuple(group.partitions.values()):
                self.drop(led, error)

    def drop(self, led: LedSharePartition, error: KafkaError) -> None:
        """Stop serving a share partition; the next request for it loads a new instance."""
        group = self._groups.get(led.key.group_id)
        if group is not None and group.partitions.get(led.id) is led:
            del group.partitions[led.id]
            group.topics[led.partition.topic] -= 1
            same = self._by_partition[led.id]
            same.pop(led, None)
            if not same:
                del self._by_partition[led.id]
            if not group.partitions:
                group.breaker.disarm()
                group.disarm()
                del self._groups[led.key.group_id]
        led.end(error)

    def on_leading(self, partition: Partition) -> None:
        self._drop_all(partition)  # those of the previous epoch

    def on_following(self, partition: Partition) -> None:
        self._drop_all(partition)

    def on_stopped(self, partition: Partition, *, is_deleted: bool) -> None:
        self._drop_all(partition, is_deleted=is_deleted)

    def _drop_all(self, partition: Partition, *, is_deleted: bool = False) -> None:
        same = self._by_partition.get((partition.topic_id, int(partition.index)))
        if not same:
            return
        code = ErrorCode.UNKNOWN_TOPIC_ID if is_deleted else ErrorCode.NOT_LEADER_OR_FOLLOWER
        error = KafkaError(code, f"{partition.name} is no longer led here")
        for led in tuple(same):
            self.drop(led, error)

    def rearm(self) -> None:
        """Reset the timers: the clock was moved."""
        for led in tuple(self):
            led.rearm()
        for group in tuple(self._groups.values()):
            group.breaker.rearm()
            self._arm_unloading(group)

    def close(self) -> None:
        """Stop all timers and background work."""
        self.dead_letters.close()
        for group in self._groups.values():
            group.breaker.disarm()
            group.disarm()
        for led in tuple(self):
            led.is_active = False
            led.disarm()


def _unloaded(led: LedSharePartition) -> KafkaError:
    return KafkaError(
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        f"{led.partition.name} was unloaded: no member of group {led.key.group_id!r} fetches here",
    )
