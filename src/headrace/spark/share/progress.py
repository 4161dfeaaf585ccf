"""How a stream of a queue moves on: acknowledge the batch that is durable, lease the next one.

The driver's part of a stream, without Spark around it.
"""

import asyncio
from typing import Any, Final

from headrace.client.errors import NotReachable
from headrace.client.offsets import Start, list_offsets
from headrace.client.outcomes import values_of
from headrace.client.share.acknowledgements import AcknowledgeType
from headrace.client.share.offsets import ShareStart, describe_share_offsets
from headrace.client.share.session import SharedPartition
from headrace.client.topics import TopicPartition
from headrace.errors import KafkaError
from headrace.spark.share import debts
from headrace.spark.share.held import Word, Words
from headrace.spark.share.intervals import Interval, aligned, outside
from headrace.spark.share.journal import Debts, Runs, ShareOffset, WrongCheckpoint, joined
from headrace.spark.share.leasing import Leases
from headrace.spark.share.options import TRIGGER_RECORDS, ShareOptions
from headrace.spark.share.rejections import Rejections

_WAIT_MS: Final = 250
"""How long a broker may wait for a first record."""
LAST_WAIT_MS: Final = 2_000
"""The same if no record means the end: records released in the meantime are still read."""
OTHERS_MS_MAX: Final = 60_000
"""How long a query that is to end waits for partitions that others have: as long as brokers wait
for a member that died, and a little more."""
LOCKED_MS_MAX: Final = 10_000
"""The same for records that there are and that are not given to us."""
_LOOK_MS: Final = 1_000
"""How often to look up the group's position."""
_LOOK_MS_MAX: Final = 5_000
_END: Final = float("inf")
_ACCEPT: Final = int(AcknowledgeType.ACCEPT)
_REJECT: Final = int(AcknowledgeType.REJECT)


class ShareProgress:
    """One stream's view of its queue. Belongs to one loop."""

    def __init__(self, options: ShareOptions) -> None:
        self._options = options
        self._leases = Leases(options)
        self._rejections = Rejections(self._leases.cluster, options.group)
        self._settled: int | None = None
        """The batch that was acknowledged last."""
        self._debts: Debts = {}
        self._next: tuple[ShareOffset, ShareOffset] | None = None
        """What was given last, and for which start."""
        self._target: dict[TopicPartition, int] | None = None
        self._starts: dict[TopicPartition, ShareStart] = {}
        self._looked_at = float("-inf")

    async def start(self) -> None:
        """Join the group; HeadraceError says why not."""
        await self._leases.start()

    async def close(self) -> None:
        """Release leased records, and leave the group."""
        await self._leases.close()

    async def set_target(self) -> None:
        """Stop at the current ends of the topics."""
        cluster = self._leases.cluster
        partitions = [
            TopicPartition(name, each.index)
            for name in self._options.topics
            for each in (await cluster.topic(name)).partitions
        ]
        found = await list_offsets(cluster, dict.fromkeys(partitions, int(Start.END)))
        self._target = {each: row.offset for each, row in values_of(found).items()}

    async def advance(self, done: ShareOffset, records_max: int | None) -> ShareOffset:
        """Acknowledge what is done; give the next batch, `done` itself if there is none."""
        if done.group != self._options.group:
            raise WrongCheckpoint(
                f"the checkpoint is of share group {done.group!r}, and this query is to read for "
                f"{self._options.group!r}: use another checkpointLocation"
            )
        if self._next is not None and self._next[0] == done:
            return self._next[1]
        await self._settle(done)
        await self._look(is_due=self._target is not None)
        if self._is_at_target():
            return done
        runs = await self._acquire(records_max or TRIGGER_RECORDS)
        if self._target is not None and not runs:
            runs = await self._acquire_patiently(records_max or TRIGGER_RECORDS)
        if self._target is not None and runs and not self._is_before_target(runs):
            await self._leases.release_given()
            return done
        if not runs:
            return done
        end = ShareOffset(done.group, done.batch + 1, runs, self._debts)
        self._next = (done, end)
        return end

    def lag(self) -> dict[str, Any]:
        """Return the group's position, for Spark's progress."""
        topics: dict[str, Any] = {}
        for (topic, partition), start in self._starts.items():
            known = {"startOffset": start.offset, "lag": start.lag}
            topics.setdefault(topic, {})[str(partition)] = {
                name: value for name, value in known.items() if value is not None
            }
        return topics

    async def _settle(self, done: ShareOffset) -> None:
        """Accept or reject the records of a durable batch; those no longer leased become debts."""
        if self._settled == done.batch:
            return
        if self._settled is None:
            self._debts = done.debts
        if done.runs:
            await self._rejections.read()
        rejected: dict[SharedPartition, list[Interval]] = {}
        words: dict[SharedPartition, list[Word]] = {}
        for shared, runs in done.runs.items():
            said = words[shared] = [
                Word(first, last, _REJECT if bad else _ACCEPT)
                for _, bad, first, last in aligned(runs, self._rejections.of(shared))
            ]
            rejected[shared] = [(first, last) for first, last, kind in said if kind == _REJECT]
            await asyncio.sleep(0)  # leases are renewed meanwhile
        unfinished = await self._leases.finish(words)
        for shared, each in debts.owed(done.runs, unfinished, rejected).items():
            self._debts = {
                **self._debts,
                shared: debts.incur(self._debts.get(shared, ()), each),
            }
        # Whatever is still held is of a batch that Spark does not know of.
        await self._leases.release_given()
        await self._rejections.erase(rejected)
        self._settled = done.batch

    async def _acquire(self, records_max: int) -> Runs:
        """Lease records; those that are owed are acknowledged on the way."""
        wait_ms = _WAIT_MS if self._target is None else LAST_WAIT_MS
        while True:
            came = await self._leases.acquire(records_max, wait_ms)
            fresh: Runs = {}
            words: dict[SharedPartition, list[Word]] = {}
            for shared, runs in came.items():
                parted = debts.part(runs, self._debts.get(shared, ()))
                if parted.fresh:
                    fresh[shared] = joined(parted.fresh)
                said = [
                    *(Word(*each, _ACCEPT) for each in parted.accepted),
                    *(Word(*each, _REJECT) for each in parted.rejected),
                ]
                if said:
                    words[shared] = sorted(said)
            if words:
                await self._pay(words)
            if fresh or not came:
                return fresh

    async def _acquire_patiently(self, records_max: int) -> Runs:
        """Wait for what other members have: records for a while, partitions for longer.

        They may be members that died and were not missed yet: a query that is started again after
        a crash would end with half of the queue.
        """
        now = asyncio.get_running_loop().time
        begin = ours_since = now()
        while True:
            await self._look(is_due=True)
            if self._is_more_elsewhere():
                # What comes from there is waited for like the rest, from then on.
                ours_since = now()
                is_enough = now() >= begin + OTHERS_MS_MAX / 1000
            else:
                is_enough = now() >= ours_since + LOCKED_MS_MAX / 1000
            if is_enough or self._is_at_target():
                return {}
            if runs := await self._acquire(records_max):
                return runs
            await asyncio.sleep(_WAIT_MS / 1000)  # an answer may come at once, too

    async def _pay(self, words: Words) -> None:
        unfinished = await self._leases.finish(words)
        for shared, said in words.items():
            paid = outside(said, unfinished.get(shared, ()))
            left_over = debts.pay(self._debts.get(shared, ()), paid)
            others = {key: each for key, each in self._debts.items() if key != shared}
            self._debts = {**others, shared: left_over} if left_over else others

    async def _look(self, *, is_due: bool) -> None:
        """Look up the group's position periodically, without waiting for its coordinator."""
        now = asyncio.get_running_loop().time()
        if not is_due and now < self._looked_at + _LOOK_MS / 1000:
            return
        self._looked_at = now
        try:
            async with asyncio.timeout(_LOOK_MS_MAX / 1000):
                found = await describe_share_offsets(self._leases.cluster, self._options.group)
        except (KafkaError, NotReachable, TimeoutError):
            return
        self._starts = {
            each: start for each, start in found.items() if isinstance(start, ShareStart)
        }
        self._debts = debts.forget(self._debts, self._start_of)

    def _start_of(self, shared: SharedPartition) -> float | None:
        start = self._starts.get(shared.partition)
        if start is None:
            return None
        return _END if start.lag == 0 else start.offset

    def _is_at_target(self) -> bool:
        return self._target is not None and all(map(self._is_done, self._target))

    def _is_more_elsewhere(self) -> bool:
        assigned = self._leases.assigned
        return any(each not in assigned and not self._is_done(each) for each in self._target or ())

    def _is_done(self, partition: TopicPartition) -> bool:
        """Return whether the group has finished the target range of a partition."""
        end = 0 if self._target is None else self._target[partition]
        start = self._starts.get(partition)
        if start is None:
            return end == 0
        # The start alone does not say it: brokers write down a new one with the next record.
        return start.lag == 0 or (start.offset or 0) >= end

    def _is_before_target(self, runs: Runs) -> bool:
        assert self._target is not None, "asked only where there is one"
        return any(
            run.first < self._target.get(shared.partition, 0)
            for shared, each in runs.items()
            for run in each
        )
