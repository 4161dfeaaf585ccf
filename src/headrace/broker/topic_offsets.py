"""What groups know of a topic goes with it: one of the same name begins anew."""

import logging
from typing import TYPE_CHECKING

from headrace.broker.coordinators import Groups
from headrace.coordinator.machine import Outcome
from headrace.errors import KafkaError
from headrace.ids import TopicId, TopicName

if TYPE_CHECKING:
    from headrace.groups.machine import GroupsMachine

logger = logging.getLogger(__name__)


def forget_offsets(groups: Groups, topic: TopicName, topic_id: TopicId) -> None:
    """Delete the offsets of a topic that was deleted, of all groups that this node coordinates.

    A shard that is not in service keeps them until they are too old. Share groups have states of
    partitions in the place of offsets: what they know of these goes, the states do by themselves.
    """

    def forget(machine: "GroupsMachine", now_ms: int) -> Outcome:
        # It came with the machine; a node without groups does not wait for it.
        from headrace.groups.offsets.expiry import forget_topic  # noqa: PLC0415

        return forget_topic(machine.state, topic, now_ms)

    def forget_states(machine: "GroupsMachine", now_ms: int) -> Outcome:
        from headrace.groups.share.states import forget_topic_states  # noqa: PLC0415

        return forget_topic_states(machine.state, topic_id)

    def on_failed(answer: KafkaError | None) -> None:
        logger.warning("offsets of the deleted topic %s stay: %s", topic, answer)

    for shard in groups:
        shard.write(forget, on_failed)
        shard.write(forget_states, on_failed)
