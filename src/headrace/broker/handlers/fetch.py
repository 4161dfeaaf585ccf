"""Fetch, versions 4 to 18.

KIP-74 (bytes over all partitions; the first batch is whole however large), KIP-98 (isolation
levels), KIP-227 (sessions), KIP-320 (leader epochs), KIP-516 (topic ids from 13), KIP-595
(diverging epochs), KIP-951 (the new leader in the answer). What is asked for is read at once; if it
is less than min_bytes, the fetch waits at its partitions and is read again when they have grown
enough, or when its time is over. Records that are not in the page cache are brought there by a
thread.

Left out: replicas do not fetch this way, whoever says that it is one is told that it is not, and
no other replica is recommended (KIP-392).
"""

import asyncio
from collections.abc import Collection, Iterable
from typing import Final

from headrace.broker.broker import Broker
from headrace.broker.fetch_reading import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    UNKNOWN,
    FetchReader,
    Read,
)
from headrace.broker.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchSession,
    WantedPartition,
    wanted_partitions,
)
from headrace.broker.leaders import endpoints
from headrace.broker.partition import Partition
from headrace.broker.request import LATER, Answer, Handler, Request
from headrace.config import COLD_READ_ATTEMPTS_MAX
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import ZERO_TOPIC_ID
from headrace.wire import ApiKey
from headrace.wire.messages.fetch_request import FetchRequest
from headrace.wire.messages.fetch_response import (
    FetchableTopicResponse,
    FetchResponse,
    NodeEndpoint,
    PartitionData,
)

FIRST_WITH_SESSIONS: Final = 7


def handle_fetch(broker: Broker, request: Request) -> Answer:
    body: FetchRequest = request.body
    if body.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"there is no isolation level {body.isolation_level}"
        )
    session: FetchSession | None = None
    sessions = broker.fetch_sessions
    is_incremental = False
    if request.version < FIRST_WITH_SESSIONS:
        wanted: Collection[WantedPartition] = wanted_partitions(body.topics).values()
    elif body.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        asked = wanted_partitions(body.topics)
        wanted = asked.values()
        if body.session_id != NO_SESSION:
            sessions.end(body.session_id)
        if body.session_epoch == INITIAL_EPOCH:
            is_privileged = body.replica_id >= 0 or body.replica_state.replica_id >= 0
            session = sessions.begin(
                asked, request.version, broker.clock.now_ms(), is_privileged=is_privileged
            )
    else:
        is_incremental = True
        try:
            session = sessions.resume(body, request.version, broker.clock.now_ms())
        except KafkaError as error:
            return FetchResponse(error_code=error.code)
        wanted = session.partitions.values()
    return Fetch(broker, request, wanted, session, is_incremental=is_incremental).begin()


class Fetch:
    """One fetch, which may wait."""

    __slots__ = (
        "_broker",
        "_is_incremental",
        "_is_retry_due",
        "_missing_bytes",
        "_reader",
        "_request",
        "_session",
        "_timer",
        "_waits_at",
        "_wanted",
    )

    def __init__(
        self,
        broker: Broker,
        request: Request,
        wanted: Collection[WantedPartition],
        session: FetchSession | None,
        *,
        is_incremental: bool,
    ) -> None:
        body: FetchRequest = request.body
        self._broker = broker
        self._request = request
        self._wanted = wanted
        self._session = session
        self._is_incremental = is_incremental
        self._reader = FetchReader(broker, body, request.version)
        self._missing_bytes = 0
        self._is_retry_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._waits_at: list[Partition] = []

    def begin(self) -> Answer:
        """Answer if there is enough, else wait."""
        read = self._reader.read(self._wanted)
        if read.cold is not None:
            self._start_reading_cold(read)
            return LATER
        if self._is_enough(read):
            return self._response(read)
        self._wait(read)
        return LATER

    # Waiting

    def on_more(self, byte_count: int) -> None:
        self._missing_bytes -= byte_count
        if self._missing_bytes <= 0:
            self.on_change()

    def on_change(self) -> None:
        # Whatever else is appended in this turn of the loop belongs to the same answer.
        if not self._is_retry_due:
            self._is_retry_due = True
            asyncio.get_running_loop().call_soon(self._retry)

    def _is_enough(self, read: Read) -> bool:
        body: FetchRequest = self._request.body
        return (
            read.byte_count >= body.min_bytes
            or read.is_urgent
            or body.max_wait_ms <= 0
            or not self._wanted
        )

    def _wait(self, read: Read) -> None:
        body: FetchRequest = self._request.body
        self._missing_bytes = body.min_bytes - read.byte_count
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(body.max_wait_ms / 1000, self._time_out)
            self._request.peer.on_close.add(self._stop_waiting)
            for wanted in self._wanted:
                partition = self._reader.find(wanted)
                if partition is not None:
                    self._waits_at.append(partition)
                    partition.fetch_waiters.add(self)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._request.peer.on_close.discard(self._stop_waiting)
        for partition in self._waits_at:
            partition.fetch_waiters.discard(self)
        self._waits_at.clear()

    def _retry(self) -> None:
        self._is_retry_due = False
        if self._timer is None:
            return  # answered, or the client is gone
        self._look_again(is_last_look=False)

    def _time_out(self) -> None:
        self._look_again(is_last_look=True)

    def _look_again(self, *, is_last_look: bool) -> None:
        try:
            read = self._reader.read(self._wanted)
            if read.cold is not None:
                self._stop_waiting()
                self._start_reading_cold(read)
            elif is_last_look or self._is_enough(read):
                self._stop_waiting()
                self._request.answer(self._response(read))
            else:
                self._wait(read)
        except Exception as error:  # nobody above would answer
            self._stop_waiting()
            self._request.peer.on_failed(self._request, error)

    def _start_reading_cold(self, read: Read) -> None:
        task = asyncio.get_running_loop().create_task(self._read_cold(read))
        self._broker.cold_fetches.add(task)
        task.add_done_callback(self._broker.cold_fetches.discard)

    async def _read_cold(self, read: Read) -> None:
        """Bring what is wanted into the page cache, and answer from there."""
        try:
            for _ in range(COLD_READ_ATTEMPTS_MAX.default * max(len(self._wanted), 1)):
                if read.cold is None:
                    break
                wanted, partition = read.cold
                await partition.log.warm(wanted.fetch_offset, wanted.max_bytes)
                read = self._reader.read(self._wanted)
            if read.cold is not None:
                read = self._reader.read(self._wanted, may_block=True)
            if not self._request.peer.is_closed:
                if self._is_enough(read):
                    self._request.answer(self._response(read))
                else:
                    self._wait(read)
        except Exception as error:  # nobody above would answer
            self._request.peer.on_failed(self._request, error)

    # Answering

    def _response(self, read: Read) -> FetchResponse:
        session, rows = self._session, read.rows
        if session is not None:
            rows = self._news(session, rows)
        response = FetchResponse(
            session_id=NO_SESSION if session is None else session.id, responses=_by_topic(rows)
        )
        for wanted, row in rows:
            if row.records:
                partition = self._reader.find(wanted)
                if partition is not None:
                    partition.counters.bytes_out += len(row.records)
                    partition.counters.fetch_requests += 1
        leaders = {row.current_leader.leader_id for _, row in rows} - {UNKNOWN}
        if leaders and not self._reader.is_stranger:  # replicas know where the others are
            response.node_endpoints = [
                NodeEndpoint(**found._asdict())
                for found in endpoints(self._broker.image, leaders, self._request.peer.listener)
            ]
        return response

    def _news(
        self, session: FetchSession, rows: list[tuple[WantedPartition, PartitionData]]
    ) -> list[tuple[WantedPartition, PartitionData]]:
        """Leave out what an incremental fetch would hear again; remember what is told."""
        news = []
        for wanted, row in rows:
            is_news = (
                not self._is_incremental
                or bool(row.records)
                or row.error_code != 0
                or row.high_watermark != wanted.high_watermark
                or row.log_start_offset != wanted.log_start_offset
                or row.diverging_epoch.end_offset >= 0
            )
            # After an error the client has to hear the rest again.
            wanted.high_watermark = UNKNOWN if row.error_code else row.high_watermark
            wanted.log_start_offset = row.log_start_offset
            if is_news:
                news.append((wanted, row))
        for wanted, row in news:
            if row.records:
                session.move_back(wanted)
        return news


def _by_topic(
    rows: Iterable[tuple[WantedPartition, PartitionData]],
) -> list[FetchableTopicResponse]:
    """Put neighbours of one topic together."""
    topics: list[FetchableTopicResponse] = []
    current: FetchableTopicResponse | None = None
    for wanted, row in rows:
        if (
            current is None
            or current.topic_id != wanted.topic_id
            or (wanted.topic_id == ZERO_TOPIC_ID and current.topic != wanted.topic)
        ):
            current = FetchableTopicResponse(
                topic=wanted.topic, topic_id=wanted.topic_id, partitions=[]
            )
            topics.append(current)
        current.partitions.append(row)
    return topics


HANDLERS: Final[dict[ApiKey, Handler]] = {ApiKey.FETCH: handle_fetch}
