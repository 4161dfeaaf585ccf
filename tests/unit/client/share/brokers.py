"""A cluster that does what a test says, on virtual time and without a socket."""

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import wraps
from typing import Any, TypeVar

from headrace.client.connection import Connection
from headrace.client.errors import AuthenticationFailed
from headrace.client.share.consumer import ShareConsumer
from headrace.ids import TopicId
from headrace.records.builder import BatchBuilder
from headrace.records.compression import Compression
from headrace.testing.virtual_loop import VirtualLoop
from headrace.wire import ApiKey, FrameReader, read_request, response_parts
from headrace.wire.messages import share_acknowledge_response as acknowledge
from headrace.wire.messages import share_fetch_response as fetch
from headrace.wire.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from headrace.wire.messages.find_coordinator_response import Coordinator, FindCoordinatorResponse
from headrace.wire.messages.metadata_request import MetadataRequest
from headrace.wire.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from headrace.wire.messages.share_acknowledge_request import ShareAcknowledgeRequest
from headrace.wire.messages.share_fetch_request import ShareFetchRequest
from headrace.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from headrace.wire.messages.share_group_heartbeat_response import (
    Assignment,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from headrace.wire.schema import Buffer, Message

M = TypeVar("M", bound=Message)
Answer = Message | Callable[[Any], Message] | None
"""What a node answers; None: it hangs up."""

INTERVAL_MS = 1000
LOCK_MS = 30_000
SILENCE_SECONDS = 1e6
LATE_SECONDS = 3
VERSIONS = {
    ApiKey.API_VERSIONS: (0, 4),
    ApiKey.METADATA: (12, 12),
    ApiKey.FIND_COORDINATOR: (4, 4),
    ApiKey.SHARE_GROUP_HEARTBEAT: (1, 1),
    ApiKey.SHARE_FETCH: (1, 2),
    ApiKey.SHARE_ACKNOWLEDGE: (1, 2),
}


def topic_id(name: str) -> TopicId:
    return TopicId(name.encode().ljust(16, b"."))


class Brokers:
    """Nodes 1, 2, ... that lead the partitions which the test gives them."""

    def __init__(self, nodes: int = 1) -> None:
        self.nodes = list(range(1, nodes + 1))
        self.coordinator_id = 1
        self.leaders: dict[tuple[str, int], int] = {}
        self.assigned: list[tuple[str, int]] | None = None
        """What heartbeats assign; everything if it is None."""
        self.silent: set[int] = set()
        """Nodes that do not answer a ShareFetch."""
        self.late: set[int] = set()
        """Nodes that take a moment too long for each ShareFetch."""
        self.versions = dict(VERSIONS)
        self.requests: list[tuple[int, Message]] = []
        """Who was asked what, in the order of the requests."""
        self._scripts: dict[tuple[int, type], deque[Answer]] = defaultdict(deque)
        self._peers: list[_Peer] = []

    @property
    def bootstrap(self) -> str:
        return "node:1"

    @property
    def connections(self) -> int:
        """How many connections there are."""
        return sum(not peer.is_gone for peer in self._peers)

    def then(self, node_id: int, kind: type[Message], *answers: Answer) -> None:
        """Say what a node answers to the next requests of a kind."""
        self._scripts[node_id, kind].extend(answers)

    def asked(self, kind: type[M], node_id: int | None = None) -> list[M]:
        """Give the requests of a kind: to one node, or to any."""
        return [
            body
            for asked_id, body in self.requests
            if isinstance(body, kind) and node_id in (None, asked_id)
        ]

    def hang_up(self, node_id: int) -> None:
        """Break every connection to a node."""
        for peer in self._peers:
            if peer.node_id == node_id:
                peer.hang_up()

    def fail(self, node_id: int, error: AuthenticationFailed) -> None:
        """Have every connection to a node find out that it is refused."""
        for peer in self._peers:
            if peer.node_id == node_id and isinstance(peer.protocol, Connection):
                peer.protocol.fail(error)

    def connect(self, protocol: asyncio.BufferedProtocol, port: int) -> "_Peer":
        if port not in self.nodes:
            raise ConnectionRefusedError
        peer = _Peer(self, port, protocol)
        self._peers.append(peer)
        return peer

    def answer(self, node_id: int, body: Message) -> tuple[Answer, float]:
        """Give the answer to a request, and after how many seconds it comes."""
        self.requests.append((node_id, body))
        script = self._scripts[node_id, type(body)]
        if script:
            answer = script.popleft()
            is_late = isinstance(body, ShareFetchRequest) and node_id in self.late
            answer = answer(body) if callable(answer) else answer
            return answer, LATE_SECONDS if is_late else 0
        if isinstance(body, ShareFetchRequest):
            seconds = SILENCE_SECONDS if node_id in self.silent else body.max_wait_ms / 1000
            return fetch.ShareFetchResponse(
                acquisition_lock_timeout_ms=LOCK_MS, responses=_confirmed(body)
            ), seconds
        return self._standard(body), 0

    def _standard(self, body: Message) -> Message:
        if isinstance(body, MetadataRequest):
            return self._metadata(body)
        if isinstance(body, ShareAcknowledgeRequest):
            return confirmed(body)
        if isinstance(body, ShareGroupHeartbeatRequest):
            return self.placed(body)
        if body.API_KEY == ApiKey.FIND_COORDINATOR:
            row = Coordinator(node_id=self.coordinator_id, host="node", port=self.coordinator_id)
            return FindCoordinatorResponse(coordinators=[row])
        assert body.API_KEY == ApiKey.API_VERSIONS, body
        rows = [
            ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in self.versions.items()
        ]
        return ApiVersionsResponse(api_keys=rows)

    def placed(self, body: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
        """Answer a heartbeat: the assignment, and an epoch that says it is in."""
        partitions: dict[str, list[int]] = defaultdict(list)
        for topic, index in self.leaders if self.assigned is None else self.assigned:
            partitions[topic].append(index)
        rows = [TopicPartitions(topic_id=topic_id(n), partitions=p) for n, p in partitions.items()]
        return ShareGroupHeartbeatResponse(
            member_id=body.member_id,
            member_epoch=max(1, body.member_epoch),
            heartbeat_interval_ms=INTERVAL_MS,
            assignment=Assignment(topic_partitions=rows),
        )

    def _metadata(self, body: MetadataRequest) -> MetadataResponse:
        topics: dict[str, list[MetadataResponsePartition]] = defaultdict(list)
        wanted = {row.name for row in body.topics or ()}
        for (topic, index), leader_id in self.leaders.items():
            if topic in wanted:
                topics[topic].append(
                    MetadataResponsePartition(
                        partition_index=index, leader_id=leader_id, leader_epoch=0
                    )
                )
        unknown = [
            MetadataResponseTopic(name=name, error_code=3) for name in wanted - topics.keys()
        ]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=n, host="node", port=n) for n in self.nodes],
            topics=[
                *unknown,
                *(
                    MetadataResponseTopic(name=name, topic_id=topic_id(name), partitions=rows)
                    for name, rows in topics.items()
                ),
            ],
        )


class _Peer(asyncio.Transport):
    """A node's end of a connection."""

    def __init__(self, brokers: Brokers, node_id: int, protocol: asyncio.BufferedProtocol) -> None:
        super().__init__()
        self.node_id = node_id
        self._brokers = brokers
        self.protocol = protocol
        self._reader = FrameReader()
        self._requests: deque[bytes] = deque()
        self._is_busy = False
        self.is_gone = False
        protocol.connection_made(self)

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        self._requests.extend(bytes(frame) for frame in self._reader.feed(b"".join(list_of_data)))
        self._handle_next()

    def _handle_next(self) -> None:
        """Handle requests one after the other: what follows a fetch that waits, waits too."""
        if self._is_busy or self.is_gone or not self._requests:
            return
        loop = asyncio.get_running_loop()
        header, body = read_request(self._requests.popleft())
        answer, seconds = self._brokers.answer(self.node_id, body)
        if answer is None:
            loop.call_soon(self.hang_up)
            return
        assert isinstance(answer, Message)
        key, version = header.request_api_key, header.request_api_version
        parts = response_parts(key, version, header.correlation_id, answer)
        self._is_busy = True
        loop.call_later(seconds, self._answer, b"".join(parts))

    def _answer(self, data: bytes) -> None:
        self._is_busy = False
        self._send(data)
        self._handle_next()

    def hang_up(self) -> None:
        if not self.is_gone:
            self.is_gone = True
            self.protocol.connection_lost(None)

    def abort(self) -> None:
        self.is_gone = True

    def _send(self, data: bytes) -> None:
        if self.is_gone:
            return
        while data:
            room = memoryview(self.protocol.get_buffer(-1))[: len(data)]
            room[:] = data[: len(room)]
            self.protocol.buffer_updated(len(room))
            data = data[len(room) :]


class _Loop(VirtualLoop):
    """A loop whose only network is the brokers of a test."""

    def __init__(self, brokers: Brokers) -> None:
        super().__init__()
        self._brokers = brokers

    async def create_connection(self, protocol_factory: Any, *where: Any, **more: Any) -> Any:
        _, port = where
        protocol = protocol_factory()
        return self._brokers.connect(protocol, port), protocol


def on_brokers(
    nodes: int = 1,
) -> Callable[[Callable[[Brokers], Coroutine[Any, Any, None]]], Callable[[], None]]:
    """Run a test in a loop of its own with that many nodes."""

    def decorate(test: Callable[[Brokers], Coroutine[Any, Any, None]]) -> Callable[[], None]:
        @wraps(test)
        def run() -> None:
            brokers = Brokers(nodes)
            with asyncio.Runner(loop_factory=lambda: _Loop(brokers)) as runner:
                runner.run(test(brokers))

        del run.__wrapped__  # pytest would ask for its parameters
        return run

    return decorate


async def until(is_so: Callable[[], bool]) -> None:
    """Let virtual time pass until something is so."""
    async with asyncio.timeout(600):
        while not is_so():
            await asyncio.sleep(0.01)


def batch(base_offset: int, *values: bytes) -> bytes:
    builder = BatchBuilder(Compression.NONE)
    for value in values:
        builder.append(1000, None, value)
    return bytes(builder.build(base_offset=base_offset))


def acquired(
    topic: str,
    index: int,
    records: bytes,
    *ranges: tuple[int, int, int],
    lock_ms: int = LOCK_MS,
) -> Callable[[ShareFetchRequest], Message]:
    """Answer a fetch with records, of which some are acquired."""
    row = fetch.PartitionData(
        partition_index=index,
        records=records,
        acquired_records=[
            fetch.AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
            for first, last, count in ranges
        ],
    )

    def answer(body: ShareFetchRequest) -> Message:
        rows = [each for each in _confirmed(body) if each.topic_id != topic_id(topic)]
        rows.append(fetch.ShareFetchableTopicResponse(topic_id=topic_id(topic), partitions=[row]))
        return fetch.ShareFetchResponse(acquisition_lock_timeout_ms=lock_ms, responses=rows)

    return answer


def refused(
    topic: str, index: int, code: int, leader: tuple[int, int] = (-1, -1), nodes: Sequence[int] = ()
) -> fetch.ShareFetchResponse:
    """Answer a fetch with an error of one partition, and maybe with who leads it."""
    row = fetch.PartitionData(
        partition_index=index,
        error_code=code,
        current_leader=fetch.LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1]),
        records=b"",
    )
    return fetch.ShareFetchResponse(
        responses=[fetch.ShareFetchableTopicResponse(topic_id=topic_id(topic), partitions=[row])],
        node_endpoints=[fetch.NodeEndpoint(node_id=n, host="node", port=n) for n in nodes],
    )


def confirmed(body: ShareAcknowledgeRequest, code: int = 0) -> Message:
    """Answer an acknowledgement, with the same for every partition."""
    return acknowledge.ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=LOCK_MS,
        responses=[
            acknowledge.ShareAcknowledgeTopicResponse(
                topic_id=topic.topic_id,
                partitions=[
                    acknowledge.PartitionData(partition_index=row.partition_index, error_code=code)
                    for row in topic.partitions
                ],
            )
            for topic in body.topics
        ],
    )


def _confirmed(body: ShareFetchRequest) -> list[fetch.ShareFetchableTopicResponse]:
    return [
        fetch.ShareFetchableTopicResponse(
            topic_id=topic.topic_id,
            partitions=[
                fetch.PartitionData(partition_index=row.partition_index, records=b"")
                for row in topic.partitions
            ],
        )
        for topic in body.topics
    ]


def said(
    body: ShareFetchRequest | ShareAcknowledgeRequest,
) -> list[tuple[int, int, int, list[int]]]:
    """Give what a request acknowledges: partition, first, last, types."""
    return [
        (row.partition_index, each.first_offset, each.last_offset, list(each.acknowledge_types))
        for topic in body.topics
        for row in topic.partitions
        for each in row.acknowledgement_batches
    ]


def consumer(brokers: Brokers, *topics: str, **options: Any) -> ShareConsumer:
    return ShareConsumer(brokers.bootstrap, "group", topics or ("orders",), **options)


class Log(logging.Handler):
    """What is logged at WARNING and above; `caplog` does not reach into a loop of its own."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def __enter__(self) -> "Log":
        logging.getLogger("headrace.client").addHandler(self)
        return self

    def __exit__(self, *exception: object) -> None:
        logging.getLogger("headrace.client").removeHandler(self)

    def has(self, *parts: str) -> bool:
        """Whether one line has all of these in it."""
        return any(all(part in line for part in parts) for line in self.lines)
