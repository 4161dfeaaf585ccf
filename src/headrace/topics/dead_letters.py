"""Dead-letter topics: which ones a group may use, and their creation with the first letter."""

import logging
from typing import TYPE_CHECKING, Final

from headrace import config
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import TopicName
from headrace.server.proposals import propose_each
from headrace.share.led_partition import LedSharePartition
from headrace.topics.creation import on_demand, plan_topic

if TYPE_CHECKING:
    from headrace.server.broker import Broker

CREATION_TIMEOUT_MS: Final = 15_000

logger = logging.getLogger(__name__)


async def create_dead_letter_topic(broker: "Broker", name: str) -> None:
    """Create a topic with the broker's defaults; raise KafkaError if that is refused or fails."""
    if not broker.settings[config.DEAD_LETTER_AUTO_CREATE]:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"there is no topic {name}, and {config.DEAD_LETTER_AUTO_CREATE.name}=false: create it",
        )
    change = plan_topic(broker, on_demand(broker, name))
    (refused,) = await propose_each(broker, [change], CREATION_TIMEOUT_MS, None)
    if refused is None:
        logger.info("topic %s was created for dead letters", name)
    elif refused.code != ErrorCode.TOPIC_ALREADY_EXISTS:
        raise refused


def refuse_dead_letter_topic(broker: "Broker", led: LedSharePartition, name: str) -> str | None:
    """Return why a topic cannot take the dead letters of a share partition, or None.

    Letters that return to the group that gave up their records would cycle forever.
    """
    group_id = led.key.group_id
    if name == led.partition.topic:
        return f"topic {name} would be its own dead-letter topic"
    topic = broker.image.topic(TopicName(name))
    if topic is not None and topic.is_internal:
        return f"topic {name} is internal"
    if broker.share_partitions.has_group_read(group_id, name) or _is_subscribed(
        broker, group_id, name
    ):
        return f"group {group_id!r} reads topic {name}, which it names for its dead letters"
    return None


def _is_subscribed(broker: "Broker", group_id: str, name: str) -> bool:
    """Return whether a group that this node coordinates has a member that reads a topic."""
    try:
        groups = broker.groups.shard(group_id).machine.state.groups
    except KafkaError:
        return False
    # Not at the top: these modules are loaded with the first shard.
    from headrace.groups.share.group import ShareGroup  # noqa: PLC0415
    from headrace.groups.state import GroupId  # noqa: PLC0415

    group = groups.get(GroupId(group_id))
    return isinstance(group, ShareGroup) and group.is_subscribed_to(name)
