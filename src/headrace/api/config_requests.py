"""Changing the configs of resources: what AlterConfigs and IncrementalAlterConfigs share."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, TypeAlias

from headrace import config
from headrace.api.config_changes import (
    CONFIGS_PER_RESOURCE_MAX,
    Alteration,
)
from headrace.config.values import shorten
from headrace.errors import ErrorCode, KafkaError
from headrace.loop.slices import Slice, Slices, finish
from headrace.metadata.ddl import SetConfigs, SetConfigsIf
from headrace.metadata.state import ResourceType
from headrace.server.broker import Broker
from headrace.server.proposals import propose_planned
from headrace.server.request import Request

Change: TypeAlias = SetConfigs | SetConfigsIf


class AskedResource(NamedTuple):
    """A resource of a request, and what it should become."""

    resource_type: int
    name: str
    alterations: list[Alteration]


def read_resources(
    resources: Iterable[Any], read: Callable[[Any], Alteration]
) -> Slices[list[AskedResource]]:
    """Read the resources of a request; `read` reads one line of its kind."""
    current, found = Slice(), []
    for each in resources:
        # One more than is allowed is enough to refuse it.
        lines = [read(config) for config in each.configs[: CONFIGS_PER_RESOURCE_MAX + 1]]
        found.append(AskedResource(each.resource_type, each.resource_name, lines))
        if current.spend(1 + len(lines) // 2):
            yield
    return found


async def alter_resources(
    broker: Broker,
    asked: list[AskedResource],
    plan: Callable[[AskedResource], Change | None],
    *,
    is_validated_only: bool,
    by: Request,
) -> list[KafkaError | None]:
    """Plan each resource and propose what may be; None is success."""
    answers: list[KafkaError | None] = [None] * len(asked)
    changes = await finish(_plan_each(broker, asked, plan, answers))
    if changes and not is_validated_only:
        timeout_ms = broker.settings[config.REQUEST_TIMEOUT_MS]
        positions = list(changes)
        outcomes = await propose_planned(
            broker,
            list(changes.values()),
            lambda number: plan(asked[positions[number]]),
            timeout_ms,
            by,
        )
        for position, outcome in zip(changes, outcomes, strict=True):
            answers[position] = outcome
    return answers


def _plan_each(
    broker: Broker,
    asked: list[AskedResource],
    plan: Callable[[AskedResource], Change | None],
    answers: list[KafkaError | None],
) -> Slices[dict[int, Change]]:
    """Return the changes by position; refusals are added to the results."""
    times = Counter((each.resource_type, each.name) for each in asked)
    changes: dict[int, Change] = {}
    current = Slice()
    image = broker.image
    dynamic = (image.configs(ResourceType.BROKER, name) for name in ("", str(broker.node_id)))
    inherited = sum(map(len, dynamic))
    for position, each in enumerate(asked):
        try:
            if times[each.resource_type, each.name] > 1:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"{shorten(each.name)} is in the request more than once",
                )
            if change := plan(each):
                changes[position] = change
        except KafkaError as error:
            answers[position] = error
        if current.spend(_PLAN_UNITS + inherited + 2 * len(each.alterations)):
            yield
    return changes


_PLAN_UNITS: Final = 50
"""What it takes to see whether a resource may change: configs are checked with those they join."""
