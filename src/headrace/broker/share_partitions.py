"""The share partitions that this node leads: loaded on first use, dropped with the leadership."""

from collections.abc import Callable, Iterator, Sequence

from headrace.broker.clock import Clock
from headrace.broker.dead_letter_sending import LetterSender
from headrace.broker.dead_letters import DeadLetters, Refuse
from headrace.broker.partition import Partition
from headrace.broker.replicas import Replicas
from headrace.broker.request import Peer
from headrace.broker.share_breakers import GroupBreaker
from headrace.broker.share_configs import ShareGroupConfigs, ShareGroupSettings
from headrace.broker.share_partition import LedSharePartition
from headrace.config import GROUP_SHARE_MAX_SHARE_SESSIONS, Settings
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import PartitionIndex
from headrace.metadata.image import Image
from headrace.share.durable import DeliveryState
from headrace.share.key import SharePartitionKey
from headrace.share.partition.changes import Change
from headrace.share.partition.types import Cause
from headrace.share.ports import Persister
from headrace.share.sessions import PartitionId, ShareSession, ShareSessions


class ShareCounters:
    """What became of records since the node started."""

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
        """Take note of a change that holds."""
        for first, last, state, _, cause in change.outcomes:
            if state == DeliveryState.ACKNOWLEDGED:
                self.accepted_records += last - first + 1
            elif state == DeliveryState.AVAILABLE:
                self.released_records += last - first + 1
            elif state == DeliveryState.ARCHIVED and cause is not None:
                self.archived_records[cause] += last - first + 1

    def count_opening(self) -> None:
        """Take note of a circuit breaker that opened."""
        self.breaker_openings += 1


class _ShareGroup:
    """What is led of one group."""

    __slots__ = ("breaker", "configs", "partitions")

    def __init__(self, group_id: str, configs: ShareGroupConfigs, home: "SharePartitions") -> None:
        self.configs = configs
        self.partitions: dict[PartitionId, LedSharePartition] = {}
        self.breaker = GroupBreaker(
            group_id,
            configs.breaker_limits,
            home.clock,
            on_opened=home.counters.count_opening,
            on_delivery=self._wake,
        )

    def _wake(self) -> None:
        for led in self.partitions.values():
            led.wake_soon()


class SharePartitions:
    """Share partitions by group, and the sessions of those who read them."""

    def __init__(
        self,
        settings: Settings,
        replicas: Replicas,
        image_of: Callable[[], Image],
        clock: Clock,
        persister: Persister,
        *,
        letters: LetterSender,
        refuse_letters: Refuse,
    ) -> None:
        self.persister = persister
        self.dead_letters = DeadLetters(letters, refuse_letters)
        self.inflating = letters.inflating
        self.clock = clock
        self.counters = ShareCounters()
        self.sessions = ShareSessions(settings[GROUP_SHARE_MAX_SHARE_SESSIONS])
        self._settings = settings
        self._replicas = replicas
        self._image_of = image_of
        self._groups: dict[str, _ShareGroup] = {}

    def __iter__(self) -> Iterator[LedSharePartition]:
        for group in self._groups.values():
            yield from group.partitions.values()

    # Looking up

    def find(self, group_id: str, partition_id: PartitionId) -> LedSharePartition | None:
        """Give a share partition that is loaded, or being loaded."""
        group = self._groups.get(group_id)
        return None if group is None else group.partitions.get(partition_id)

    def lead(self, group_id: str, partition_id: PartitionId) -> LedSharePartition | None:
        """Give a share partition, and load it if need be; None if this node does not lead it."""
        group = self._groups.get(group_id)
        if group is not None and (found := group.partitions.get(partition_id)) is not None:
            return found
        topic_id, index = partition_id
        partition = self._replicas.find_by_id(topic_id, index)
        if partition is None or not partition.is_leader:
            return None
        if group is None:
            configs = ShareGroupConfigs(group_id, self._settings, self._image_of)
            group = self._groups[group_id] = _ShareGroup(group_id, configs, self)
        key = SharePartitionKey(group_id, topic_id, PartitionIndex(index))
        led = LedSharePartition(key, partition, group.configs, self, group.breaker)
        group.partitions[partition_id] = led
        led.load()
        return led

    def settings_of(self, group_id: str) -> ShareGroupSettings:
        group = self._groups.get(group_id)
        if group is not None:
            return group.configs.now()
        return ShareGroupConfigs(group_id, self._settings, self._image_of).now()

    def breaker_of(self, group_id: str) -> GroupBreaker | None:
        """Give the circuit breaker of a group; None if nothing of it is led here."""
        group = self._groups.get(group_id)
        return None if group is None else group.breaker

    def breakers(self) -> Iterator[GroupBreaker]:
        """Give the circuit breakers of all groups that something is led of."""
        for group in self._groups.values():
            yield group.breaker

    def has_group_read(self, group_id: str, topic: str) -> bool:
        """Whether a group reads partitions of a topic that are led here."""
        group = self._groups.get(group_id)
        return group is not None and any(
            led.partition.topic == topic for led in group.partitions.values()
        )

    # Sessions

    def begin_session(
        self, group_id: str, member_id: str, partitions: Sequence[PartitionId], peer: Peer
    ) -> ShareSession:
        """Begin a session that ends with its connection; KafkaError if there are too many."""
        session = self.sessions.begin(group_id, member_id, partitions)
        session.client_host = peer.address.rpartition(":")[0]

        def on_disconnected() -> None:
            self.end_session(session)

        peer.on_close.add(on_disconnected)
        session.on_ended = lambda: peer.on_close.discard(on_disconnected)
        return session

    def end_session(self, session: ShareSession) -> None:
        """Forget a session, and let others have what its member holds."""
        self.sessions.end(session)
        group = self._groups.get(session.group_id)
        if group is not None:
            for led in tuple(group.partitions.values()):
                led.release_member(session.member_id)

    # What changes

    def forget_group(self, group_id: str) -> None:
        """Read a group's states anew when they are next used: they were changed elsewhere."""
        group = self._groups.get(group_id)
        if group is not None:
            error = KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"the offsets of group {group_id!r} were changed"
            )
            for led in tuple(group.partitions.values()):
                self.drop(led, error)

    def drop(self, led: LedSharePartition, error: KafkaError) -> None:
        """Serve a share partition no more; the next who asks for it loads another."""
        group = self._groups.get(led.key.group_id)
        if group is not None and group.partitions.get(led.id) is led:
            del group.partitions[led.id]
            if not group.partitions:
                group.breaker.disarm()
                del self._groups[led.key.group_id]
        led.end(error)

    def on_leading(self, partition: Partition) -> None:
        self._drop_all(partition)  # those of the former epoch

    def on_following(self, partition: Partition) -> None:
        self._drop_all(partition)

    def on_stopped(self, partition: Partition, *, is_deleted: bool) -> None:
        self._drop_all(partition, is_deleted=is_deleted)

    def _drop_all(self, partition: Partition, *, is_deleted: bool = False) -> None:
        if not self._groups:
            return
        code = ErrorCode.UNKNOWN_TOPIC_ID if is_deleted else ErrorCode.NOT_LEADER_OR_FOLLOWER
        error = KafkaError(code, f"{partition.name} is no longer led here")
        partition_id = partition.topic_id, int(partition.index)
        for group in tuple(self._groups.values()):
            if (led := group.partitions.get(partition_id)) is not None:
                self.drop(led, error)

    def rearm(self) -> None:
        """Look at the clock again: it was moved."""
        for led in tuple(self):
            led.rearm()
        for group in tuple(self._groups.values()):
            group.breaker.rearm()

    def close(self) -> None:
        """Do nothing more by itself."""
        self.dead_letters.close()
        for group in self._groups.values():
            group.breaker.disarm()
        for led in tuple(self):
            led.is_active = False
            led.disarm()
