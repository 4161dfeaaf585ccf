"""Fetch, versions 4 to 18.

KIP-74 (bytes over all partitions; the first batch is whole however large), KIP-98 (isolation
levels), KIP-227 (sessions), KIP-320 (leader epochs), KIP-516 (topic ids from 13), KIP-595
(diverging epochs), KIP-951 (the new leader in the answer). What is asked for is read at once, or in
several turns of the loop if it is much; if it is less than min_bytes, the fetch waits at its
partitions. Those that have grown are read again, when they have grown enough or when the time is
over. Records that are not in the page cache are read by threads, those of several partitions
together.

Left out: replicas do not fetch this way, whoever says that it is one is told that it is not, and
no other replica is recommended (KIP-392).
"""

import asyncio
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from headrace.broker.broker import Broker
from headrace.broker.fetch_reading import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    UNKNOWN,
    FetchReader,
    read_together,
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
from headrace.broker.turns import ANSWER_COST, TURN_COST_MAX
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
    """One fetch, which may wait.

    Each partition is read once, and again only if it changed while the fetch waited. What does not
    belong into one turn of the loop is read in the next ones.
    """

    __slots__ = (
        "_broker",
        "_changed",
        "_is_busy",
        "_is_last_look",
        "_missing_bytes",
        "_reader",
        "_request",
        "_session",
        "_source",
        "_timer",
        "_wanted",
        "_watched",
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
        self._reader = FetchReader(broker, body, request.version, is_incremental=is_incremental)
        self._is_last_look = body.max_wait_ms <= 0
        # What follows there is only from the first turn that did not answer, until there is an
        # answer: most fetches never come so far.
        self._timer: asyncio.TimerHandle | None
        self._source: Iterator[WantedPartition]
        """What is still to be read before the next decision."""
        self._is_busy: bool
        """Whether it is being read, or about to be."""
        self._missing_bytes: int
        self._watched: dict[Partition, WantedPartition]
        self._changed: dict[WantedPartition, None]
        """What is to be read with the next look."""

    def begin(self) -> Answer:
        """Answer if there is enough, else wait."""
        reader, source = self._reader, iter(self._wanted)
        if reader.read(source) and not reader.cold and self._is_enough():
            return self._response()
        self._source = iter(tuple(source))  # the session may change before it is read
        body: FetchRequest = self._request.body
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(body.max_wait_ms / 1000, self._on_time_out)
        self._is_busy = True
        self._missing_bytes = 0
        self._watched, self._changed = {}, {}
        self._request.peer.on_close.add(self._stop)
        self._go_on()
        return LATER

    # Waiting

    def on_more(self, partition: Partition, byte_count: int) -> None:
        self._changed[self._watched[partition]] = None
        self._missing_bytes -= byte_count
        if self._missing_bytes <= 0:
            self._look_soon()

    def on_change(self, partition: Partition) -> None:
        self._changed[self._watched[partition]] = None
        self._look_soon()

    def _on_time_out(self) -> None:
        self._is_last_look = True
        self._look_soon()

    def _look_soon(self) -> None:
        # Whatever else is appended in this turn of the loop belongs to the same answer.
        if not self._is_busy:
            self._is_busy = True
            self._broker.turns.soon(self._look)

    def _is_enough(self) -> bool:
        body: FetchRequest = self._request.body
        reader = self._reader
        return (
            reader.byte_count >= body.min_bytes
            or self._is_last_look
            or reader.is_urgent
            or not self._wanted
        )

    def _watch(self) -> None:
        """Be told of changes from now on: before anything else gets a turn."""
        found = self._reader.found
        for wanted, partition in found:
            self._watched[partition] = wanted
            partition.fetch_waiters.add(self)
        found.clear()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._request.peer.on_close.discard(self._stop)
        for partition in self._watched:
            partition.fetch_waiters.discard(self)
        self._watched.clear()

    # Reading again, and on

    def _look(self) -> int:
        """Read what has changed, and what was there but not enough."""
        if self._timer is None:
            return 1  # the client is gone
        self._source, self._changed = iter(self._changed), {}
        return self._read_on()

    def _read_on(self) -> int:
        """Read on where the last turn ended."""
        if self._timer is None:
            return 1
        try:
            self._reader.read(self._source)
            return self._go_on() + self._reader.cost
        except Exception as error:  # nobody above would answer
            self._stop()
            self._request.peer.on_failed(self._request, error)
            return ANSWER_COST

    def _go_on(self) -> int:
        """Decide what comes after one turn of reading; return what that cost."""
        reader = self._reader
        self._watch()
        if reader.cost >= TURN_COST_MAX:
            self._broker.turns.soon(self._read_on)
            return 1
        if reader.cold:
            task = asyncio.get_running_loop().create_task(self._read_cold())
            self._broker.cold_fetches.add(task)
            task.add_done_callback(self._broker.cold_fetches.discard)
            return 1
        if self._is_enough():
            self._stop()
            self._request.answer(self._response())
            return ANSWER_COST
        body: FetchRequest = self._request.body
        self._missing_bytes = body.min_bytes - reader.byte_count
        self._is_busy = False
        if self._changed:
            self._look_soon()
        for wanted in reader.let_go():
            self._changed[wanted] = None
        return 1

    async def _read_cold(self) -> None:
        """Have threads read what is not in the page cache, and go on with that."""
        reader = self._reader
        try:
            cold, reader.cold = reader.cold, []
            await read_together(self._broker.cold_reads, [each.work for each in cold])
            reader.cost = 0
            for each in cold:
                if not reader.take_cold(each):
                    self._changed[each.wanted] = None
                if reader.cost >= TURN_COST_MAX:
                    await asyncio.sleep(0)
                    reader.cost = 0
            if self._timer is not None:
                self._go_on()
        except Exception as error:  # nobody above would answer
            self._stop()
            self._request.peer.on_failed(self._request, error)

    # Answering

    def _response(self) -> FetchResponse:
        session, reader = self._session, self._reader
        rows = reader.rows
        if session is not None:
            _remember(session, reader)
        response = FetchResponse(
            session_id=NO_SESSION if session is None else session.id, responses=_by_topic(rows)
        )
        for wanted, partition in reader.given:
            counters = partition.counters
            counters.bytes_out += len(rows[wanted].records)  # type: ignore[arg-type]
            counters.fetch_requests += 1
        if reader.is_urgent and not reader.is_stranger:  # replicas know where the others are
            leaders = {row.current_leader.leader_id for row in rows.values()} - {UNKNOWN}
            response.node_endpoints = [
                NodeEndpoint(**found._asdict())
                for found in endpoints(self._broker.image, leaders, self._request.peer.listener)
            ]
        return response


def _remember(session: FetchSession, reader: FetchReader) -> None:
    """Remember what a client is told, and let partitions that gave data be the last next time."""
    for wanted, row in reader.rows.items():
        # After an error the client has to hear the rest again.
        wanted.high_watermark = UNKNOWN if row.error_code else row.high_watermark
        wanted.log_start_offset = row.log_start_offset
    for wanted, _ in reader.given:
        session.move_back(wanted)


def _by_topic(
    rows: Mapping[WantedPartition, PartitionData],
) -> list[FetchableTopicResponse]:
    """Put neighbours of one topic together."""
    topics: list[FetchableTopicResponse] = []
    current: FetchableTopicResponse | None = None
    for wanted, row in rows.items():
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
