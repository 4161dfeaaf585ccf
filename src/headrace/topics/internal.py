"""The coordinators' internal topics, created with the first request for a coordinator.

They follow Kafka's settings except for the replication factor, which is at most the number of
brokers that are up. So a cluster of one node has coordinators without a special setting; when more
brokers are up, the controller adds replicas up to the configured factor (`replication.raising`).
"""

import logging
from typing import TYPE_CHECKING, Final

import msgspec

from headrace.errors import ErrorCode, KafkaError
from headrace.ids import TopicName
from headrace.server.proposals import propose_each
from headrace.topics.creation import NewTopic, candidates, on_demand, plan_topic

if TYPE_CHECKING:
    from headrace.server.broker import Broker

CREATION_TIMEOUT_MS: Final = 15_000
"""How long a request waits for the topic: half of a client's request timeout."""
MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"

logger = logging.getLogger(__name__)


async def create_internal_topic(broker: "Broker", name: TopicName) -> None:
    """Create an internal topic; raise KafkaError COORDINATOR_NOT_AVAILABLE if that fails.

    Of concurrent requests one creates the topic and the others find it.
    """
    if broker.image.topic(name) is not None:
        return
    try:
        change = plan_topic(broker, _bounded(broker, name))
        (refused,) = await propose_each(broker, [change], CREATION_TIMEOUT_MS, None)
    except KafkaError as error:
        refused = error
    if refused is not None and refused.code != ErrorCode.TOPIC_ALREADY_EXISTS:
        logger.error("topic %s cannot be created: %s", name, refused)
        raise KafkaError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            f"the topic {name} cannot be created: {refused.message}",
        )


def _bounded(broker: "Broker", name: TopicName) -> NewTopic:
    """Return the topic with no more replicas than there are brokers."""
    asked = on_demand(broker, name)
    up = sum(each.is_up for each in candidates(broker.image))
    replicas = max(min(asked.replication_factor, up), 1)
    configs = tuple(
        # More replicas could not be in sync, and nothing could be written.
        (key, str(min(int(value), replicas)) if key == MIN_INSYNC_REPLICAS and value else value)
        for key, value in asked.configs
    )
    return msgspec.structs.replace(asked, replication_factor=replicas, configs=configs)
