"""One fetcher: it copies all partitions that this node follows from one leader.

One request is in flight at a time. The next one goes out when what came is appended, because it
tells the leader how far this replica is. The leader keeps a session (KIP-227), so a request names
the partitions whose place changed, and a round in which nothing happened costs the same for one
partition and for thousands. Records go from the buffer that they were received in to the file.

What to do with a row is decided by `following`; here it is done. Appending takes turns with
everything else on the loop. A partition whose log is being cut, or that had an error, leaves the
session until it can go on. So does a throttled one that is behind, while the rate is exceeded.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from headrace import config
from headrace.errors import ErrorCode, HeadraceError, KafkaError
from headrace.ids import BrokerId, TopicId
from headrace.log.lookup import SpecialTimestamp
from headrace.log.replicating import append_part
from headrace.log.truncating import begin_behind, begin_for, begin_restart
from headrace.replication.cuts import begin_cut
from headrace.replication.followed import (
    Around,
    Followed,
    Line,
    ListedOffset,
    epoch_before,
    list_offsets,
)
from headrace.replication.following import (
    FIRST_PAUSE_MS,
    Append,
    AskEarliest,
    AskLatest,
    AskLocalStart,
    Drop,
    Follow,
    Pause,
    Phase,
    Place,
    Rebuild,
    Restart,
    Step,
    Truncate,
)
from headrace.replication.partition import Partition
from headrace.replication.replica_requests import (
    Complaints,
    Key,
    fetch_topics,
    forgotten_topics,
    row_of,
)
from headrace.replication.session_requests import SessionRequests
from headrace.wire.messages.fetch_request import FetchRequest, FetchTopic, ReplicaState
from headrace.wire.messages.fetch_response import FetchResponse, PartitionData

FETCH_VERSION_MIN: Final = 17
NAMES_MAX: Final = 1000
"""How many partitions one request names; others follow with the next one, at once."""
TURN_BYTES: Final = 4 * 1024 * 1024
TURN_OFFSETS: Final = 5000
TURN_ROWS: Final = 200
"""How much of a response is taken in one turn of the loop."""
THROTTLE_SECONDS: Final = 0.1
"""How long a throttled partition is not fetched before it is looked whether it may be."""
CUT_PATIENCE_SECONDS: Final = 0.1
"""How long the other partitions wait for truncations, which are mostly quick."""
_SESSION_ERRORS: Final = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)

_PASSING: Final = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
"""One of two nodes hears first of a new topic or leader."""
FAILURES_UNTOLD: Final = 3
"""How often in a row that is not worth a line in the log: it takes 140 ms."""

logger = logging.getLogger(__name__)


class Fetcher:
    """Copies partitions from one leader."""

    def __init__(self, leader: BrokerId, line: Line, around: Around) -> None:
        self.members: dict[Key, Followed] = {}
        self._leader = leader
        self._line = line
        self._around = around
        self._session: SessionRequests[Key] = SessionRequests()
        self._paused: dict[Followed, None] = {}
        self._news = asyncio.Event()
        self._failures = 0
        """How many requests in a row had no usable response."""
        self._complaints = Complaints()
        self._bytes, self._offsets, self._rows = 0, 0, 0
        self._rebuilding: set[asyncio.Task[None]] = set()
        self.task = asyncio.get_running_loop().create_task(self._run())

    # Partitions

    def add(self, followed: Followed) -> None:
        """Fetch a partition; one whose log is being cut waits for `resume`."""
        followed.fetcher = self
        self.members[followed.key] = followed
        if followed.follower.phase is Phase.FETCHING:
            self.resume(followed)

    def remove(self, followed: Followed) -> None:
        """Stop fetching a partition; a response that is on its way is not taken."""
        followed.stop()
        self._paused.pop(followed, None)
        if self.members.get(followed.key) is followed:
            del self.members[followed.key]
            self._session.forget(followed.key)

    def resume(self, followed: Followed) -> None:
        """Fetch a partition again after a pause or a truncation."""
        if followed.fetcher is self:
            followed.timer = None
            self._paused.pop(followed, None)
            log = followed.partition.log
            if not log.is_writable:
                # A leader would count on what a disk that fails may not have.
                self._pause(followed, Pause(ErrorCode.KAFKA_STORAGE_ERROR, log.failure or ""))
                return
            followed.follower.fetch()
            if followed.partition.is_follower_throttled and self._is_held_back(followed):
                self._hold_back(followed)
                return
            self._session.name(followed.key)
            self._news.set()

    def close(self) -> None:
        for task in (self.task, *self._rebuilding):
            task.cancel()
        for followed in self.members.values():
            followed.stop()

    # Requests

    async def _run(self) -> None:
        while True:
            if self._session.is_empty:
                self._news.clear()
                await self._news.wait()
            try:
                await self._fetch()
            except Exception:  # whatever it is, the other partitions must not stay behind
                if self._failures == 0:
                    logger.exception("a fetch from node %s failed", self._leader)
                await self._begin_again()

    async def _fetch(self) -> None:
        counters = self._around.counters
        counters.replica_fetches += 1
        await self._sync_named()
        request = self._request()
        try:
            response: FetchResponse = await self._line.send(
                self._leader, request, version_min=FETCH_VERSION_MIN
            )
        except HeadraceError as error:
            await self._begin_again(str(error))
            return
        if response.error_code in _SESSION_ERRORS and self._failures == 0:
            # The leader was started again, or needs the room: it is asked anew, at once.
            self._failures += 1
            counters.replica_fetch_failures += 1
            self._session.on_failure()
            return
        if response.error_code != ErrorCode.NONE:
            await self._begin_again(_code_name(response.error_code))
            return
        self._session.on_response(response.session_id)
        if response.responses:
            await self._take(response)
        self._failures = 0

    async def _begin_again(self, reason: str = "") -> None:
        """Begin another session after a pause, which news of a partition ends."""
        self._around.counters.replica_fetch_failures += 1
        self._session.on_failure()
        if self._failures == 0 and reason:
            logger.warning("node %s does not let this node follow: %s", self._leader, reason)
        pause_ms = min(
            FIRST_PAUSE_MS << min(self._failures, 20),
            self._around.settings[config.REPLICA_FETCH_BACKOFF_MS],
        )
        self._failures += 1
        self._news.clear()
        try:
            async with asyncio.timeout(pause_ms / 1000):
                await self._news.wait()
        except TimeoutError:
            pass

    async def _sync_named(self) -> None:
        """Sync the logs that the next request tells of, where flush.messages demands it.

        However they came to their ends: a leader counts on what it is told.
        """
        while True:
            named = map(self.members.__getitem__, self._session.upcoming(NAMES_MAX))
            unsynced = [each for each in named if each.partition.is_flush_awaited]
            if not unsynced:
                return
            await asyncio.gather(*map(self._sync, unsynced))

    async def _sync(self, followed: Followed) -> None:
        try:
            await followed.partition.log.flush()
        except KafkaError as error:
            if followed.fetcher is self and followed.follower.phase is Phase.FETCHING:
                self._pause(followed, _pause_for(error))

    def _request(self) -> FetchRequest:
        around, session, settings = self._around, self._session, self._around.settings
        named, forgotten = session.next(NAMES_MAX)
        broker = around.image_of().broker(around.node_id)
        return FetchRequest(
            replica_state=ReplicaState(
                replica_id=around.node_id,
                replica_epoch=-1 if broker is None else broker.broker_epoch,
            ),
            max_wait_ms=self._wait_ms(),
            min_bytes=settings[config.REPLICA_FETCH_MIN_BYTES],
            max_bytes=settings[config.REPLICA_FETCH_RESPONSE_MAX_BYTES],
            session_id=session.session_id,
            session_epoch=session.epoch,
            topics=self._topics(named) if named else [],
            forgotten_topics_data=forgotten_topics(forgotten) if forgotten else [],
        )

    def _topics(self, named: Iterable[Key]) -> list[FetchTopic]:
        bytes_max = self._around.settings[config.REPLICA_FETCH_MAX_BYTES]
        places = ((key, self._ask(self.members[key])) for key in named)
        return fetch_topics(places, bytes_max)

    def _ask(self, followed: Followed) -> Place:
        return followed.follower.ask(followed.partition.log)

    def _wait_ms(self) -> int:
        """Return how long the leader may wait: not while there is more to ask for."""
        if self._session.has_more_to_name:
            return 0
        wait_ms: int = max(self._around.settings[config.REPLICA_FETCH_WAIT_MAX_MS], 0)
        if self._paused:
            now = asyncio.get_running_loop().time()
            due = min(each.timer.when() for each in self._paused if each.timer is not None)
            wait_ms = min(wait_ms, max(int((due - now) * 1000) + 1, 1))
        return wait_ms

    # Responses

    async def _take(self, response: FetchResponse) -> None:
        """Do what each row asks for."""
        out_of_range: list[Followed] = []
        in_tier: list[Followed] = []
        cuts: list[asyncio.Task[bool]] = []
        for topic in response.responses:
            for row in topic.partitions:
                followed = self.members.get((TopicId(topic.topic_id), row.partition_index))
                if followed is None:
                    continue
                step = followed.follower.on_row(row_of(row), followed.partition.log)
                if isinstance(step, Append):
                    await self._append(followed, row)
                elif isinstance(step, Follow):
                    self._follow(followed, row)
                elif isinstance(step, AskLatest):
                    out_of_range.append(followed)
                elif isinstance(step, AskLocalStart):
                    in_tier.append(followed)
                else:
                    self._act(followed, step, cuts)
                self._rows += 1
                if self._is_turn_over():
                    await self._end_turn()
        if out_of_range:
            await self._ask_range(out_of_range, cuts)
        if in_tier:
            await self._ask_local_start(in_tier)
        self._complaints.log(self._leader)
        if cuts:
            await asyncio.wait(cuts, timeout=CUT_PATIENCE_SECONDS)

    def _is_turn_over(self) -> bool:
        return self._bytes >= TURN_BYTES or self._offsets >= TURN_OFFSETS or self._rows >= TURN_ROWS

    async def _end_turn(self) -> None:
        self._bytes, self._offsets, self._rows = 0, 0, 0
        await asyncio.sleep(0)

    async def _append(self, followed: Followed, row: PartitionData) -> None:
        """Append records. Between two turns the leader or the log may change: the rest goes."""
        partition, follower = followed.partition, followed.follower
        log, asked = partition.log, follower.asked
        assert asked is not None
        chunk = memoryview(row.records or b"")
        before = log.end_offset
        position, end_offset = 0, before
        try:
            if log.start_offset == before and (cut := begin_for(log, chunk)) is not None:
                is_done = await asyncio.shield(self._around.cuts.start(partition, cut))
                if not is_done or not self._is_current(followed, asked):
                    await self._move_back(partition)
                    return
                end_offset = log.end_offset
            while log.end_offset == end_offset and self._is_current(followed, asked):
                following = append_part(
                    log,
                    chunk,
                    position,
                    epoch_max=asked.leader_epoch,
                    now_ms=self._around.clock.now_ms(),
                )
                if following == position:
                    break
                self._bytes += following - position
                self._offsets += log.end_offset - end_offset
                self._around.counters.replica_bytes_in += following - position
                if partition.is_follower_throttled:
                    self._around.throttle.record(following - position)
                position, end_offset = following, log.end_offset
                if position == len(chunk):
                    break
                if self._is_turn_over():
                    await self._end_turn()
        except Exception as error:  # one partition must not hold up the others
            if not isinstance(error, KafkaError) and follower.failures == 0:
                logger.exception("records of %s cannot be appended", partition.name)
            if self._is_current(followed, asked):
                self._pause(followed, _pause_for(error))
            return
        if self._is_current(followed, asked):
            self._follow(followed, row)

    def _is_current(self, followed: Followed, asked: Place) -> bool:
        """Return whether a partition is still followed as it was when `asked` was sent."""
        return (
            followed.fetcher is self
            and followed.follower.asked is asked
            and followed.partition.leader_epoch == asked.leader_epoch
        )

    async def _move_back(self, partition: Partition) -> None:
        """Undo the move of an empty log to a batch that is not appended after all."""
        log = partition.log
        if log.end_offset < log.start_offset and not log.is_being_cut:
            cut = begin_restart(log, log.start_offset)
            await asyncio.shield(self._around.cuts.start(partition, cut))

    def _follow(self, followed: Followed, row: PartitionData) -> None:
        """Take the leader's high watermark and start; tell it where this replica is."""
        partition, log = followed.partition, followed.partition.log
        try:
            partition.follow(row.high_watermark, row.log_start_offset)
        except KafkaError as error:
            self._pause(followed, _pause_for(error))
            return
        followed.follower.failures = 0
        followed.lag = max(row.high_watermark - log.end_offset, 0)
        if partition.is_follower_throttled and self._is_held_back(followed):
            self._hold_back(followed)
        elif followed.follower.is_moved(log):
            self._session.name(followed.key)

    def _is_held_back(self, followed: Followed) -> bool:
        """Return whether a throttled partition is not fetched now: it is behind, others went."""
        return followed.lag > 0 and self._around.throttle.is_exceeded()

    def _hold_back(self, followed: Followed) -> None:
        """Leave a throttled partition out for a while."""
        self._session.forget(followed.key)
        self._resume_after(followed, THROTTLE_SECONDS)

    # Truncation

    def _cut(
        self, followed: Followed, step: Truncate | Restart, cuts: "list[asyncio.Task[bool]]"
    ) -> None:
        """Cut a log; the partition is fetched again when its files are in line."""
        partition = followed.partition
        try:
            cut = begin_cut(partition, step)
        except KafkaError as error:
            self._pause(followed, _pause_for(error))
            return
        self._around.counters.replica_truncations += 1
        cutting = self._around.cuts.start(partition, cut)
        self.wait_for(followed, cutting)
        cuts.append(cutting)

    def wait_for(self, followed: Followed, cutting: "asyncio.Task[bool]") -> None:
        """Fetch a partition again when its log has been cut."""
        followed.follower.work()
        self._session.forget(followed.key)
        cutting.add_done_callback(lambda _: self.resume(followed))

    async def _ask_range(self, asked: list[Followed], cuts: "list[asyncio.Task[bool]]") -> None:
        """Ask where the leader's logs end, and if need be where they start; act on it."""
        latest = await self._list_offsets(self._set_to_work(asked), SpecialTimestamp.LATEST)
        left = []
        for followed, (offset, _) in latest:
            step = followed.follower.on_latest(offset, followed.partition.log)
            if isinstance(step, AskEarliest):
                left.append(followed)
            else:
                self._act(followed, step, cuts)
        if left:
            for followed, (offset, _) in await self._list_offsets(left, SpecialTimestamp.EARLIEST):
                step = followed.follower.on_earliest(offset, followed.partition.log)
                self._act(followed, step, cuts)

    def _set_to_work(self, members: list[Followed]) -> list[Followed]:
        """Stop fetching partitions for the time being; return those that are fetched from here."""
        # Not one that began another leader epoch while others were appended.
        members = [each for each in members if each.fetcher is self]
        for followed in members:
            followed.follower.work()
            self._session.forget(followed.key)
        return members

    async def _ask_local_start(self, asked: list[Followed]) -> None:
        """Ask where the leader's logs and their local parts start; rebuild ours from the tier."""
        asked = self._set_to_work(asked)
        starts = dict(await self._list_offsets(asked, SpecialTimestamp.EARLIEST))
        local = await self._list_offsets(list(starts), SpecialTimestamp.EARLIEST_LOCAL)
        for followed, listed in local:
            step = followed.follower.on_local_start(
                listed.offset, starts[followed].offset, followed.partition.log
            )
            if isinstance(step, Rebuild):
                rebuilding = self._rebuild(followed, step, listed)
                task = asyncio.get_running_loop().create_task(rebuilding)
                self._rebuilding.add(task)
                task.add_done_callback(self._rebuilding.discard)
            else:
                self._act(followed, step, [])

    async def _rebuild(self, followed: Followed, step: Rebuild, listed: ListedOffset) -> None:
        """Begin a log where the leader's disk begins, with the history that the tier has."""
        partition = followed.partition
        try:
            epoch = await epoch_before(self._line, self._leader, followed, self._around, listed)
            history = await self._around.remote.history(
                partition, step.offset, step.start_offset, epoch
            )
            if followed.fetcher is not self or followed.follower.phase is not Phase.WORKING:
                return  # it has another leader meanwhile
            cut = begin_behind(partition.log, history)
        except Exception as error:  # nobody else would fetch this partition again
            if not isinstance(error, KafkaError):
                logger.exception("%s cannot be rebuilt from the tier", partition.name)
            if followed.fetcher is self and followed.follower.phase is Phase.WORKING:
                self._pause(followed, _pause_for(error))
                self._complaints.log(self._leader)
            return
        logger.info(
            "%s goes on at offset %d, where its leader's disk begins; the rest is in the tier",
            *(partition.name, history.next_offset),
        )
        self._around.counters.replica_truncations += 1
        self.wait_for(followed, self._around.cuts.start(partition, cut))

    def _act(self, followed: Followed, step: Step, cuts: "list[asyncio.Task[bool]]") -> None:
        if isinstance(step, Truncate | Restart):
            self._cut(followed, step, cuts)
        elif isinstance(step, Pause):
            self._pause(followed, step)
        elif isinstance(step, Drop) and followed.follower.phase is Phase.FETCHING:
            self._session.name(followed.key)  # so that the leader knows where this replica is

    async def _list_offsets(
        self, asked: list[Followed], timestamp: int
    ) -> list[tuple[Followed, ListedOffset]]:
        """Return what the leader says; those that it does not answer for are paused."""
        found = await list_offsets(self._line, self._leader, asked, self._around, timestamp)
        offsets = []
        for followed, outcome in found:
            if followed.fetcher is not self or followed.follower.phase is not Phase.WORKING:
                continue  # it has another leader meanwhile
            if isinstance(outcome, Pause):
                self._pause(followed, outcome)
            else:
                offsets.append((followed, outcome))
        return offsets

    # Errors

    def _pause(self, followed: Followed, why: Pause) -> None:
        """Leave a partition alone for a while."""
        follower = followed.follower
        self._around.counters.replica_errors += 1
        self._session.forget(followed.key)
        if follower.failures == (FAILURES_UNTOLD if why.code in _PASSING else 0):
            self._complaints.add(_code_name(why.code), why.reason, followed.partition.name)
        pause_ms = follower.pause_ms(self._around.settings[config.REPLICA_FETCH_BACKOFF_MS])
        self._resume_after(followed, pause_ms / 1000)

    def _resume_after(self, followed: Followed, seconds: float) -> None:
        if followed.timer is not None:
            followed.timer.cancel()
        loop = asyncio.get_running_loop()
        followed.timer = loop.call_later(seconds, self.resume, followed)
        self._paused[followed] = None


def _pause_for(error: Exception) -> Pause:
    if isinstance(error, KafkaError):
        return Pause(error.code, error.message)
    return Pause(ErrorCode.UNKNOWN_SERVER_ERROR, repr(error))


def _code_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
