"""What a node serves: one module an API family, each with its own part of the table.

A module is imported with the first request for one of its APIs: a node answers its first client
before it has read what it will do for its last.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Final

from headrace.broker.request import Handler
from headrace.wire import ApiKey

_APIS: Final[Mapping[str, tuple[ApiKey, ...]]] = {
    "api_versions": (ApiKey.API_VERSIONS,),
    "classic_groups": (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP),
    "cluster": (ApiKey.DESCRIBE_CLUSTER, ApiKey.UNREGISTER_BROKER),
    "configs": (
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.LIST_CONFIG_RESOURCES,
    ),
    "consumer_groups": (ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE),
    "elections": (ApiKey.ELECT_LEADERS,),
    "features": (ApiKey.UPDATE_FEATURES,),
    "fetch": (ApiKey.FETCH,),
    "find_coordinator": (ApiKey.FIND_COORDINATOR,),
    "group_administration": (
        ApiKey.LIST_GROUPS,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.DELETE_GROUPS,
        ApiKey.OFFSET_DELETE,
    ),
    "log_dirs": (ApiKey.DESCRIBE_LOG_DIRS, ApiKey.ALTER_REPLICA_LOG_DIRS),
    "metadata": (ApiKey.METADATA,),
    "offset_commits": (ApiKey.OFFSET_COMMIT, ApiKey.TXN_OFFSET_COMMIT),
    "offset_fetches": (ApiKey.OFFSET_FETCH,),
    "offsets": (ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH),
    "partitions": (ApiKey.CREATE_PARTITIONS,),
    "produce": (ApiKey.PRODUCE,),
    "producers": (ApiKey.INIT_PRODUCER_ID, ApiKey.DESCRIBE_PRODUCERS),
    "quorum": (ApiKey.DESCRIBE_QUORUM,),
    "reassignments": (ApiKey.ALTER_PARTITION_REASSIGNMENTS, ApiKey.LIST_PARTITION_REASSIGNMENTS),
    "records_deletion": (ApiKey.DELETE_RECORDS,),
    "share_acknowledge": (ApiKey.SHARE_ACKNOWLEDGE,),
    "share_fetch": (ApiKey.SHARE_FETCH,),
    "share_groups": (ApiKey.SHARE_GROUP_HEARTBEAT, ApiKey.SHARE_GROUP_DESCRIBE),
    "share_offsets": (
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    ),
    "share_states": (
        ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE,
        ApiKey.WRITE_SHARE_GROUP_STATE,
        ApiKey.DELETE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    ),
    "streams_groups": (ApiKey.STREAMS_GROUP_HEARTBEAT, ApiKey.STREAMS_GROUP_DESCRIBE),
    "telemetry": (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY),
    "topic_partitions": (ApiKey.DESCRIBE_TOPIC_PARTITIONS,),
    "topics": (ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS),
    "transaction_administration": (
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.LIST_TRANSACTIONS,
    ),
    "transactions": (ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.END_TXN),
}
"""Each module with the APIs that it serves."""
SERVED: Final[Mapping[ApiKey, str]] = {
    key: module for module, keys in _APIS.items() for key in keys
}
"""Every API that clients may call, and the module that has its handler."""


def load_handler(key: ApiKey) -> Handler:
    """Give the handler of an API that is served."""
    handlers: Mapping[ApiKey, Handler] = import_module(f"{__name__}.{SERVED[key]}").HANDLERS
    return handlers[key]
