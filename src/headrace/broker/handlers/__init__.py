"""What a node serves: one module an API family, each with its own part of the table."""

from collections.abc import Mapping
from typing import Final

from headrace.broker.handlers import (
    api_versions,
    classic_groups,
    cluster,
    configs,
    elections,
    features,
    fetch,
    find_coordinator,
    group_administration,
    log_dirs,
    metadata,
    offset_commits,
    offset_fetches,
    offsets,
    partitions,
    produce,
    producers,
    quorum,
    reassignments,
    records_deletion,
    telemetry,
    topic_partitions,
    topics,
)
from headrace.broker.request import Handler
from headrace.wire import ApiKey

_MODULES: Final = (
    api_versions,
    classic_groups,
    cluster,
    configs,
    elections,
    features,
    fetch,
    find_coordinator,
    group_administration,
    log_dirs,
    metadata,
    offset_commits,
    offset_fetches,
    offsets,
    partitions,
    produce,
    producers,
    quorum,
    reassignments,
    records_deletion,
    telemetry,
    topic_partitions,
    topics,
)
HANDLERS: Final[Mapping[ApiKey, Handler]] = {
    key: handler for module in _MODULES for key, handler in module.HANDLERS.items()
}
"""Every API that clients may call, by its key."""
