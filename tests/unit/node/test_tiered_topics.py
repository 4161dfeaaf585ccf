"""A node without a tier does not start while topics are in the tier."""

import pytest

from headrace.metadata.image import Image
from headrace.metadata.state import ResourceType
from headrace.node.tiered_topics import TieredTopicsLeft, refuse_tiered_topics


def image_of(**configs: dict[str, str]) -> Image:
    image = Image()
    for name, own in configs.items():
        image.state.configs[ResourceType.TOPIC, name] = own
    image.state.configs[ResourceType.GROUP, "readers"] = {"remote.storage.enable": "true"}
    return image


def test_topics_in_the_tier_are_named() -> None:
    tiered = {"remote.storage.enable": "true"}
    image = image_of(orders=tiered, plain={"remote.storage.enable": "false"}, other={})
    with pytest.raises(TieredTopicsLeft, match="orders") as refused:
        refuse_tiered_topics(image)
    assert "plain" not in str(refused.value)
    many = image_of(**{f"topic{number}": tiered for number in range(9)})
    with pytest.raises(TieredTopicsLeft, match="and 4 more"):
        refuse_tiered_topics(many)


def test_other_topics_do_not_matter() -> None:
    refuse_tiered_topics(image_of(orders={"retention.ms": "5"}))
