"""A node that follows, and leaders for it that answer from logs of their own, in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from operator import attrgetter
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from msgspec.structs import replace

from headrace.config import LiveSettings, load_settings
from headrace.errors import ErrorCode
from headrace.ids import BrokerId, LeaderEpoch, PartitionIndex, TopicId, TopicName
from headrace.log.errors import LogError
from headrace.log.folder import LogFolder
from headrace.log.log import Log
from headrace.log.lookup import list_offset
from headrace.log.settings import LogSettings
from headrace.loop.clock import Clock
from headrace.loop.counters import Counters
from headrace.metadata.image import Image
from headrace.metadata.state import Partition as PartitionRow
from headrace.replication.fetchers import Fetchers
from headrace.replication.partition import Partition
from headrace.replication.remote_log import NoTier, RemoteLog
from headrace.replication.throttles import Throttle
from headrace.testing.disk import SimulatedDisk
from headrace.testing.virtual_loop import VirtualLoop
from headrace.wire.messages.fetch_request import FetchPartition, FetchRequest
from headrace.wire.messages.fetch_response import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from headrace.wire.messages.list_offsets_request import ListOffsetsRequest
from headrace.wire.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from headrace.wire.messages.offset_for_leader_epoch_request import OffsetForLeaderEpochRequest
from headrace.wire.messages.offset_for_leader_epoch_response import (
    EpochEndOffset as EpochEnd,
)
from headrace.wire.messages.offset_for_leader_epoch_response import (
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from tests.unit.log.logs import append, open_simulated
from tests.unit.replication.test_partition import Around

ME, A, B = BrokerId(1), BrokerId(2), BrokerId(3)
TOPIC, TOPIC_ID = TopicName("orders"), TopicId(bytes(range(16)))
DEADLINE_SECONDS = 120

T = TypeVar("T")


class Loop(VirtualLoop):
    """A virtual loop whose threads take a millisecond, or as long as a test wants."""

    def __init__(self) -> None:
        super().__init__()
        self.gate: asyncio.Event | None = None
        """Threads wait for it, if there is one."""

    def run_in_executor(  # type: ignore[override]
        self, executor: object, work: Callable[..., T], *arguments: Any
    ) -> "asyncio.Future[T]":
        async def run() -> T:
            await asyncio.sleep(0.001)
            if self.gate is not None:
                await self.gate.wait()
            return work(*arguments)

        return self.create_task(run())


def in_virtual_time(main: Coroutine[Any, Any, T]) -> T:
    async def limited() -> T:
        async with asyncio.timeout(DEADLINE_SECONDS):
            return await main

    with asyncio.Runner(loop_factory=Loop) as runner:
        return runner.run(limited())


async def until(condition: Callable[[], object], seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


class Led:
    """A partition as its leader has it."""

    def __init__(self, settings: LogSettings | None = None) -> None:
        self.log = open_simulated(SimulatedDisk(), settings)
        self.leader_epoch = 0
        self.high_watermark = 0
        self.error = ErrorCode.NONE
        self.fetched_offset = -1
        self.told_high_watermark = -1

    def begin(self, leader_epoch: int) -> None:
        """Lead in an epoch from now on."""
        self.leader_epoch = leader_epoch
        self.log.begin_leader_epoch(leader_epoch)

    def append(self, *values: bytes, leader_epoch: int | None = None) -> None:
        for value in values:
            append(self.log, value, leader_epoch=leader_epoch or self.leader_epoch)
        self.high_watermark = self.log.end_offset
        self.log.advance_high_watermark(self.log.end_offset)

    def row(self, asked: FetchPartition) -> PartitionData | None:
        """Answer a fetch as Kafka does; None if there is nothing to say."""
        row = PartitionData(partition_index=asked.partition, high_watermark=self.high_watermark)
        row.log_start_offset = self.log.start_offset
        row.error_code = self.error or self._check_epoch(asked)
        if row.error_code:
            return row
        self.fetched_offset = asked.fetch_offset
        if asked.last_fetched_epoch >= 0:
            end = self.log.epochs.end_offset_for(asked.last_fetched_epoch, self.log.end_offset)
            if end.end_offset < 0:
                row.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
                return row
            if end.epoch < asked.last_fetched_epoch or end.end_offset < asked.fetch_offset:
                row.diverging_epoch = EpochEndOffset(epoch=end.epoch, end_offset=end.end_offset)
                return row
        try:
            self.log.check_local(asked.fetch_offset)
        except LogError as error:
            row.error_code = error.code
            return row
        row.records = self.log.read(
            asked.fetch_offset,
            asked.partition_max_bytes,
            up_to=self.log.end_offset,
            may_block=True,
        )
        if not row.records and self.told_high_watermark == self.high_watermark:
            return None
        self.told_high_watermark = self.high_watermark
        return row

    def _check_epoch(self, asked: FetchPartition) -> ErrorCode:
        if asked.current_leader_epoch == self.leader_epoch:
            return ErrorCode.NONE
        is_old = asked.current_leader_epoch < self.leader_epoch
        return ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH


class Leader:
    """A broker that leads partitions, with one session."""

    def __init__(self) -> None:
        self.led: dict[int, Led] = {}
        self.requests: list[Any] = []
        self.positions: dict[int, FetchPartition] = {}
        self.session_id, self.session_epoch = 0, 0
        self.grants_sessions = True
        self.failures: list[Exception] = []
        """What the next requests fail with."""
        self.before_answer: list[Callable[[], Awaitable[None]]] = []
        """Called, each once, when a response with rows is ready."""

    def lead(self, index: int = 0, settings: LogSettings | None = None) -> Led:
        led = self.led[index] = Led(settings)
        return led

    async def answer(self, request: Any) -> Any:
        self.requests.append(request)
        if self.failures:
            raise self.failures.pop(0)
        if isinstance(request, ListOffsetsRequest):
            return self._list_offsets(request)
        if isinstance(request, OffsetForLeaderEpochRequest):
            return self._find_epoch(request)
        assert isinstance(request, FetchRequest)
        return await self._fetch(request)

    async def _fetch(self, request: FetchRequest) -> FetchResponse:
        if request.session_epoch == 0:
            self.positions = {}
            self.session_id = request.session_id + 1 if self.grants_sessions else 0
            self.session_epoch = 1
        elif (request.session_id, request.session_epoch) != (self.session_id, self.session_epoch):
            return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        else:
            self.session_epoch += 1
        for topic in request.topics:
            for asked in topic.partitions:
                self.positions[asked.partition] = asked
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                self.positions.pop(index, None)
        rows: list[PartitionData] = []
        waited_ms = 0
        while not rows:
            found = (self.led[index].row(asked) for index, asked in self.positions.items())
            rows = [row for row in found if row is not None]
            if waited_ms >= request.max_wait_ms:
                break
            if not rows:
                await asyncio.sleep(0.01)
                waited_ms += 10
        for row in filter(attrgetter("error_code"), rows):  # it leaves the session with its error
            del self.positions[row.partition_index]
        if rows and self.before_answer:
            await self.before_answer.pop(0)()
        topics = [FetchableTopicResponse(topic_id=TOPIC_ID, partitions=rows)] if rows else []
        return FetchResponse(session_id=self.session_id, responses=topics)

    def _list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        rows = []
        for asked in request.topics[0].partitions:
            log = self.led[asked.partition_index].log
            _, offset, epoch = list_offset(log, asked.timestamp, log.end_offset)
            rows.append(
                ListOffsetsPartitionResponse(
                    partition_index=asked.partition_index, offset=offset, leader_epoch=epoch
                )
            )
        return ListOffsetsResponse(
            topics=[ListOffsetsTopicResponse(name=request.topics[0].name, partitions=rows)]
        )

    def _find_epoch(self, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        topic = request.topics[0]
        asked = topic.partitions[0]
        log = self.led[asked.partition].log
        epoch, end = log.epochs.end_offset_for(asked.leader_epoch, log.end_offset)
        row = EpochEnd(partition=asked.partition, leader_epoch=epoch, end_offset=end)
        return OffsetForLeaderEpochResponse(
            topics=[OffsetForLeaderTopicResult(topic=topic.topic, partitions=[row])]
        )

    @property
    def fetches(self) -> list[FetchRequest]:
        return [each for each in self.requests if isinstance(each, FetchRequest)]

    def asked_times(self) -> list[int]:
        """The timestamps that ListOffsets asked for: -1 latest, -2 earliest."""
        return [
            each.topics[0].partitions[0].timestamp
            for each in self.requests
            if isinstance(each, ListOffsetsRequest)
        ]


class Peers:
    """Lines to leaders."""

    def __init__(self) -> None:
        self.leaders: dict[BrokerId, Leader] = {A: Leader(), B: Leader()}
        self.lines: dict[str, dict[str, Any]] = {}

    def line(self, purpose: str, **options: Any) -> "Peers":
        self.lines.setdefault(purpose, options)
        return self

    async def send(self, node_id: BrokerId, request: Any, *, version_min: int = 0) -> Any:
        return await self.leaders[node_id].answer(request)


class Node:
    """This node, with its logs and its fetchers."""

    def __init__(
        self, settings: LogSettings | None = None, remote: RemoteLog | None = None, **overrides: str
    ) -> None:
        self.disk = SimulatedDisk()
        self.log_settings = settings or LogSettings()
        self.folder = LogFolder.open(
            self.disk, lambda _: self.log_settings, cluster_id="c", node_id=ME
        )
        names = {name.replace("_", "."): value for name, value in overrides.items()}
        self.settings = LiveSettings(load_settings(environ={}, overrides=names))
        self.peers = Peers()
        self.counters = Counters()
        image = SimpleNamespace(broker=lambda _: SimpleNamespace(broker_epoch=77))
        self.throttle_rate = 2**63 - 1
        self.throttle = Throttle(
            lambda: self.throttle_rate,
            lambda: int(asyncio.get_running_loop().time() * 1000),
            window_count=11,
            window_ms=1000,
        )
        self.fetchers = Fetchers(
            ME,
            self.settings,
            lambda: cast(Image, image),
            cast(Any, self.peers),
            Clock(),
            folder=self.folder,
            counters=self.counters,
            remote=remote or NoTier(),
            throttle=self.throttle,
        )
        self.rows: dict[int, PartitionRow] = {}
        self.partitions: dict[int, Partition] = {}

    @property
    def leader(self) -> Leader:
        return self.peers.leaders[A]

    def partition(self, index: int = 0) -> Partition:
        found = self.partitions.get(index)
        if found is None:
            log = self.folder.create(TOPIC, PartitionIndex(index), TOPIC_ID)
            found = self.partitions[index] = Partition(
                TOPIC,
                PartitionIndex(index),
                TOPIC_ID,
                log,
                self.counters.topic(TOPIC),
                around=Around(),
            )
            self.rows[index] = PartitionRow((ME, A, B), (ME, A, B), ME, 0, LeaderEpoch(-1))
        return found

    def log(self, index: int = 0) -> Log:
        return self.partition(index).log

    def follow(self, leader: BrokerId = A, index: int = 0, epoch: int | None = None) -> Partition:
        """Follow a leader in the epoch that it has."""
        partition = self.partition(index)
        if epoch is None:
            epoch = self.peers.leaders[leader].led[index].leader_epoch
        self._become(index, leader, epoch)
        self.fetchers.on_following(partition)
        return partition

    def lead(self, epoch: int, index: int = 0) -> Partition:
        partition = self.partition(index)
        self._become(index, ME, epoch)
        self.fetchers.on_leading(partition)
        return partition

    def _become(self, index: int, leader: BrokerId, epoch: int) -> None:
        row = replace(self.rows[index], leader=leader, leader_epoch=LeaderEpoch(epoch))
        self.rows[index] = row
        self.partitions[index].become(row, ME)
