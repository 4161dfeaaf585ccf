"""The share coordinator: the shell around `share.state`.

It deletes the start of its logs, which no state needs any more, and the states of deleted topics.
"""

import logging
from collections.abc import Callable
from functools import partial

from headrace import config
from headrace.config import AnySettings
from headrace.coordinator.coordinator import Coordinator
from headrace.errors import HeadraceError, KafkaError
from headrace.ids import SHARE_STATES_TOPIC, TopicId
from headrace.log.cutting import delete_records
from headrace.loop.clock import Clock
from headrace.metadata.image import Image
from headrace.records.compression import Compression
from headrace.share.state.machine import ShareStatesMachine
from headrace.share.state.records import RECORD_TYPES
from headrace.share.state.states import ShareStates
from headrace.share.state.upkeep import forget_topic

ShareStateCoordinator = Coordinator[ShareStatesMachine]
logger = logging.getLogger(__name__)


def share_state_coordinator(
    settings: AnySettings, image_of: Callable[[], Image], clock: Clock
) -> ShareStateCoordinator:
    """Return the share coordinator."""

    def prune(index: int, offset: int | KafkaError) -> None:
        shard = coordinator.shard_at(index)
        if shard is None or isinstance(offset, KafkaError):
            return  # another node leads, or it was loaded again
        log = shard.journal.log
        former_offset = log.start_offset
        try:
            delete_records(log, offset)
        except HeadraceError as error:
            logger.error("%s was not pruned: %s", shard.journal.name, error)
        else:
            if log.start_offset > former_offset:
                name, start_offset = shard.journal.name, log.start_offset
                logger.info("%s begins at %d, at %d before", name, start_offset, former_offset)

    def make(index: int) -> ShareStatesMachine:
        return ShareStatesMachine(ShareStates(settings, image_of, partial(prune, index)))

    def partition_count() -> int | None:
        found = image_of().topic(SHARE_STATES_TOPIC)
        return None if found is None else len(found.partitions)

    coordinator: ShareStateCoordinator = Coordinator(
        SHARE_STATES_TOPIC,
        RECORD_TYPES,
        make,
        clock,
        partition_count,
        compression=Compression(settings[config.SHARE_COORDINATOR_STATE_TOPIC_COMPRESSION_CODEC]),
        write_timeout_ms=settings[config.SHARE_COORDINATOR_WRITE_TIMEOUT_MS],
    )
    return coordinator


def forget_share_states(coordinator: ShareStateCoordinator, topic_id: TopicId) -> None:
    """Delete the states of a deleted topic, of all groups whose states this node keeps.

    A shard that is not in service finds them later, when it looks for unused states. Shards
    without states of the topic write nothing: one request may delete thousands of topics.
    """

    def on_failed(error: KafkaError) -> None:
        logger.warning("states of a deleted topic stay for a while: %s", error)

    for shard in coordinator:
        if topic_id in shard.machine.state.keys_of:
            shard.write(
                lambda machine, now_ms: forget_topic(machine.state, topic_id, now_ms), on_failed
            )
