"""Fetch: API key 1, versions 4 to 18.

KIP-74 (bytes over all partitions; the first batch is whole however large), KIP-98 (isolation
levels), KIP-227 (sessions), KIP-320 (leader epochs), KIP-516 (topic ids, from 13), KIP-595
(diverging epochs), KIP-951 (the new leader in the response). The partitions are read at once, or in
several turns of the loop if they are many. If that is less than min_bytes, the fetch waits at its
partitions and reads those again that have grown, when they have grown enough or time is up. Records
that are not in the page cache are read by threads, several partitions per thread.

KIP-392: a follower serves consumers too, from version 11 on, and with replica.selector.class the
leader sends them to a replica in their rack. Followers are served by `api.fetch_replica`.
The work is in `replication.fetch_reading` and `replication.fetch_sessions`.
"""

import asyncio
from collections.abc import Collection, Iterable, Iterator
from itertools import chain, islice
from typing import Final

from headrace.api import fetch_replica
from headrace.config import REMOTE_FETCH_MAX_WAIT_MS
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import ZERO_TOPIC_ID
from headrace.loop.turns import ANSWER_COST, TURN_COST_MAX
from headrace.replication.fetch_reading import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    FetchReader,
    read_together,
    split_reads,
)
from headrace.replication.fetch_rows import UNKNOWN, failed_row
from headrace.replication.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchSession,
    Key,
    WantedPartition,
    wanted_of,
    wanted_partitions,
)
from headrace.replication.leaders import endpoints
from headrace.replication.partition import Partition
from headrace.replication.remote_log import read_remote
from headrace.security.authorizer import Authorizer
from headrace.server.broker import Broker
from headrace.server.request import LATER, Answer, Denied, Request
from headrace.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.messages.fetch_response import (
    FetchableTopicResponse,
    FetchResponse,
    NodeEndpoint,
    PartitionData,
)

FIRST_WITH_SESSIONS: Final = 7
LARGE_REQUEST_BYTES: Final = 64 * 1024
"""A request may name some thousand partitions in this."""
PARTITIONS_PER_TURN: Final = 2000
"""How many partitions that a request names are taken note of in one turn of the loop."""
ELEMENTS_PER_TURN: Final = 2000
"""How many rows of a response are put together in one turn."""


def handle(
    broker: Broker, request: Request, asked: dict[Key, WantedPartition] | None = None
) -> Answer:
    """Handle a fetch. `asked` is what it names, if that was found out already."""
    body: FetchRequest = request.body
    if body.replica_id >= 0 or body.replica_state.replica_id >= 0:
        return fetch_replica.handle(broker, request)
    if asked is None:
        if request.size_bytes > LARGE_REQUEST_BYTES:
            _gather(broker, request)
            return LATER
        asked = wanted_partitions(body.topics)
    if body.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"there is no isolation level {body.isolation_level}"
        )
    wanted: Collection[WantedPartition] = asked.values()
    session: FetchSession | None = None
    sessions = broker.fetch_sessions
    is_incremental = False
    if request.version < FIRST_WITH_SESSIONS:
        pass
    elif body.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        if body.session_id != NO_SESSION:
            sessions.end(body.session_id)
        if body.session_epoch == INITIAL_EPOCH:
            session = sessions.begin(asked, request.version, broker.clock.now_ms())
    else:
        is_incremental = True
        try:
            session = sessions.resume(body, asked, request.version, broker.clock.now_ms())
        except KafkaError as error:
            return FetchResponse(error_code=error.code)
        wanted = session.partitions.values()
    fetch = Fetch(broker, request, wanted, session, is_incremental=is_incremental)
    if broker.authorizer is not None:
        _deny(broker.authorizer, request, fetch, session, has_news=bool(asked))
    return fetch.begin()


def _deny(
    authorizer: Authorizer,
    request: Request,
    fetch: "Fetch",
    session: FetchSession | None,
    *,
    has_news: bool,
) -> None:
    """Refuse the partitions that the client may not read, those of its session included.

    A session whose partitions were all readable is checked again if it is used by somebody else,
    after a change of ACLs, and when it gets partitions. One that names a topic which there is not
    is checked every time: nobody knows who may read it once it is there.
    """
    fetch.denied = request.denied
    peer = request.peer
    cleared = authorizer.generation, peer.principal, peer.host
    if session is not None and session.cleared == cleared and not has_news:
        return
    is_clear = fetch.deny()
    if session is not None:
        session.cleared = cleared if is_clear else None


def _gather(broker: Broker, request: Request) -> None:
    """Begin a fetch that names very many partitions, some of them in each turn of the loop."""
    body: FetchRequest = request.body
    asked: dict[Key, WantedPartition] = {}
    topics = iter(body.topics)
    topic: FetchTopic | None = None
    partitions: Iterator[FetchPartition] = iter(())

    def gather_some() -> int:
        nonlocal topic, partitions
        if request.peer.is_closed:
            return 1
        left = PARTITIONS_PER_TURN
        try:
            while left > 0:
                if topic is not None and (some := list(islice(partitions, left))):
                    asked.update(wanted_of(topic, some))
                    left -= len(some)
                elif (topic := next(topics, None)) is not None:
                    partitions = iter(topic.partitions)
                    left -= 1
                else:
                    answer = handle(broker, request, asked)
                    if answer is not LATER:
                        request.answer(answer)  # type: ignore[arg-type]
                    return TURN_COST_MAX
        except Exception as error:  # nobody above would answer
            request.peer.on_failed(request, error)
        else:
            broker.turns.soon(gather_some)
        return TURN_COST_MAX

    broker.turns.soon(gather_some)


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
        "_rest",
        "_session",
        "_source",
        "_timer",
        "_topics",
        "_wanted",
        "_watched",
        "denied",
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
        bytes_max = broker.fetch_bytes_max
        if request.is_metered:
            bytes_max = request.toll.fetch_bytes_max(bytes_max)
            body.min_bytes = min(body.min_bytes, bytes_max)
        self._reader = FetchReader(
            broker.replicas,
            body,
            request.version,
            bytes_max=bytes_max,
            is_incremental=is_incremental,
        )
        if broker.is_rack_aware:
            self._reader.prefer(body.rack_id, request.peer.listener)
        self._is_last_look = body.max_wait_ms <= 0
        self.denied: Denied | None = None
        """What the client may not read, where there is an authorizer."""
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
        self._rest: Iterator[tuple[WantedPartition, PartitionData]]
        self._topics: list[FetchableTopicResponse]
        """The topics of a response that is put together in several turns."""

    def deny(self) -> bool:
        """Refuse what may not be read, or is not there; return whether all may be read."""
        refused = self._find_denied(self._wanted)
        if not refused:
            return True
        self._wanted = [each for each in self._wanted if each not in refused]
        self._reader.refuse(refused)
        return False

    def _find_denied(
        self, wanted: Iterable[WantedPartition]
    ) -> dict[WantedPartition, PartitionData]:
        """Return the error rows of what may not be read.

        A topic that there is not has its error now: it may be there before its turn to be read.
        """
        denied, code, refused = self.denied, ErrorCode.NONE, dict[WantedPartition, PartitionData]()
        assert denied is not None
        for each in wanted:
            is_denied = denied.has(each.topic, each.topic_id)
            if is_denied:
                code = code or denied.refusal().code
                refused[each] = failed_row(each.index, code)
            elif is_denied is None:
                refused[each] = self._reader.missing(each)
        return refused

    def _deny_again(self) -> None:
        """Refuse what may no longer be read, of what was read and of what is to be."""
        reader, source = self._reader, tuple(self._source)
        cold = (each.wanted for each in reader.cold)
        refused = self._find_denied(dict.fromkeys(chain(reader.rows, cold, source)))
        self._source = iter([each for each in source if each not in refused])
        if refused:
            reader.refuse(refused)

    def begin(self) -> Answer:
        """Answer if there is enough, else wait."""
        reader, source = self._reader, iter(self._wanted)
        if reader.read(source) and not reader.cold and self._is_enough():
            if self._request.is_metered and (empty := self._held_back()) is not None:
                return empty
            return self._response()
        self._source = iter(tuple(source))  # the session may change before it is read
        body: FetchRequest = self._request.body
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(body.max_wait_ms / 1000, self._on_time_out)
        self._is_busy = True
        self._missing_bytes = 0
        self._watched, self._changed = {}, {}
        self._request.peer.on_close[self._stop] = None
        self._request.on_drain = self._on_time_out
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
        """Watch for changes from now on: before anything else runs."""
        found = self._reader.found
        for wanted, partition in found:
            self._watched[partition] = wanted
            partition.fetch_waiters[self] = None
        found.clear()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._request.peer.on_close.pop(self._stop, None)
        for partition in self._watched:
            partition.fetch_waiters.pop(self, None)
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
        if self.denied is not None and self.denied.has_changed():
            self._deny_again()
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
            if self._request.is_metered and (empty := self._held_back()) is not None:
                self._request.answer(empty)
            elif reader.element_count > ELEMENTS_PER_TURN:
                self._rest, self._topics = iter(reader.rows.items()), []
                self._broker.turns.soon(self._answer_on)
            else:
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
        """Read what is not in the page cache, in threads and from the tier; continue with that."""
        reader, broker = self._reader, self._broker
        try:
            cold, reader.cold = reader.cold, []
            threads, remote = split_reads(cold)
            if not remote:
                await read_together(broker.cold_reads, threads)
            else:
                await asyncio.gather(
                    read_together(broker.cold_reads, threads),
                    read_remote(
                        broker.replicas.remote, remote, broker.settings[REMOTE_FETCH_MAX_WAIT_MS]
                    ),
                )
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

    def _answer_on(self) -> int:
        """Put a large response together, some of it in each turn, and have a thread encode it."""
        if self._request.peer.is_closed:
            return 1
        try:
            some = list(islice(self._rest, ELEMENTS_PER_TURN))
            if some:
                self._add(some, self._topics)
                self._broker.turns.soon(self._answer_on)
                return TURN_COST_MAX
            self._request.answer(self._whole(self._topics), is_large=True)
        except Exception as error:  # nobody above would answer
            self._request.peer.on_failed(self._request, error)
        return ANSWER_COST

    def _held_back(self) -> FetchResponse | None:
        """Return the empty response of a client whose quotas are used up, else None.

        It is as if nothing had been read. A session that would begin with it does not begin, as
        clients start again after an empty first response.
        """
        request, session, reader = self._request, self._session, self._reader
        if not request.toll.holds_back(reader.byte_count, len(reader.rows)):
            return None
        if session is not None and request.body.session_epoch == INITIAL_EPOCH:
            self._broker.fetch_sessions.end(session.id)
            session = None
        return FetchResponse(session_id=NO_SESSION if session is None else session.id)

    def _response(self) -> FetchResponse:
        return self._whole(self._add(self._reader.rows.items(), []))

    def _add(
        self,
        rows: Iterable[tuple[WantedPartition, PartitionData]],
        topics: list[FetchableTopicResponse],
    ) -> list[FetchableTopicResponse]:
        """Add rows to a response, adjacent ones of a topic together, and remember what was sent."""
        has_session = self._session is not None
        current = topics[-1] if topics else None
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
            if has_session:
                # After an error the client has to hear the rest again.
                wanted.high_watermark = UNKNOWN if row.error_code else row.high_watermark
                wanted.log_start_offset = row.log_start_offset
        return topics

    def _whole(self, topics: list[FetchableTopicResponse]) -> FetchResponse:
        session, reader = self._session, self._reader
        response = FetchResponse(
            session_id=NO_SESSION if session is None else session.id, responses=topics
        )
        for wanted, partition in reader.given:
            counters = partition.counters
            counters.bytes_out += len(reader.rows[wanted].records)  # type: ignore[arg-type]
            counters.fetch_requests += 1
            if session is not None:
                session.move_back(wanted)
        if reader.is_urgent:
            leaders = {row.current_leader.leader_id for row in reader.rows.values()} - {UNKNOWN}
            response.node_endpoints = [
                NodeEndpoint(**found._asdict())
                for found in endpoints(self._broker.image, leaders, self._request.peer.listener)
            ]
        return response
