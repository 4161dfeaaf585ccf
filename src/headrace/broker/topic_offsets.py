"""What groups have committed for a topic goes with it: one of the same name begins anew."""

import logging

from headrace.broker.coordinators import Groups
from headrace.errors import KafkaError
from headrace.groups.offsets.expiry import forget_topic
from headrace.ids import TopicName

logger = logging.getLogger(__name__)


def forget_offsets(groups: Groups, topic: TopicName) -> None:
    """Delete the offsets of a topic that was deleted, of all groups that this node coordinates.

    A shard that is not in service keeps them until they are too old.
    """

    def on_failed(answer: KafkaError | None) -> None:
        logger.warning("offsets of the deleted topic %s stay: %s", topic, answer)

    for shard in groups:
        shard.write(lambda machine, now_ms: forget_topic(machine.state, topic, now_ms), on_failed)
