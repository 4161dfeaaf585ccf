"""What a node serves: one module an API family, each with its own part of the table."""

from collections.abc import Mapping
from typing import Final

from headrace.broker.handlers import (
    api_versions,
    classic_groups,
    cluster,
    configs,
    consumer_groups,
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
    streams_groups,
    telemetry,
    topic_partitions,
    topics,
    transaction_administration,
    transactions,
)
from headrace.broker.request import Handler
from headrace.wire import ApiKey

_MODULES: Final = (
    api_versions,
    classic_groups,
    cluster,
    configs,
    consumer_groups,
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
    streams_groups,
    telemetry,
    topic_partitions,
    topics,
    transaction_administration,
    transactions,
)
HANDLERS: Final[Mapping[ApiKey, Handler]] = {
    key: handler for module in _MODULES for key, handler in module.HANDLERS.items()
}
"""Every API that clients may call, by its key."""
