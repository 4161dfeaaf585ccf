"""ShareFetch: API key 78, versions 1 and 2.

KIP-932 (share groups), KIP-1206 (the acquire mode, from 2), KIP-1222 (renewal, from 2). The
acknowledgements of a request come first; then the partitions of its session, each request starting
at another one, are read and their records acquired for the member. If that is less than min_bytes,
the fetch waits at its partitions and is served, in the order in which fetches came, when records
are appended or become available again. The response waits until its acknowledgements are durable.
It has whole batches of the log: the acquired ranges say which of their records are meant. A client
that has used up consumer_byte_rate gets none until the time for which it should wait is over.

Different from Kafka: an unknown topic id has an error of its own; Kafka fails the whole request.

The work is in `share.led_partition` and `share.partition.acquisition`.
"""

import asyncio
from collections.abc import Collection, Coroutine, Iterable, Iterator
from typing import Any, Final

from headrace.api.share_acknowledgements import (
    Acknowledging,
    acknowledged_partitions,
    explain_missing,
)
from headrace.api.share_responses import ShareFetchAnswer
from headrace.config import COLD_READ_ATTEMPTS_MAX, REMOTE_FETCH_MAX_WAIT_MS
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import TopicId
from headrace.log.fetch import ColdRead
from headrace.loop.turns import TURN_COST_MAX
from headrace.replication.fetch_reading import read_together
from headrace.replication.remote_log import RemoteRead, read_remote
from headrace.server.broker import Broker
from headrace.server.request import LATER, Answer, Request
from headrace.share.led_partition import LOOK_COST, LedSharePartition, TieredRecords
from headrace.share.partition.types import Wanted
from headrace.share.reading import ShareRead, covering, read_share
from headrace.share.sessions import FINAL_EPOCH, INITIAL_EPOCH, PartitionId, ShareSession
from headrace.wire.messages.share_fetch_request import ShareFetchRequest
from headrace.wire.messages.share_fetch_response import ShareFetchResponse
from headrace.wire.share_types import AcquireMode

LOOKS_MAX: Final = 16
"""How often a fetch continues at once after withheld records."""
READS_MAX: Final = 128
"""How many partitions give records to one fetch."""
BATCHES_MAX: Final = 1000
"""After so many batches of the log no other partition is read for the same fetch."""
COLD_PARTITIONS_MAX: Final = 16
"""How many partitions threads read together for one fetch."""
TIERED_BYTES_MAX: Final = 1024 * 1024
"""How much of the tier is read at once for a share partition; the first batch is whole."""
LOAD_COST: Final = 16
"""The cost of requesting the state of a share partition, in units of `Turns`."""
_NOT_THERE: Final = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
"""Errors that can wait for the records of other partitions, as nothing comes of them."""
_MODES: Final = {int(mode): mode for mode in AcquireMode}


def handle(broker: Broker, request: Request) -> Answer:
    try:
        session, new = _session(broker, request)
    except KafkaError as error:
        return ShareFetchResponse(error_code=error.code, error_message=error.message)
    return ShareFetch(broker, request, session, new).begin()


def _session(broker: Broker, request: Request) -> tuple[ShareSession, Collection[PartitionId]]:
    """Begin, resume or find the session of a request; KafkaError if that cannot be.

    Also gives the partitions that are new in it.
    """
    body: ShareFetchRequest = request.body
    group_id, member_id, epoch = body.group_id, body.member_id, body.share_session_epoch
    if group_id is None or not member_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a share fetch needs a group and a member")
    if body.is_renew_ack and (
        body.max_bytes or body.min_bytes or body.max_records or body.max_wait_ms
    ):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a renewal fetches nothing")
    shares = broker.share_partitions
    if epoch == FINAL_EPOCH:
        return shares.sessions.find(group_id, member_id), ()
    if epoch == INITIAL_EPOCH:
        if acknowledged_partitions(body.topics):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a new session has nothing to acknowledge")
        session = shares.begin_session(group_id, member_id, list(_named(body)), request.peer)
        session.client_id = request.client_id
        return session, session.partitions
    session = shares.sessions.resume(group_id, member_id, epoch)
    if body.topics or body.forgotten_topics_data:
        return session, session.change(_named(body), _forgotten(body))
    return session, ()


class ShareFetch:
    """One share fetch, which may wait.

    Its partitions are checked once, in several turns of the loop if there are very many, and after
    that only those with records.
    """

    __slots__ = (
        "_acknowledging",
        "_answer",
        "_body",
        "_broker",
        "_cold",
        "_cold_reads",
        "_errors",
        "_failed",
        "_is_busy",
        "_is_last_look",
        "_is_urgent",
        "_is_woken",
        "_led",
        "_new",
        "_ready",
        "_request",
        "_session",
        "_source",
        "_timer",
        "_watched_count",
    )

    def __init__(
        self,
        broker: Broker,
        request: Request,
        session: ShareSession,
        new: Collection[PartitionId],
    ) -> None:
        self._broker = broker
        self._request = request
        self._body: ShareFetchRequest = request.body
        self._session = session
        self._new = new
        """Partitions that the response lists even without news."""
        self._acknowledging = Acknowledging()
        self._led: list[LedSharePartition] = []
        self._ready: dict[LedSharePartition, None] = {}
        """Those that may have records."""
        self._errors: dict[PartitionId, KafkaError] = {}
        """Errors of partitions that cannot be read."""
        self._failed: list[LedSharePartition] = []
        """Partitions that stopped serving."""
        self._is_urgent = False
        """Whether the client must get a response at once."""
        self._cold: list[tuple[LedSharePartition, int]] = []
        """Partitions whose records a thread has to read, and how many bytes."""
        self._answer = ShareFetchAnswer(broker)
        self._is_last_look: bool
        # What follows there is only from the first turn that did not answer, until there is an
        # answer: most fetches never come so far.
        self._timer: asyncio.TimerHandle | None
        self._source: Iterator[PartitionId]
        """Partitions that are still to be checked."""
        self._cold_reads = 0
        self._watched_count: int
        self._is_busy: bool
        """Whether it is being read, or about to be."""
        self._is_woken: bool
        """Whether there was a change in the meantime."""

    def begin(self) -> Answer:
        """Answer if there is enough and nothing is to be written, else wait.

        What the request says of records is done when this returns, in any case.
        """
        body = self._body
        if body.topics:
            self._acknowledging.begin(
                self._broker,
                self._session,
                body.topics,
                is_renew_allowed=body.is_renew_ack,
                denied=self._request.denied if self._broker.authorizer is not None else None,
            )
        if body.share_session_epoch == FINAL_EPOCH:
            self._broker.share_partitions.end_session(self._session)
            return self._finish()
        if body.is_renew_ack:
            return self._finish()
        if body.share_acquire_mode not in _MODES:  # what it acknowledges counts, as in Kafka
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"there is no acquire mode {body.share_acquire_mode}",
            )
        self._is_last_look = body.max_wait_ms <= 0 or body.max_records <= 0
        source = iter(self._session.in_turn(body.share_session_epoch))
        is_large = len(self._session.partitions) > TURN_COST_MAX
        is_whole = self._find_partitions(source, is_large=is_large)
        if is_whole and self._look():
            return self._finish()
        self._source = iter(tuple(source))  # the session may change before it is read
        loop = asyncio.get_running_loop()
        wait_ms = max(body.max_wait_ms, 0)
        if self._request.is_metered and (share_wait_ms := self._request.toll.share_wait_ms()):
            wait_ms = min(wait_ms, share_wait_ms)  # there may be records for it then
        self._timer = loop.call_later(wait_ms / 1000, self._on_time_out)
        self._request.peer.on_close[self._stop] = None
        self._request.on_drain = self._on_time_out
        self._watched_count = 0
        self._is_busy, self._is_woken = True, False
        if is_whole:
            self._wait()
        else:
            self._watch()
            self._broker.turns.soon(self._find_on)
        return LATER

    def _find_partitions(self, source: Iterator[PartitionId], *, is_large: bool) -> bool:
        """Find partitions, as many as fit into one turn; return whether these are all.

        With `is_large`, those without records are not checked again later.
        """
        shares, group_id, cost = self._broker.share_partitions, self._session.group_id, 0
        now_ms = self._broker.clock.now_ms() if is_large else 0
        denied = self._request.denied if self._broker.authorizer is not None else None
        for partition_id in source:
            if denied is not None and denied.has("", partition_id[0]):
                self._fail(partition_id, denied.refusal())
                cost += 1
                continue
            led = shares.lead(group_id, partition_id)
            if led is not None:
                self._led.append(led)
                if not is_large or led.has_records(now_ms):
                    self._ready[led] = None
                cost += 1 if led.is_active else LOAD_COST
                if led.error is not None:
                    self._note_failed(led)
            elif (error := explain_missing(self._broker, partition_id)) is not None:
                self._fail(partition_id, error)
                cost += 1
            if cost >= TURN_COST_MAX:
                return False
        return True

    def _fail(self, partition_id: PartitionId, error: KafkaError) -> None:
        self._errors[partition_id] = error
        if error.code not in _NOT_THERE:
            self._is_urgent = True

    def _note_failed(self, led: LedSharePartition) -> None:
        self._failed.append(led)
        self._is_urgent = True

    # Looking

    def _look(self) -> bool:
        """Acquire what there is, if it is enough; return whether the fetch has ended with that.

        If not, it is to wait, or for threads first if any partition is `_cold`.
        """
        for _ in range(LOOKS_MAX):
            now_ms = self._broker.clock.now_ms()
            reads, is_enough = self._read(now_ms)
            if self._cold and not (reads and is_enough):
                return False
            if not reads or not is_enough:
                break
            self._acquire(reads, now_ms)
            if self._answer.has_records:
                if self._cold:
                    self._spawn(self._warm())  # for the next fetch
                return True
            if not any(read.offset != read.led.machine.next_fetch_offset(now_ms) for read in reads):
                break
        else:
            assert reads
            reads[0].led.wake_soon()  # others have their turn before it goes on
        return self._is_last_look or not self._led or self._is_urgent

    def _read(self, now_ms: int) -> tuple[list[ShareRead], bool]:
        """Read as much as is wanted, without waiting for the disk.

        Also return whether that is enough for a response.
        """
        body, reads = self._body, list[ShareRead]()
        records_left, bytes_missing = body.max_records, body.min_bytes
        if records_left <= 0 or self._session.is_ended:
            return reads, self._is_last_look
        if self._request.is_metered and self._request.toll.share_wait_ms():
            return reads, self._is_last_look  # its client has used up consumer_byte_rate
        readable = self._find_readable(now_ms)
        if not readable:
            return reads, self._is_last_look
        bytes_max = min(body.max_bytes, self._broker.fetch_bytes_max)
        if self._request.is_metered:
            bytes_max = self._request.toll.fetch_bytes_max(bytes_max)
        bytes_max //= len(readable)
        cold_reads = self._cold_reads
        may_block = cold_reads > 0 and cold_reads >= self._broker.settings[COLD_READ_ATTEMPTS_MAX]
        batches_left = BATCHES_MAX
        self._cold.clear()
        for led, offset in readable:
            try:
                read = read_share(
                    led,
                    offset,
                    now_ms,
                    bytes_max=bytes_max,
                    records_max=max(records_left, 1),
                    is_first=not reads,
                    may_block=may_block,
                )
            except KafkaError as error:
                self._fail(led.id, error)
                continue
            if read is None:
                self._cold.append((led, bytes_max))
                if len(self._cold) == COLD_PARTITIONS_MAX:
                    break
            elif read.fetched:
                reads.append(read)
                bytes_missing -= read.ends[-1]
                batches_left -= len(read.fetched)
                if batches_left <= 0 or len(reads) == READS_MAX:
                    return reads, True
                if len(readable) == 1:
                    break
                records_left -= led.machine.count_acquirable(
                    offset, read.fetched[-1].last_offset, now_ms
                )
                if records_left <= 0 and bytes_missing <= 0:
                    break
        return reads, bytes_missing <= 0 or self._is_last_look

    def _find_readable(self, now_ms: int) -> list[tuple[LedSharePartition, int]]:
        """Return partitions with records, and the offset to read from.

        Those without are checked again when they get some.
        """
        readable: list[tuple[LedSharePartition, int]] = []
        empty: list[LedSharePartition] = []
        for led in self._ready:
            offset = led.next_offset(now_ms)
            if offset is None:
                empty.append(led)
            else:
                readable.append((led, offset))
                if len(readable) == READS_MAX:
                    break
        for led in empty:
            del self._ready[led]
        return readable

    def _acquire(self, reads: list[ShareRead], now_ms: int) -> None:
        body, session = self._body, self._session
        records_left = body.max_records
        for read in reads:
            led = read.led
            wanted = Wanted(records_left, max(body.batch_size, 1), _MODES[body.share_acquire_mode])
            acquired = led.acquire(
                session.member_id, read.fetched, wanted, now_ms, fetch_offset=read.offset
            )
            if not acquired:
                continue
            session.touched[led.id] = None
            records = covering(read, acquired)
            self._answer.acquire(led.id, records, acquired)
            records_left -= sum(each.last_offset - each.first_offset + 1 for each in acquired)
            counters = led.partition.counters
            counters.bytes_out += len(records)
            counters.fetch_requests += 1
            if records_left <= 0:
                break
        self._broker.share_partitions.counters.acquired_records += body.max_records - records_left

    # Waiting

    def look_again(self, led: LedSharePartition) -> int:
        """Take a partition's records, or record that it stopped serving; return the cost."""
        if led.error is not None:
            self._note_failed(led)
        self._ready[led] = None
        if self._is_busy:
            self._is_woken = True
            return 1
        return self._conclude()

    def _on_time_out(self) -> None:
        self._is_last_look = True
        if not self._is_busy:
            self._is_busy = True
            self._broker.turns.soon(self._conclude)

    def _find_on(self) -> int:
        """Look for the partitions that the last turn did not come to."""
        if self._timer is None:
            return 1
        if not self._find_partitions(self._source, is_large=True):
            self._watch()
            self._broker.turns.soon(self._find_on)
            return TURN_COST_MAX
        return self._conclude()

    def _conclude(self) -> int:
        """Check the partitions, and respond if that ends the fetch; return the cost."""
        if self._timer is None:
            return 1  # the client is gone
        self._is_busy, self._is_woken = True, False
        try:
            if self._broker.authorizer is not None and self._request.denied.has_changed():
                self._deny_again()
            if self._look():
                self._stop()
                answer = self._finish()
                if answer is not LATER:
                    self._request.answer(answer)  # type: ignore[arg-type]
            else:
                self._wait()
        except Exception as error:  # nobody above would answer
            self._stop()
            self._request.peer.on_failed(self._request, error)
        return LOOK_COST

    def _deny_again(self) -> None:
        """Refuse the partitions that may no longer be read: ACLs changed while this waited."""
        denied = self._request.denied
        refused = {led for led in self._led if denied.has("", led.id[0])}
        for led in refused:
            led.stop_waiting(self)
            self._ready.pop(led, None)
            self._fail(led.id, denied.refusal())
        watched = [led for led in self._led[: self._watched_count] if led not in refused]
        self._led = watched + [
            led for led in self._led[self._watched_count :] if led not in refused
        ]
        self._watched_count = len(watched)

    def _wait(self) -> None:
        """Wait for threads, or for something new."""
        self._watch()
        if self._cold:
            self._cold_reads += 1
            self._spawn(self._read_cold())
        elif self._is_woken:
            self._broker.turns.soon(self._conclude)
        else:
            self._is_busy = False

    def _watch(self) -> None:
        """Watch for changes from now on: before anything else runs."""
        for led in self._led[self._watched_count :]:
            led.wait(self)
        self._watched_count = len(self._led)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._request.peer.on_close.pop(self._stop, None)
            for led in self._led[: self._watched_count]:
                led.stop_waiting(self)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._broker.cold_fetches.add(task)
        task.add_done_callback(self._broker.cold_fetches.discard)

    async def _warm(self) -> None:
        """Read records into the page cache in threads, and what the tier has into memory.

        Threads have the first look at aborted transactions, too.
        """
        broker, now_ms = self._broker, self._broker.clock.now_ms()
        reads: list[ColdRead] = []
        remote: list[tuple[LedSharePartition, RemoteRead]] = []
        for led, bytes_max in self._cold:
            if not led.is_active:
                continue
            log, offset = led.partition.log, led.machine.next_fetch_offset(now_ms)
            if log.start_offset <= offset < log.local_start_offset:
                remote.append((led, _read_of_tier(led, offset, bytes_max)))
            else:
                is_committed = led.configs.known.is_committed
                reads.append(
                    log.cold_read(offset, bytes_max, up_to=led.up_to, with_aborted=is_committed)
                )
        self._cold.clear()
        # One that fails does so again on the loop, where somebody can be told.
        work = [read_together(broker.cold_reads, reads)]
        if remote:
            wait_ms = broker.settings[REMOTE_FETCH_MAX_WAIT_MS]
            work.append(read_remote(broker.replicas.remote, [each for _, each in remote], wait_ms))
        await asyncio.gather(*work)
        for led, each in remote:
            _keep(led, each)

    async def _read_cold(self) -> None:
        """Read wanted records into the page cache, and continue from there."""
        try:
            await self._warm()
        except Exception as error:  # nobody above would answer
            self._stop()
            self._request.peer.on_failed(self._request, error)
        else:
            self._conclude()

    # Answering

    def _finish(self) -> Answer:
        """Return the response, or send it once the acknowledgements are durable."""
        if self._acknowledging.is_done:
            return self._response()
        self._acknowledging.when_done(self._send)
        return LATER

    def _send(self) -> None:
        if not self._request.peer.is_closed:
            self._request.answer(self._response())

    def _response(self) -> ShareFetchResponse:
        answer = self._answer
        if self._new:
            for led in self._led:
                if led.is_active and led.id in self._new:
                    answer.row(led.id)
        for led in self._failed:
            if led.error is not None and not answer.has(led.id):
                self._errors[led.id] = led.error
        for partition_id, error in self._errors.items():
            answer.fail(partition_id, error)
        for partition_id, failure in self._acknowledging.errors.items():
            answer.acknowledge(partition_id, failure)
        limits = self._broker.share_partitions.settings_of(self._session.group_id).limits
        return answer.response(self._request.peer.listener, limits.lock_duration_ms)


def _named(body: ShareFetchRequest) -> Iterable[PartitionId]:
    for topic in body.topics:
        topic_id = TopicId(topic.topic_id)
        for partition in topic.partitions:
            yield topic_id, partition.partition_index


def _forgotten(body: ShareFetchRequest) -> Iterable[PartitionId]:
    for topic in body.forgotten_topics_data:
        topic_id = TopicId(topic.topic_id)
        for index in topic.partitions:
            yield topic_id, index


def _read_of_tier(led: LedSharePartition, offset: int, bytes_max: int) -> RemoteRead:
    return RemoteRead(
        led.partition,
        offset,
        min(bytes_max, TIERED_BYTES_MAX),
        up_to=led.up_to,
        is_first_whole=True,
        with_aborted=led.configs.known.is_committed,
    )


def _keep(led: LedSharePartition, read: RemoteRead) -> None:
    """Keep what the tier gave, or its error; nothing if it needs more time."""
    try:
        found = read.result()
    except KafkaError as error:
        led.tiered = error
    else:
        if found is not None and found.records:
            led.tiered = TieredRecords(read.offset, found.records, found.aborted)
