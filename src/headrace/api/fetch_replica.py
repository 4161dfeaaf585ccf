"""Fetch of followers: API key 1 with a replica id, versions 4 to 18. `api.fetch` comes here.

KIP-74 (bytes over all partitions; the first batch is whole however large), KIP-227 (sessions),
KIP-320 (leader epochs), KIP-595 (diverging epochs), KIP-903 (broker epochs, from 15: a follower
that does not say its epoch is refused), KIP-73 (throttles: while a rate is exceeded, throttled
partitions whose ISR the follower is not in have no records).

A follower reads up to the end of the log, and the offset that it asks for says what it has. Its
session watches its partitions all the time, so that a fetch costs what changed and what it names. A
fetch that finds less than min_bytes waits for appends, an error, a truncation or a moved start of a
log; not for a high watermark, which the next response tells (KAFKA-9952).

The work is in `replication.replica_reading` and `replication.replica_sessions`.
"""

import asyncio
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from headrace.errors import ErrorCode, KafkaError
from headrace.ids import ZERO_TOPIC_ID, BrokerId
from headrace.loop.turns import ANSWER_COST, TURN_COST_MAX
from headrace.replication.fetch_reading import read_together
from headrace.replication.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, Key
from headrace.replication.replica_reading import Asked, ReplicaReader
from headrace.replication.replica_sessions import Follower, ReplicaSession
from headrace.server.broker import Broker
from headrace.server.request import LATER, Answer, Request
from headrace.wire.messages.fetch_request import FetchRequest
from headrace.wire.messages.fetch_response import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)

FIRST_WITH_SESSIONS: Final = 7
ROWS_PER_TURN: Final = 2000
"""How many rows of a response are put together in one turn of the loop."""


def handle(broker: Broker, request: Request) -> Answer:
    """Handle a fetch of a follower."""
    body: FetchRequest = request.body
    state = body.replica_state
    follower = Follower(
        BrokerId(state.replica_id if state.replica_id >= 0 else body.replica_id),
        state.replica_epoch,
    )
    sessions, version = broker.replica_sessions, request.version
    now_ms = int(asyncio.get_running_loop().time() * 1000)  # by the clock of `Partition`
    is_full = version < FIRST_WITH_SESSIONS or body.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH)
    if is_full:
        sessions.end_by_id(body.session_id, follower)
        is_kept = version >= FIRST_WITH_SESSIONS and body.session_epoch == INITIAL_EPOCH
        if is_kept and _is_registered(broker, follower):
            session = sessions.begin(follower, version, now_ms)
        else:
            session = sessions.transient(follower, version, now_ms)
    else:
        try:
            session = sessions.resume(body, follower, version, now_ms)
        except KafkaError as error:
            return FetchResponse(error_code=error.code)
    sessions.attach(session, request.peer)
    return ReplicaFetch(broker, request, session, is_full=is_full).begin()


def _is_registered(broker: Broker, follower: Follower) -> bool:
    known = broker.image.broker(follower.node)
    return known is not None and known.broker_epoch <= follower.broker_epoch


def _asked(body: FetchRequest) -> Iterator[Asked]:
    for topic in body.topics:
        name: str | bytes = topic.topic_id if topic.topic_id != ZERO_TOPIC_ID else topic.topic
        for each in topic.partitions:
            yield (name, each.partition), each


def _forgotten(body: FetchRequest) -> Iterator[Key]:
    for topic in body.forgotten_topics_data:
        name: str | bytes = topic.topic_id if topic.topic_id != ZERO_TOPIC_ID else topic.topic
        for index in topic.partitions:
            yield name, index


class ReplicaFetch:
    """One fetch of a follower, which may wait (`SessionFetch`)."""

    __slots__ = (
        "_asked",
        "_broker",
        "_forgotten",
        "_has_news",
        "_is_busy",
        "_is_last_look",
        "_is_over",
        "_missing_bytes",
        "_reader",
        "_request",
        "_rest",
        "_session",
        "_timer",
        "_topics",
    )

    def __init__(
        self, broker: Broker, request: Request, session: ReplicaSession, *, is_full: bool
    ) -> None:
        body: FetchRequest = request.body
        self._broker = broker
        self._request = request
        self._session = session
        self._asked: Iterator[Asked] | None = _asked(body)
        """What is still to be noted; None if all is."""
        self._forgotten: Iterator[Key] | None = (
            _forgotten(body) if body.forgotten_topics_data and not is_full else None
        )
        self._reader = ReplicaReader(
            broker.replicas,
            session,
            request.version,
            bytes_max=min(body.max_bytes, broker.fetch_bytes_max),
            is_full=is_full,
            throttle=broker.throttles.leader,
        )
        self._is_last_look = body.max_wait_ms <= 0
        self._is_busy = True
        self._has_news = False
        """Whether something changed while it was busy."""
        self._is_over = False
        self._missing_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._rest: Iterator[tuple[Key, PartitionData]]
        self._topics: dict[str | bytes, FetchableTopicResponse]

    def begin(self) -> Answer:
        """Answer if there is enough, else wait."""
        self._session.fetch = self
        try:
            is_all, reader = self._read(), self._reader
            if (
                is_all
                and not reader.cold
                and self._is_enough()
                and len(reader.rows) <= ROWS_PER_TURN
            ):
                return self._response()
            body: FetchRequest = self._request.body
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(body.max_wait_ms, 0) / 1000, self._on_time_out)
            self._request.on_drain = self._on_time_out
            self._go_on(is_all=is_all)
        except BaseException:
            self._stop()
            raise
        return LATER

    # Waiting

    def on_more(self, byte_count: int) -> None:
        self._missing_bytes -= byte_count
        if self._missing_bytes <= 0:
            self._look_soon()

    def on_change(self) -> None:
        self._look_soon()

    def on_ended(self, code: ErrorCode) -> None:
        if not self._is_over:
            self._stop()
            self._reader.give_back()
            if not self._request.peer.is_closed:
                self._request.answer(FetchResponse(error_code=code))

    def _on_time_out(self) -> None:
        self._is_last_look = True
        self._look_soon()

    def _look_soon(self) -> None:
        # Whatever else is appended in this turn of the loop belongs to the same response.
        if self._is_busy:
            self._has_news = True
        else:
            self._is_busy = True
            self._broker.turns.soon(self._look)

    def _is_enough(self) -> bool:
        reader, body = self._reader, self._request.body
        return (
            reader.byte_count >= max(body.min_bytes, 0)
            or self._is_last_look
            or reader.is_urgent
            or reader.is_exhausted
            or not self._session.partitions
        )

    def _stop(self) -> None:
        self._is_over = True
        session = self._session
        if session.fetch is self:
            session.fetch = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if session.id == NO_SESSION:
            self._broker.replica_sessions.end(session)

    # Reading

    def _read(self) -> bool:
        """Note and read as much as fits into one turn; return whether that is all."""
        reader, cost = self._reader, 0
        if self._asked is not None:
            if not reader.take(self._asked):
                return False
            self._asked, cost = None, reader.cost
        if self._forgotten is not None:
            some = list(islice(self._forgotten, ROWS_PER_TURN))
            for key in some:
                self._session.forget(key)
            if len(some) == ROWS_PER_TURN:
                reader.cost = TURN_COST_MAX
                return False
            self._forgotten = None
        is_all = reader.read()
        reader.cost += cost
        return is_all

    def _look(self) -> int:
        if self._is_over:
            return 1
        try:
            return self._go_on(is_all=self._read()) + self._reader.cost
        except Exception as error:  # nobody above would answer
            return self._fail(error)

    def _go_on(self, *, is_all: bool) -> int:
        """Decide what comes after one turn of reading; return what that cost."""
        reader, body = self._reader, self._request.body
        if self._broker.authorizer is not None:
            self._request.denied.has_changed()  # it raises if this is a replica no more
        if not is_all:
            self._broker.turns.soon(self._look)
            return 1
        if reader.cold:
            task = asyncio.get_running_loop().create_task(self._read_cold())
            self._broker.cold_fetches.add(task)
            task.add_done_callback(self._broker.cold_fetches.discard)
            return 1
        if self._is_enough():
            if len(reader.rows) > ROWS_PER_TURN:
                self._rest, self._topics = iter(reader.rows.items()), {}
                self._broker.turns.soon(self._answer_on)
            else:
                self._request.answer(self._response())
            return ANSWER_COST
        self._missing_bytes = body.min_bytes - reader.byte_count
        if reader.byte_count:
            reader.let_go()
        self._is_busy = False
        if self._has_news:
            self._has_news = False
            self._look_soon()
        return 1

    async def _read_cold(self) -> None:
        """Read in threads what is not in the page cache, and continue with that."""
        reader = self._reader
        try:
            cold, reader.cold = reader.cold, []
            await read_together(self._broker.cold_reads, [each.work for each in cold])
            reader.cost = 0
            for each in cold:
                if not reader.take_cold(each):
                    self._has_news = True
                if reader.cost >= TURN_COST_MAX:
                    await asyncio.sleep(0)
                    reader.cost = 0
            if not self._is_over:
                self._go_on(is_all=True)
        except Exception as error:  # nobody above would answer
            self._fail(error)

    def _fail(self, error: Exception) -> int:
        if not self._is_over:
            self._stop()
            self._request.peer.on_failed(self._request, error)
        return ANSWER_COST

    # Answering

    def _answer_on(self) -> int:
        """Put a large response together, some of it in each turn, and have a thread encode it."""
        if self._is_over:
            return 1
        try:
            some = list(islice(self._rest, ROWS_PER_TURN))
            if some:
                self._add(some)
                self._broker.turns.soon(self._answer_on)
                return TURN_COST_MAX
            self._request.answer(self._whole(), is_large=True)
        except Exception as error:  # nobody above would answer
            return self._fail(error)
        return ANSWER_COST

    def _response(self) -> FetchResponse:
        self._topics = {}
        self._add(self._reader.rows.items())
        return self._whole()

    def _add(self, rows: Iterable[tuple[Key, PartitionData]]) -> None:
        """Add rows to the response, those of a topic together, and remember what is told."""
        topics, partitions = self._topics, self._session.partitions
        for key, row in rows:
            name = key[0]
            topic = topics.get(name)
            if topic is None:
                topic = FetchableTopicResponse(partitions=[])
                if isinstance(name, bytes):
                    topic.topic_id = name
                else:
                    topic.topic = name
                topics[name] = topic
            topic.partitions.append(row)
            followed = partitions.get(key)
            if followed is not None:
                followed.told_high_watermark = row.high_watermark
                followed.told_start_offset = row.log_start_offset

    def _whole(self) -> FetchResponse:
        """Return the response, after which the fetch is over."""
        session_id = self._session.id
        self._stop()
        if self._reader.throttled_bytes:
            self._broker.throttles.leader.record(self._reader.throttled_bytes)
        return FetchResponse(session_id=session_id, responses=list(self._topics.values()))
