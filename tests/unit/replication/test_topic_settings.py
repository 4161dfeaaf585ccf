"""Configs that change get to every partition, also when many do at once."""

import asyncio

from headrace.metadata.ddl import SetConfigs
from headrace.metadata.state import ResourceType
from tests.unit.harness import Harness

PAST_ONE_TURN = 60


def set_config(harness: Harness, resource_type: ResourceType, *names: str, value: str) -> None:
    async def propose() -> None:
        key = "retention.ms" if resource_type is ResourceType.TOPIC else "log.retention.ms"
        await asyncio.gather(
            *(
                harness.broker.quorum.propose(SetConfigs(resource_type, name, {key: value}))
                for name in names
            )
        )
        async with asyncio.timeout(10):
            while any(
                partition.log.settings.retention_ms != int(value)
                for partition in harness.broker.replicas
            ):
                await asyncio.sleep(0)  # polls, up to the deadline

    harness.run(propose())


def test_configs_of_many_topics_that_change_at_once_get_to_all_of_them(harness: Harness) -> None:
    names = [f"t{number}" for number in range(PAST_ONE_TURN)]
    for name in names:
        harness.create_topic(name, partitions=2)
    set_config(harness, ResourceType.TOPIC, *names, value="12345")


def test_a_config_of_the_broker_gets_to_all_topics_that_do_not_have_their_own(
    harness: Harness,
) -> None:
    for number in range(PAST_ONE_TURN):
        harness.create_topic(f"t{number}")
    set_config(harness, ResourceType.BROKER, "", value="54321")


def test_the_configs_of_one_topic_hold_at_once(harness: Harness) -> None:
    harness.create_topic("orders")
    harness.create_topic("payments")

    async def propose() -> None:
        change = SetConfigs(ResourceType.TOPIC, "orders", {"retention.ms": "12345"})
        await harness.broker.quorum.propose(change)
        log = harness.partition("orders", 0).log
        assert log.settings.retention_ms == 12345
        other = harness.partition("payments", 0).log
        assert other.settings.retention_ms != 12345

    harness.run(propose())
