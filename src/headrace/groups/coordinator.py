"""The group coordinator: the shell around the machine of groups.

The machine is imported with the first partition that this node leads: it is a fifth of all modules
of a node, and many nodes have no groups when they start.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from headrace import config
from headrace.config import AnySettings
from headrace.coordinator.coordinator import Coordinator
from headrace.errors import COORDINATOR_UNAVAILABLE, KafkaError
from headrace.groups.record_types import RECORD_TYPES
from headrace.ids import GROUPS_TOPIC, TopicName
from headrace.loop.clock import Clock
from headrace.metadata.image import Image
from headrace.records.compression import Compression
from headrace.surroundings import new_uuid

if TYPE_CHECKING:
    from headrace.groups.machine import GroupsMachine
    from headrace.groups.state import Computation

logger = logging.getLogger(__name__)
Groups: TypeAlias = "Coordinator[GroupsMachine]"


def group_coordinator(settings: AnySettings, image_of: Callable[[], Image], clock: Clock) -> Groups:
    """Return the group coordinator."""

    def make(index: int) -> "GroupsMachine":
        from headrace.groups.machine import GroupsMachine  # noqa: PLC0415  see above
        from headrace.groups.state import GroupsState  # noqa: PLC0415

        elsewhere = partial(_compute_elsewhere, coordinator, index)
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


def _compute_elsewhere(groups: Groups, index: int, computation: "Computation | KafkaError") -> None:
    """Compute something in a thread, and have the shard that asked for it write it."""
    if isinstance(computation, KafkaError):
        return  # what it is for is not in the log, or is loaded from it again
    shard = groups.shard_at(index)

    def on_computed(computed: "asyncio.Future[object]") -> None:
        if shard is None or not shard.is_serving or computed.cancelled():
            return  # whoever leads now finds it missing
        if (error := computed.exception()) is not None:
            logger.error("group %s cannot go on", computation.group_id, exc_info=error)
        found = None if error is not None else computed.result()
        shard.write(
            lambda machine, now_ms: computation.finish(machine.state, found, now_ms), on_failed
        )

    def on_failed(error: KafkaError) -> None:
        # Without replicas, or while it moves, the next heartbeat finds it missing.
        is_passing = error.code in COORDINATOR_UNAVAILABLE
        level = logging.DEBUG if is_passing else logging.ERROR
        logger.log(level, "group %s: %s", computation.group_id, error)

    computing = asyncio.get_running_loop().run_in_executor(None, computation.compute)
    computing.add_done_callback(on_computed)


def _new_id() -> str:
    return str(new_uuid())


def _partition_count(image: Image, topic: TopicName) -> int | None:
    found = image.topic(topic)
    return None if found is None else len(found.partitions)
