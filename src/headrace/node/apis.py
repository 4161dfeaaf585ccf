"""The APIs that a node serves, and the module of each handler.

An API is served by `handle` in the module of `headrace.api` with its name. A module is imported
with the first request for its API, so that a node starts without importing all of them.
"""

from collections.abc import Coroutine, Mapping
from importlib import import_module
from typing import Final

from headrace.server.broker import Broker
from headrace.server.request import Guard, Handler, Request
from headrace.wire import ApiKey
from headrace.wire.schema import Message

_HANDLE: Final = "handle"
_SHARE_GROUP_STATE: Final[Mapping[ApiKey, str]] = {
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: "handle_initialize",
    ApiKey.READ_SHARE_GROUP_STATE: "handle_read",
    ApiKey.WRITE_SHARE_GROUP_STATE: "handle_write",
    ApiKey.DELETE_SHARE_GROUP_STATE: "handle_delete",
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: "handle_read_summary",
}
"""Five APIs that share one module, `api.share_group_state`."""
SERVED: Final = frozenset(
    {
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.API_VERSIONS,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.CREATE_ACLS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_ACLS,
        ApiKey.DELETE_GROUPS,
        ApiKey.DELETE_RECORDS,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        ApiKey.DELETE_TOPICS,
        ApiKey.DESCRIBE_ACLS,
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.ELECT_LEADERS,
        ApiKey.END_TXN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.FETCH,
        ApiKey.FIND_COORDINATOR,
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
        ApiKey.HEARTBEAT,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.JOIN_GROUP,
        ApiKey.LEAVE_GROUP,
        ApiKey.LIST_CONFIG_RESOURCES,
        ApiKey.LIST_GROUPS,
        ApiKey.LIST_OFFSETS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_TRANSACTIONS,
        ApiKey.METADATA,
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_DELETE,
        ApiKey.OFFSET_FETCH,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ApiKey.PRODUCE,
        ApiKey.PUSH_TELEMETRY,
        ApiKey.REMOVE_RAFT_VOTER,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SHARE_ACKNOWLEDGE,
        ApiKey.SHARE_FETCH,
        ApiKey.SHARE_GROUP_DESCRIBE,
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.STREAMS_GROUP_DESCRIBE,
        ApiKey.STREAMS_GROUP_HEARTBEAT,
        ApiKey.SYNC_GROUP,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.UPDATE_FEATURES,
        ApiKey.UPDATE_RAFT_VOTER,
        ApiKey.WRITE_TXN_MARKERS,
        *_SHARE_GROUP_STATE,
    }
)
"""Every API that clients may call."""
CHANGES: Final = frozenset(
    {
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.CREATE_ACLS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_ACLS,
        ApiKey.DELETE_TOPICS,
        ApiKey.ELECT_LEADERS,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.UPDATE_FEATURES,
    }
)
"""What changes the metadata: Kafka's brokers forward these to the controller, which knows all.

Here any node handles them, once it knows all that was committed before they came. Otherwise one
that lags would not find a topic that a client has just created through another node.
"""


def module_of(key: ApiKey) -> str:
    """Return the name of the module that serves an API."""
    return f"headrace.api.{'share_group_state' if key in _SHARE_GROUP_STATE else key.name.lower()}"


def load_handler(key: ApiKey, guard: Guard | None = None) -> Handler:
    """Return the handler of an API that is served, behind the guard that checks rights, if any.

    Who may change what is judged by what the node knows once it has caught up: a topic's id that
    nobody has needs no right, and a right may be gone.
    """
    handler: Handler = getattr(import_module(module_of(key)), _SHARE_GROUP_STATE.get(key, _HANDLE))
    if guard is not None:
        handler = guard(key, handler)
    return _caught_up(handler) if key in CHANGES else handler


def load_handlers() -> None:
    """Load the handlers of all APIs, so that no first request waits for it; may run in a thread."""
    for key in SERVED:
        load_handler(key)


def _caught_up(handle: Handler) -> Handler:
    async def handle_caught_up(broker: Broker, request: Request) -> Message:
        await broker.quorum.catch_up()
        response = handle(broker, request)
        if isinstance(response, Coroutine):
            response = await response
        assert isinstance(response, Message), "what changes the metadata is awaited"
        return response

    return handle_caught_up
