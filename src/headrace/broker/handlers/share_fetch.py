"""ShareFetch, versions 1 and 2.

KIP-932 (share groups), KIP-1206 (the acquire mode, from 2), KIP-1222 (renewal, from 2). What a
request says of records is done first; then its session's partitions, each request from another one
on, are read and their records acquired for the member. If that is less than min_bytes, the fetch
waits at its partitions and is served, in the order in which fetches came, when records are
appended or become available again. The answer waits until its acknowledgements are durable. An
answer has whole batches of the log: its acquired ranges say which of the records in them are meant.

Unlike Kafka, which fails the whole request, a topic id that nobody knows has an error of its own.
"""

import asyncio
from collections.abc import Collection, Iterable
from typing import Final

from headrace.broker.broker import Broker
from headrace.broker.fetch_reading import read_together
from headrace.broker.request import LATER, Answer, Handler, Request
from headrace.broker.share_acknowledging import (
    Acknowledging,
    acknowledged_partitions,
    explain_missing,
)
from headrace.broker.share_answers import ShareFetchAnswer
from headrace.broker.share_partition import LedSharePartition
from headrace.broker.share_reading import ShareRead, covering, read_share
from headrace.config import COLD_READ_ATTEMPTS_MAX
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import TopicId
from headrace.share.partition.types import AcquireMode, Wanted
from headrace.share.sessions import FINAL_EPOCH, INITIAL_EPOCH, PartitionId, ShareSession
from headrace.wire import ApiKey
from headrace.wire.messages.share_fetch_request import ShareFetchRequest
from headrace.wire.messages.share_fetch_response import ShareFetchResponse

LOOKS_MAX: Final = 16
"""How often a fetch looks on at once after records that nobody may have."""
_NOT_THERE: Final = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
"""Errors that can wait for the records of other partitions, as nothing comes of them."""
_MODES: Final = {int(mode): mode for mode in AcquireMode}


def handle_share_fetch(broker: Broker, request: Request) -> Answer:
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
    """One share fetch, which may wait."""

    __slots__ = (
        "_acknowledging",
        "_answer",
        "_body",
        "_broker",
        "_cold_reads",
        "_errors",
        "_led",
        "_new",
        "_request",
        "_session",
        "_timer",
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
        """Partitions that the answer names even if there is nothing to say of them."""
        self._acknowledging = Acknowledging()
        self._led: list[LedSharePartition] = []
        self._errors: dict[PartitionId, KafkaError] = {}
        """Of partitions that cannot be read."""
        self._answer = ShareFetchAnswer(broker)
        self._timer: asyncio.TimerHandle | None = None
        self._cold_reads = 0

    def begin(self) -> Answer:
        """Answer if there is enough and nothing is to be written, else wait."""
        body, shares = self._body, self._broker.share_partitions
        if body.topics:
            self._acknowledging.begin(
                self._broker, self._session, body.topics, is_renew_allowed=body.is_renew_ack
            )
        if body.share_session_epoch == FINAL_EPOCH:
            shares.end_session(self._session)
        elif not body.is_renew_ack:
            if body.share_acquire_mode not in _MODES:
                raise KafkaError(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    f"there is no acquire mode {body.share_acquire_mode}",
                )
            self._find_partitions()
            if not self._look(is_last=body.max_wait_ms <= 0 or body.max_records <= 0):
                return LATER
        return self._finish()

    def _find_partitions(self) -> None:
        shares, session = self._broker.share_partitions, self._session
        for partition_id in session.in_turn(self._body.share_session_epoch):
            led = shares.lead(session.group_id, partition_id)
            if led is not None:
                self._led.append(led)
            elif (error := explain_missing(self._broker, partition_id)) is not None:
                self._errors[partition_id] = error

    # Looking

    def _look(self, *, is_last: bool, may_block: bool = False) -> bool:
        """Acquire what there is, if it is enough; whether the fetch has ended with that.

        If not, it waits, or its records are being brought into the page cache.
        """
        for _ in range(LOOKS_MAX):
            now_ms = self._broker.clock.now_ms()
            reads = self._read(now_ms, may_block=may_block)
            if reads is None:
                return False
            size_bytes = sum(read.ends[-1] for read in reads)
            if not reads or (size_bytes < self._body.min_bytes and not is_last):
                break
            self._acquire(reads, now_ms)
            if self._answer.has_records:
                return True
            if not any(read.offset != read.led.machine.next_fetch_offset(now_ms) for read in reads):
                break
        else:
            assert reads
            reads[0].led.wake_soon()  # others have their turn before it goes on
        if is_last or not self._led or self._has_failed():
            return True
        self._wait()
        return False

    def _has_failed(self) -> bool:
        """Whether there is something that a client must hear at once."""
        return any(led.error is not None for led in self._led) or any(
            error.code not in _NOT_THERE for error in self._errors.values()
        )

    def _read(self, now_ms: int, *, may_block: bool) -> list[ShareRead] | None:
        """Read as much as is wanted; None if that has to wait for the disk."""
        body, reads = self._body, list[ShareRead]()
        records_left, bytes_missing = body.max_records, body.min_bytes
        if records_left <= 0 or self._session.is_ended:
            return reads
        readable = [led for led in self._led if led.has_records(now_ms)]
        if not readable:
            return reads
        bytes_max = min(body.max_bytes, self._broker.fetch_bytes_max) // len(readable)
        for led in readable:
            try:
                read = read_share(
                    led,
                    now_ms,
                    bytes_max,
                    max(records_left, 1),
                    is_first=not reads,
                    may_block=may_block,
                )
            except KafkaError as error:
                self._errors[led.id] = error
                continue
            if read is None:
                self._start_reading_cold(led, now_ms, bytes_max)
                return None
            if read.fetched:
                reads.append(read)
                records_left -= read.offset_count
                bytes_missing -= read.ends[-1]
                if records_left <= 0 and bytes_missing <= 0:
                    break
        return reads

    def _acquire(self, reads: list[ShareRead], now_ms: int) -> None:
        body, member_id = self._body, self._session.member_id
        records_left = body.max_records
        for read in reads:
            wanted = Wanted(records_left, max(body.batch_size, 1), _MODES[body.share_acquire_mode])
            acquired = read.led.acquire(
                member_id, read.fetched, wanted, now_ms, fetch_offset=read.offset
            )
            if not acquired:
                continue
            records = covering(read, acquired)
            self._answer.acquire(read.led.id, records, acquired)
            records_left -= sum(each.last_offset - each.first_offset + 1 for each in acquired)
            counters = read.led.partition.counters
            counters.bytes_out += len(records)
            counters.fetch_requests += 1
            if records_left <= 0:
                break
        self._broker.share_partitions.counters.acquired_records += body.max_records - records_left

    # Waiting

    def look_again(self) -> None:
        """Take what there is now: a partition has records again, or serves no more."""
        if self._timer is not None:
            self._conclude(is_last=False)

    def _wait(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._body.max_wait_ms / 1000, self._time_out)
            self._request.peer.on_close.add(self._stop_waiting)
            for led in self._led:
                led.wait(self)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._request.peer.on_close.discard(self._stop_waiting)
            for led in self._led:
                led.stop_waiting(self)

    def _time_out(self) -> None:
        self._conclude(is_last=True)

    def _conclude(self, *, is_last: bool, may_block: bool = False) -> None:
        """Look, and answer if that ends the fetch."""
        try:
            if self._look(is_last=is_last, may_block=may_block):
                self._stop_waiting()
                answer = self._finish()
                if answer is not LATER:
                    self._request.answer(answer)  # type: ignore[arg-type]
        except Exception as error:  # nobody above would answer
            self._stop_waiting()
            self._request.peer.on_failed(self._request, error)

    def _start_reading_cold(self, led: LedSharePartition, now_ms: int, bytes_max: int) -> None:
        self._stop_waiting()
        work = self._read_cold(led, led.machine.next_fetch_offset(now_ms), bytes_max)
        task = asyncio.get_running_loop().create_task(work)
        self._broker.cold_fetches.add(task)
        task.add_done_callback(self._broker.cold_fetches.discard)

    async def _read_cold(self, led: LedSharePartition, offset: int, bytes_max: int) -> None:
        """Bring what is wanted into the page cache, and go on from there."""
        self._cold_reads += 1
        try:
            work = led.partition.log.cold_read(offset, bytes_max, up_to=led.up_to)
            await read_together(self._broker.cold_reads, [work])
        except OSError as error:
            self._request.peer.on_failed(self._request, error)
            return
        if not self._request.peer.is_closed:
            limit = COLD_READ_ATTEMPTS_MAX.default * len(self._led)
            self._conclude(is_last=False, may_block=self._cold_reads >= limit)

    # Answering

    def _finish(self) -> Answer:
        """Give the response, or have it sent once the acknowledgements are durable."""
        if self._acknowledging.is_done:
            return self._response()
        self._acknowledging.when_done(self._send)
        return LATER

    def _send(self) -> None:
        if not self._request.peer.is_closed:
            self._request.answer(self._response())

    def _response(self) -> ShareFetchResponse:
        answer = self._answer
        for led in self._led:
            if led.error is not None and not answer.has(led.id):
                self._errors[led.id] = led.error
            elif led.is_active and led.id in self._new:
                answer.row(led.id)
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


HANDLERS: Final[dict[ApiKey, Handler]] = {ApiKey.SHARE_FETCH: handle_share_fetch}
