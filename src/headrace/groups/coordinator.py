"""The group coordinator: the shell around the machine of groups.

The machine is imported with the first partition that this node leads: it is a fifth of all modules
of a node, and many nodes have no groups when they start. Where there are groups, `load_machine`
does it before, in a thread.
"""

import logging
from collections.abc import Callable, Generator
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Final, TypeAlias

from headrace import config
from headrace.config import AnySettings
from headrace.coordinator.coordinator import Coordinator
from headrace.errors import COORDINATOR_UNAVAILABLE, KafkaError
from headrace.groups.record_types import RECORD_TYPES
from headrace.ids import GROUPS_TOPIC, TopicName
from headrace.loop.clock import Clock
from headrace.loop.tasks import Tasks
from headrace.loop.threads import FewThreads
from headrace.metadata.image import Image
from headrace.records.compression import Compression
from headrace.surroundings import new_uuid

if TYPE_CHECKING:
    from headrace.groups.machine import GroupsMachine
    from headrace.groups.state import Computation

COMPUTING_THREADS: Final = 2
"""How many threads compute for groups at once: what waits for disks needs threads, too."""

logger = logging.getLogger(__name__)
Groups: TypeAlias = "Coordinator[GroupsMachine]"


def load_machine() -> None:
    """Import the machine, which takes a while; may run in a thread."""
    import_module("headrace.groups.machine")


def group_coordinator(settings: AnySettings, image_of: Callable[[], Image], clock: Clock) -> Groups:
    """Return the group coordinator."""
    computing = _Computing()

    def make(index: int) -> "GroupsMachine":
        from headrace.groups.machine import GroupsMachine  # noqa: PLC0415  see above
        from headrace.groups.state import GroupsState  # noqa: PLC0415

        elsewhere = partial(computing.start, coordinator, index)
        return GroupsMachine(
            GroupsState(settings, image_of, new_id=_new_id, compute_elsewhere=elsewhere)
        )

    coordinator: Groups = Coordinator(
        GROUPS_TOPIC,
        RECORD_TYPES,
        make,
        clock,
        lambda: _partition_count(image_of(), GROUPS_TOPIC),
        compression=Compression(settings[config.OFFSETS_TOPIC_COMPRESSION_CODEC]),
        write_timeout_ms=settings[config.OFFSETS_COMMIT_TIMEOUT_MS],
    )
    return coordinator


class _Computing:
    """Computations that are too much for the loop, a few at a time, part by part."""

    def __init__(self) -> None:
        self._threads = FewThreads(COMPUTING_THREADS)
        self._tasks = Tasks()

    def start(self, groups: Groups, index: int, computation: "Computation | KafkaError") -> None:
        """Compute something in a thread, and have the shard that asked for it write it."""
        if not isinstance(computation, KafkaError):
            self._tasks.start(self._compute(groups, index, computation))
        # Else what it is for is not in the log, or is loaded from it again.

    async def _compute(self, groups: Groups, index: int, computation: "Computation") -> None:
        shard = groups.shard_at(index)
        work = computation.compute()
        found: object = None
        try:
            is_done = False
            while not is_done:
                is_done, found = await self._threads.run(_advance, work)
                if shard is None or not shard.is_serving:
                    return  # whoever leads now finds it missing
                if not is_done and not computation.is_wanted(shard.machine.state):
                    break
        except Exception as error:
            logger.error("group %s cannot go on", computation.group_id, exc_info=error)
            found = None

        def on_failed(error: KafkaError) -> None:
            # Without replicas, or while it moves, the next heartbeat finds it missing.
            is_passing = error.code in COORDINATOR_UNAVAILABLE
            level = logging.DEBUG if is_passing else logging.ERROR
            logger.log(level, "group %s: %s", computation.group_id, error)

        if shard is not None and shard.is_serving:
            shard.write(
                lambda machine, now_ms: computation.finish(machine.state, found, now_ms), on_failed
            )


def _advance(work: Generator[None, None, object]) -> tuple[bool, object]:
    """Do a part of a computation; return whether it was the last, and then the result."""
    try:
        next(work)
    except StopIteration as done:
        return True, done.value
    return False, None


def _new_id() -> str:
    return str(new_uuid())


def _partition_count(image: Image, topic: TopicName) -> int | None:
    found = image.topic(topic)
    return None if found is None else len(found.partitions)
