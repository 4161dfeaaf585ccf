"""Topics in the tier, at a node that has none: it does not start, as in Kafka.

Their old records would be out of reach, and what the node deletes would be gone for good.
"""

from typing import Final

from headrace import config
from headrace.config.topic_checks import is_tiered
from headrace.errors import HeadraceError
from headrace.metadata.image import Image
from headrace.metadata.state import ResourceType

NAMED_MAX: Final = 5
"""How many topics the error names."""


class TieredTopicsLeft(HeadraceError):
    """Topics are in the tier, and the node has none."""


def refuse_tiered_topics(image: Image) -> None:
    """Raise TieredTopicsLeft if any topic is in the tier."""
    left = sorted(
        name
        for (kind, name), configs in image.state.configs.items()
        if kind is ResourceType.TOPIC and configs and is_tiered(configs)
    )
    if left:
        more = f" and {len(left) - NAMED_MAX} more" if len(left) > NAMED_MAX else ""
        raise TieredTopicsLeft(
            f"{config.REMOTE_LOG_STORAGE_SYSTEM_ENABLE.name}=false: topics are in the tier, "
            f"{', '.join(left[:NAMED_MAX])}{more}; start with the tier, then delete them or take "
            f"them out of it with {config.REMOTE_STORAGE_ENABLE.name}=false and "
            f"{config.REMOTE_LOG_DELETE_ON_DISABLE.name}=true"
        )
