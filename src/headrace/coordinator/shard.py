"""One partition of an internal topic and the machine that its records build.

Loading replays the partition. After that, operations run one after the other, each on the state
that the previous ones left. What they write within one turn of the loop is one batch, and their
replies go out when the high watermark has passed it. That is so for reads as well, and for refusals
of clients: they wait for whatever they have seen. If a batch cannot be written, the callers get an
error and the machine is rebuilt from the log: nothing is ever acknowledged that is not in the log.

A shard is of one leader epoch. In another one the log may have other records at the same offsets,
and the high watermark says nothing of those that were written here (KAFKA-20634).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Final, Generic, TypeVar

from headrace.coordinator.answering import Answering
from headrace.coordinator.batches import fit, put_together
from headrace.coordinator.journal import Journal, Leadership
from headrace.coordinator.loading import LeadershipLost, replay_log, replay_marker
from headrace.coordinator.machine import Machine, OnError, Operation, Outcome, Told, told
from headrace.coordinator.records import (
    NO_PRODUCER,
    CoordinatorRecord,
    EncodedRecord,
    RecordTypes,
    build_record_batch,
)
from headrace.coordinator.replies import fail_all
from headrace.coordinator.set_aside import SetAside
from headrace.coordinator.timer import DeadlineTimer, Time
from headrace.errors import COORDINATOR_UNAVAILABLE, ErrorCode, HeadraceError, KafkaError
from headrace.log.log import Appended
from headrace.records.builder import NO_PRODUCER_EPOCH
from headrace.records.compression import Compression
from headrace.records.header import HEADER_BYTES, read_headers

RELOAD_PAUSE_SECONDS: Final = 0.1
"""How long to wait after a log refused twice in a row; doubled with each further refusal."""
RELOAD_PAUSE_SECONDS_MAX: Final = 10.0
WRITE_TIMEOUT_MS: Final = 5000
"""How long a client waits for replicas, if nobody says otherwise."""
DEADLINES_AT_ONCE: Final = 50
DEADLINES_SECONDS_MAX: Final = 0.005
"""How many deadlines are handled, and for how long, before other tasks get a turn."""

M = TypeVar("M", bound=Machine)
logger = logging.getLogger(__name__)


class State(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    CLOSED = "closed"


def _ignore(_: object) -> None:
    """Do nothing: no caller waits for a reply."""


class Shard(Generic[M]):
    """The machine of one partition, loaded and kept up to date."""

    def __init__(
        self,
        journal: Journal,
        make: Callable[[], M],
        types: RecordTypes,
        clock: Time,
        *,
        compression: Compression = Compression.NONE,
        write_timeout_ms: int = WRITE_TIMEOUT_MS,
        on_load_ended: Callable[[int | None], None] = _ignore,
    ) -> None:
        """`on_load_ended` gets the number of loaded records, or None if loading failed."""
        self.journal = journal
        self._is_leading = Leadership(journal)
        self.leader_epoch = self._is_leading.epoch
        """The epoch in which this node leads the partition as long as the shard serves."""
        self.machine = make()
        self.state = State.LOADING
        self._make = make
        self._types = types
        self._clock = clock
        self._compression = compression
        self._on_load_ended = on_load_ended
        self.loading_since = 0.0
        """When the last load started, in loop time."""
        self.load_count = 0
        """How often the machine was loaded from the log."""
        self.set_aside = SetAside()
        """Ids that are not served because one of their records cannot be read."""
        self._loading: asyncio.Task[None] | None = None
        self._failed_writes = 0
        """How many failures there were in a row."""
        self._operations: list[list[EncodedRecord]] = []
        """Batches that are replayed already and are written at the end of this turn."""
        self._unwritten_count = 0
        """How many records they hold."""
        self._replies: list[Told] = []
        self._is_write_due = False
        self._answering = Answering(
            journal,
            self._is_leading,
            timeout_ms=write_timeout_ms,
            on_leadership_lost=self.close,
            on_sync_lost=self._refuse_unsynced,
        )
        self._is_refusing = False
        """Whether writes are refused because too few replicas are in sync."""
        self._timer = DeadlineTimer(clock, self._on_timer)

    # Life

    def start(self) -> None:
        """Start loading in the background."""
        self.state = State.LOADING
        loop = asyncio.get_running_loop()
        if self._loading is not None and self._loading is not asyncio.current_task():
            self._loading.cancel()  # it must not install its machine after this one
        self.loading_since = loop.time()
        self._loading = loop.create_task(self._load())

    def close(self) -> None:
        """Stop replying: another node leads the partition, or this one stops."""
        self.state = State.CLOSED
        if self._loading is not None:
            self._loading.cancel()
        self._abandon()

    @property
    def is_serving(self) -> bool:
        """Whether operations can run: it is loaded, and its epoch is not over."""
        return self._unavailable() is None

    async def loaded(self) -> None:
        """Wait until loading has finished or failed."""
        while self._loading is not None and self.state is State.LOADING:
            await asyncio.wait([self._loading])

    async def _load(self) -> None:
        machine = self._make()
        try:
            await self._pause()
            loaded = await replay_log(self.journal.log, machine, self._types, self._is_leading)
        except LeadershipLost as error:
            logger.debug("%s is not loaded: %s", self.journal.name, error)
            self.state = State.CLOSED
            self._on_load_ended(None)
            return
        except HeadraceError as error:
            self.state = State.FAILED
            logger.error("%s cannot be loaded: %s", self.journal.name, error)
            self._on_load_ended(None)
            return
        except Exception:
            self.state = State.FAILED
            logger.exception("%s cannot be loaded", self.journal.name)
            self._on_load_ended(None)
            return
        self.machine, self.state = machine, State.ACTIVE
        self.set_aside = loaded.set_aside
        self.load_count += 1
        logger.debug("%s: loaded %d records", self.journal.name, loaded.record_count)
        self._on_load_ended(loaded.record_count)
        self.write(lambda machine, now_ms: machine.on_loaded(now_ms), _ignore)

    async def _pause(self) -> None:
        """Wait before reloading a log that keeps refusing: reading it again would not help."""
        repeated = self._failed_writes - 1
        if repeated > 0:
            pause_seconds = RELOAD_PAUSE_SECONDS * 2 ** min(repeated - 1, 10)
            await asyncio.sleep(min(pause_seconds, RELOAD_PAUSE_SECONDS_MAX))

    # Operations

    def write(self, operation: Operation[M], on_error: OnError) -> None:
        """Run an operation; its responses go through the replies of its outcome.

        `on_error` is called if the operation cannot run at all: it raised a KafkaError, this shard
        is not in service, or too few replicas are in sync for its records.
        """
        if (unavailable := self._unavailable()) is not None:
            on_error(unavailable)
            return
        try:
            self._operate(operation)
        except KafkaError as error:
            self._arm()  # it may have set a deadline before
            self._refuse(on_error, error)

    def _operate(self, operation: Operation[M]) -> None:
        """Run an operation and replay its records; raise KafkaError if it changes nothing."""
        outcome = operation(self.machine, self._clock.now_ms())
        outcome, encoded = self._encode(outcome)
        if encoded:
            self._check_replicas()
        for take_note in outcome.notes:
            take_note()
        self._replay(outcome.records, self.journal.log.end_offset + self._unwritten_count)
        if encoded:
            self._operations += [[each] for each in encoded] if outcome.is_divisible else [encoded]
            self._unwritten_count += len(encoded)
            if self.set_aside:
                for each in encoded:
                    self.set_aside.supersede(each.key)
        self._replies += outcome.replies
        if encoded or outcome.replies:
            self._write_out_soon()
        self._arm()

    def _refuse(self, on_error: OnError, error: KafkaError) -> None:
        """Send a client an error once everything is committed that may have caused it."""
        log = self.journal.log
        is_committed = not self._operations and log.high_watermark >= log.end_offset
        if is_committed or error.code in COORDINATOR_UNAVAILABLE:
            on_error(error)
        else:
            self._replies.append(told(on_error, error))
            self._write_out_soon()

    def _check_replicas(self) -> None:
        """Raise KafkaError if too few replicas are in sync to append anything.

        Before anything is replayed: the machine would have to be loaded again for each request.
        """
        if self.journal.has_enough_replicas:
            return
        name = self.journal.name
        if not self._is_refusing:
            self._is_refusing = True
            logger.warning("%s takes no records: fewer replicas in sync than it needs", name)
        raise KafkaError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            f"{name}: fewer replicas are in sync than min.insync.replicas asks for",
        )

    def write_transactional(
        self, operation: Operation[M], on_error: OnError, *, producer_id: int, producer_epoch: int
    ) -> None:
        """Run an operation whose records count once the producer's transaction is committed.

        They are a separate batch, appended before they are replayed: if the log refuses it,
        because the producer was fenced, no other operation is affected.
        """
        self._write_out_all()
        if (unavailable := self._unavailable()) is not None:
            on_error(unavailable)
            return
        try:
            outcome = operation(self.machine, self._clock.now_ms())
            outcome, encoded = self._encode(outcome)
            if encoded:
                self._check_replicas()
                self._append(encoded, producer_id, producer_epoch)
        except KafkaError as error:
            self._refuse(on_error, error)
            return
        for take_note in outcome.notes:
            take_note()
        records = tuple(
            record._replace(producer_id=producer_id, producer_epoch=producer_epoch)
            for record in outcome.records
        )
        self._replay(records, self.journal.log.end_offset - len(records))
        self._arm()
        self._answering.add(outcome.replies)

    def end_transaction(self, marker: memoryview, *, transaction_version: int) -> Appended:
        """Write the marker of a transaction and apply it to the machine; KafkaError if refused."""
        self._write_out_all()
        if (unavailable := self._unavailable()) is not None:
            raise unavailable
        appended = self.journal.append_own(marker, transaction_version=transaction_version)
        ((_, header),) = read_headers(marker)
        replay_marker(self.machine, marker, header)
        self._arm()
        return appended

    def _replay(self, records: Iterable[CoordinatorRecord], first_offset: int) -> None:
        try:
            for offset, record in enumerate(records, first_offset):
                self.machine.replay(record._replace(offset=offset))
        except Exception:
            # The machine is now in neither the old nor the new state.
            self._begin_anew()
            raise

    def _encode(self, outcome: Outcome) -> tuple[Outcome, list[EncodedRecord]]:
        fitting, encoded = fit(outcome, self._batch_bytes_max)
        if len(encoded) < len(outcome.records):
            self._timer.unmet_count += 1
            logger.error(
                "%s: dropped %d records, each larger than the %d bytes that a batch may hold "
                "(max.message.bytes)",
                *(self.journal.name, len(outcome.records) - len(encoded), self._batch_bytes_max),
            )
        return fitting, encoded

    @property
    def _batch_bytes_max(self) -> int:
        return self.journal.log.settings.rules.max_message_bytes - HEADER_BYTES

    def _write_out_soon(self) -> None:
        if not self._is_write_due:
            self._is_write_due = True
            asyncio.get_running_loop().call_soon(self._write_out)

    def _write_out_all(self) -> None:
        """Append everything that was replayed, including what the replies sent now lead to."""
        self._write_out()
        while self._operations:
            self._write_out()

    def _write_out(self) -> None:
        """Append what was replayed, and reply when it is committed."""
        self._is_write_due = False
        if not self._is_leading():
            self.close()
            return
        operations, replies = self._operations, tuple(self._replies)
        self._operations, self._replies, self._unwritten_count = [], [], 0
        try:
            for records in put_together(operations, self._batch_bytes_max):
                self._append(records)
        except KafkaError as error:
            logger.error("%s cannot be written: %s", self.journal.name, error.message)
            # First, because a caller may retry at once and must not see what was lost.
            self._begin_anew()
            fail_all([reply for reply, _ in replies], error)
            return
        if operations:
            self._failed_writes = 0
        self._answering.add(replies)

    def _append(
        self,
        records: list[EncodedRecord],
        producer_id: int = NO_PRODUCER,
        producer_epoch: int = NO_PRODUCER_EPOCH,
    ) -> None:
        batch = build_record_batch(
            records,
            self._clock.now_ms(),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            compression=self._compression,
        )
        try:
            self.journal.append_own(memoryview(batch))
        except KafkaError as error:
            raise _not_written(self.journal.name, error) from error
        if self._is_refusing:
            self._is_refusing = False
            logger.info("%s takes records again", self.journal.name)

    def _refuse_unsynced(self) -> None:
        """Refuse what waits for a disk that failed: nobody knows whether it stays."""
        name, failure = self.journal.name, self.journal.log.failure
        logger.error("%s cannot be synced: %s", name, failure)
        waiting = self._answering.clear()
        self._begin_anew()
        fail_all(waiting, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{name}: {failure}"))

    # Time

    def rearm(self) -> None:
        """Set the timer again after the clock was moved."""
        self._timer.disarm()
        self._arm()

    def _arm(self) -> None:
        is_active = self.state is State.ACTIVE
        self._timer.arm(self.machine.next_deadline_ms() if is_active else None)

    def _on_timer(self) -> None:
        """Handle some of the deadlines that are due; the rest follow in a later turn."""
        self._timer.disarm()
        loop = asyncio.get_running_loop()
        until = loop.time() + DEADLINES_SECONDS_MAX
        try:
            for _ in range(DEADLINES_AT_ONCE):
                if not self.is_serving:
                    break
                unmet_before = self._timer.unmet_count
                self._meet_next()
                if self._timer.unmet_count == unmet_before:
                    self._timer.unmet_count = 0
                else:
                    break
                due_ms = self.machine.next_deadline_ms()
                if due_ms is None or due_ms > self._clock.now_ms() or loop.time() >= until:
                    break
        except Exception:
            self._timer.unmet_count += 1
            raise
        finally:
            self._timer.disarm()
            self._arm()  # one failed deadline does not stop the others

    def _meet_next(self) -> None:
        try:
            self._operate(self._meet_deadline)
        except KafkaError as error:
            self._on_deadline_unmet(error)

    def _meet_deadline(self, machine: M, now_ms: int) -> Outcome:
        outcome = machine.on_deadline(now_ms)
        if not self.set_aside:
            return outcome
        # Nothing is decided for an id whose records are only partly known.
        served = tuple(
            each for each in outcome.records if machine.id_of(each.key) not in self.set_aside
        )
        if len(served) < len(outcome.records):
            self._timer.unmet_count += 1
        return outcome._replace(records=served)

    def _on_deadline_unmet(self, error: KafkaError) -> None:
        self._timer.unmet_count += 1
        self.machine.on_deadline_unmet(self._clock.now_ms())
        if not self._is_refusing:  # that was logged, and it may be long
            name = self.journal.name
            logger.error("%s: a deadline could not be handled: %s", name, error.message)

    # When it cannot go on

    def _begin_anew(self) -> None:
        self._failed_writes += 1
        self.start()
        self._abandon()

    def _abandon(self) -> None:
        """Fail all pending replies; the machine is not visible meanwhile."""
        self._timer.disarm()
        machine, self.machine = self.machine, self._make()
        self.set_aside = SetAside()
        waiting = self._answering.clear()
        waiting += [reply for reply, _ in self._replies]
        waiting += machine.waiting()
        self._operations, self._replies, self._unwritten_count = [], [], 0
        fail_all(waiting, _not_coordinator(self.journal.name))

    def _unavailable(self) -> KafkaError | None:
        """Return why operations cannot run; None if they can."""
        if self.state is State.ACTIVE and self._is_leading():
            return None
        if self.state is State.LOADING:
            return KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{self.journal.name} is being loaded"
            )
        if self.state is State.FAILED:
            return KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"{self.journal.name} could not be loaded; see the node's log",
            )
        return _not_coordinator(self.journal.name)


def _not_coordinator(name: str) -> KafkaError:
    return KafkaError(ErrorCode.NOT_COORDINATOR, f"this node does not coordinate {name}")


def _not_written(name: str, error: KafkaError) -> KafkaError:
    """Return an error code that coordinators use: clients expect no others (as in Kafka)."""
    if error.code == ErrorCode.INVALID_PRODUCER_EPOCH:
        return error
    if error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
        return _not_coordinator(name)
    if error.code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, error.message)
    return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{name}: {error.message}")
