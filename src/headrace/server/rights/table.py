"""The rights of every API that is served, and the wrapping of handlers.

tests/unit/server/test_rights.py fails if an API has no row.
"""

from collections.abc import Coroutine, Mapping
from types import CoroutineType, GeneratorType
from typing import Any, Final

from headrace.errors import ErrorCode, KafkaError
from headrace.loop.slices import in_slices
from headrace.security.acls import Operation
from headrace.server.broker import Broker
from headrace.server.request import Answer, Handler, Request
from headrace.server.rights import cluster, groups, sessions, tokens, topics, transactions
from headrace.server.rights.audited import AuditedCheck
from headrace.server.rights.checks import Check, Outcome, Rule
from headrace.wire import ApiKey
from headrace.wire.schema import Message

Op: Final = Operation
_OPEN: Final = cluster.nobody_asks
_NODES: Final = cluster.needs(Op.CLUSTER_ACTION)
_SEES_CLUSTER: Final = cluster.needs(Op.DESCRIBE)
_CHANGES_CLUSTER: Final = cluster.needs(Op.ALTER)
_ALTERS_CONFIGS: Final = cluster.configs(Op.ALTER_CONFIGS, "responses")

RIGHTS: Final[Mapping[ApiKey, Rule]] = {
    ApiKey.PRODUCE: topics.produce,
    ApiKey.FETCH: sessions.fetch,
    ApiKey.LIST_OFFSETS: topics.each_topic(Op.DESCRIBE),
    ApiKey.METADATA: topics.metadata,
    ApiKey.OFFSET_COMMIT: groups.group_and_topics(Op.READ, Op.READ),
    ApiKey.OFFSET_FETCH: groups.offset_fetch,
    ApiKey.FIND_COORDINATOR: groups.find_coordinator,
    ApiKey.JOIN_GROUP: groups.whole_group(Op.READ),
    ApiKey.HEARTBEAT: groups.whole_group(Op.READ),
    ApiKey.LEAVE_GROUP: groups.whole_group(Op.READ),
    ApiKey.SYNC_GROUP: groups.whole_group(Op.READ),
    ApiKey.DESCRIBE_GROUPS: groups.describe_groups,
    ApiKey.LIST_GROUPS: groups.list_groups,
    ApiKey.SASL_HANDSHAKE: _OPEN,
    ApiKey.API_VERSIONS: _OPEN,
    ApiKey.CREATE_TOPICS: topics.create_topics,
    ApiKey.DELETE_TOPICS: topics.delete_topics,
    ApiKey.DELETE_RECORDS: topics.each_topic(Op.DELETE),
    ApiKey.INIT_PRODUCER_ID: transactions.init_producer_id,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: topics.offset_for_leader_epoch,
    ApiKey.ADD_PARTITIONS_TO_TXN: transactions.add_partitions,
    ApiKey.ADD_OFFSETS_TO_TXN: transactions.add_offsets,
    ApiKey.END_TXN: transactions.end,
    ApiKey.WRITE_TXN_MARKERS: transactions.write_markers,
    ApiKey.TXN_OFFSET_COMMIT: transactions.commit_offsets,
    ApiKey.DESCRIBE_ACLS: _SEES_CLUSTER,
    ApiKey.CREATE_ACLS: _CHANGES_CLUSTER,
    ApiKey.DELETE_ACLS: _CHANGES_CLUSTER,
    ApiKey.DESCRIBE_CONFIGS: cluster.configs(Op.DESCRIBE_CONFIGS, "results"),
    ApiKey.ALTER_CONFIGS: _ALTERS_CONFIGS,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _CHANGES_CLUSTER,
    ApiKey.DESCRIBE_LOG_DIRS: _SEES_CLUSTER,
    ApiKey.SASL_AUTHENTICATE: _OPEN,
    ApiKey.CREATE_DELEGATION_TOKEN: tokens.create,
    ApiKey.RENEW_DELEGATION_TOKEN: _OPEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN: _OPEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: tokens.describe,
    ApiKey.CREATE_PARTITIONS: topics.each_topic(Op.ALTER, answered="results"),
    ApiKey.DELETE_GROUPS: groups.delete_groups,
    ApiKey.ELECT_LEADERS: _CHANGES_CLUSTER,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _ALTERS_CONFIGS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _CHANGES_CLUSTER,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _SEES_CLUSTER,
    ApiKey.OFFSET_DELETE: groups.group_and_topics(Op.DELETE, Op.READ),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: cluster.needs(Op.DESCRIBE_CONFIGS),
    ApiKey.ALTER_CLIENT_QUOTAS: cluster.needs(Op.ALTER_CONFIGS),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _SEES_CLUSTER,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _CHANGES_CLUSTER,
    ApiKey.DESCRIBE_QUORUM: _SEES_CLUSTER,
    ApiKey.UPDATE_FEATURES: _CHANGES_CLUSTER,
    ApiKey.DESCRIBE_CLUSTER: cluster.describe_cluster,
    ApiKey.DESCRIBE_PRODUCERS: topics.each_topic(Op.READ),
    ApiKey.UNREGISTER_BROKER: _CHANGES_CLUSTER,
    ApiKey.DESCRIBE_TRANSACTIONS: transactions.describe,
    ApiKey.LIST_TRANSACTIONS: transactions.list_all,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: groups.member,
    ApiKey.CONSUMER_GROUP_DESCRIBE: groups.describe_members,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: _OPEN,
    ApiKey.PUSH_TELEMETRY: _OPEN,
    ApiKey.LIST_CONFIG_RESOURCES: cluster.needs(Op.DESCRIBE_CONFIGS),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: topics.describe_topic_partitions,
    ApiKey.SHARE_GROUP_HEARTBEAT: groups.member,
    ApiKey.SHARE_GROUP_DESCRIBE: groups.describe_members,
    ApiKey.SHARE_FETCH: sessions.share,
    ApiKey.SHARE_ACKNOWLEDGE: sessions.share,
    ApiKey.ADD_RAFT_VOTER: _CHANGES_CLUSTER,
    ApiKey.REMOVE_RAFT_VOTER: _CHANGES_CLUSTER,
    ApiKey.UPDATE_RAFT_VOTER: _NODES,
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: _NODES,
    ApiKey.READ_SHARE_GROUP_STATE: _NODES,
    ApiKey.WRITE_SHARE_GROUP_STATE: _NODES,
    ApiKey.DELETE_SHARE_GROUP_STATE: _NODES,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: _NODES,
    ApiKey.STREAMS_GROUP_HEARTBEAT: groups.streams_member,
    ApiKey.STREAMS_GROUP_DESCRIBE: groups.describe_streams,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: groups.describe_share_offsets,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: groups.group_and_topics(
        Op.READ, Op.READ, answered="responses", name="topic_name"
    ),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: groups.group_and_topics(
        Op.DELETE, Op.READ, answered="responses", name="topic_name"
    ),
}


def guard(key: ApiKey, handle: Handler, *, is_audited: bool = False) -> Handler:
    """Return a handler of an API that checks the rights of its clients first."""
    return _guard(RIGHTS[key], handle, AuditedCheck if is_audited else Check)


def _guard(rule: Rule, handle: Handler, check: type[Check]) -> Handler:
    def handle_guarded(broker: Broker, request: Request) -> Answer | Coroutine[Any, Any, Message]:
        authorizer = broker.authorizer
        assert authorizer is not None, "handlers are guarded where there is an authorizer"
        made = check(authorizer, broker, request)
        outcome: Any = rule(made, request)
        if type(outcome) is GeneratorType:
            outcome = in_slices(outcome)
            if type(outcome) is CoroutineType:
                if request.api_key == ApiKey.PRODUCE:
                    request.hold()
                return _handle_later(made, broker, request, (outcome, handle))
        if isinstance(outcome, Message):
            return outcome
        if outcome is not None:
            request.amend_with(outcome)
        return handle(broker, request)

    return handle_guarded


async def _handle_later(
    check: Check,
    broker: Broker,
    request: Request,
    work: tuple[Coroutine[Any, Any, Outcome], Handler],
) -> Any:
    """Handle a request whose rights take several turns to be checked."""
    checking, handle = work
    vshard = broker.image.state.next_vshard
    try:
        outcome = await checking
        if check.has_unknown and broker.image.state.next_vshard != vshard:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_ID, "topics were created while rights were checked"
            )
        request.is_holding = False
        if isinstance(outcome, Message):
            return outcome
        if outcome is not None:
            request.amend_with(outcome)
        answer = handle(broker, request)
    finally:
        if request.api_key == ApiKey.PRODUCE and not request.is_holding:
            request.peer.on_released()
    return await answer if isinstance(answer, CoroutineType) else answer
