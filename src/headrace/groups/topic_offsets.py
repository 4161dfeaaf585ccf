"""Removal of what groups know of a deleted topic: a new one of the same name starts afresh."""

import logging
from typing import TYPE_CHECKING

from headrace.coordinator.machine import Outcome
from headrace.coordinator.shard import State
from headrace.errors import KafkaError
from headrace.groups.coordinator import Groups
from headrace.ids import TopicId, TopicName

if TYPE_CHECKING:
    from headrace.groups.machine import GroupsMachine

logger = logging.getLogger(__name__)


def forget_offsets(groups: Groups, topic: TopicName, topic_id: TopicId) -> None:
    """Delete the offsets of a topic that was deleted, of all groups that this node coordinates.

    A shard that is not in service keeps them until they are too old. Share groups have states of
    partitions in the place of offsets: what they know of these goes, the states do by themselves.
    Shards that know nothing of the topic are not asked to write: there are many, and one request
    may delete thousands of topics.
    """

    def forget(machine: "GroupsMachine", now_ms: int) -> Outcome:
        # It came with the machine; a node without groups does not wait for it.
        from headrace.groups.offsets.expiry import forget_topic  # noqa: PLC0415

        return forget_topic(machine.state, topic, now_ms)

    def forget_states(machine: "GroupsMachine", now_ms: int) -> Outcome:
        from headrace.groups.share.states import forget_topic_states  # noqa: PLC0415

        return forget_topic_states(machine.state, topic_id, now_ms)

    def on_failed(answer: KafkaError | None) -> None:
        logger.warning("offsets of the deleted topic %s stay: %s", topic, answer)

    for shard in groups:
        state = shard.machine.state
        is_out_of_service = shard.state is not State.ACTIVE
        if is_out_of_service or state.offsets.groups_of(topic):
            shard.write(forget, on_failed)
        if is_out_of_service or topic_id in state.share_topics:
            shard.write(forget_states, on_failed)
