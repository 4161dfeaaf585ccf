"""DeleteShareGroupOffsets: API key 92, version 0.

KIP-932. A group with members is NON_EMPTY_GROUP.

The work is in `groups.share.offsets`.
"""

from functools import partial

from headrace.api.groups import check_share_groups, group_shard
from headrace.api.share_group_offsets import (
    Deletions,
    code_and_message,
    delete_states,
    unknown_partition,
)
from headrace.coordinator.machine import Operation, Reply
from headrace.errors import KafkaError
from headrace.groups.machine import GroupsMachine
from headrace.groups.share.offsets import (
    KnownTopic,
    begin_deletion,
)
from headrace.ids import ZERO_TOPIC_ID
from headrace.server.broker import Broker
from headrace.server.failures import failure_response
from headrace.server.request import LATER, Answer, Request
from headrace.wire.messages.delete_share_group_offsets_request import (
    DeleteShareGroupOffsetsRequest,
)
from headrace.wire.messages.delete_share_group_offsets_response import (
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)


def handle(broker: Broker, request: Request) -> Answer:
    body: DeleteShareGroupOffsetsRequest = request.body
    check_share_groups(broker)
    names = list(dict.fromkeys(topic.topic_name for topic in body.topics))

    def on_done(answer: Deletions | KafkaError) -> None:
        if isinstance(answer, KafkaError):
            request.answer(failure_response(request, answer.code, answer.message))
            return
        rows = []
        for name in names:
            topic_id, error = answer.get(name) or (ZERO_TOPIC_ID, unknown_partition(name))
            rows.append(
                DeleteShareGroupOffsetsResponseTopic(name, topic_id, *code_and_message(error))
            )
        request.answer(DeleteShareGroupOffsetsResponse(responses=rows))

    def plan(reply: Reply[list[KnownTopic]]) -> Operation[GroupsMachine]:
        return lambda machine, now_ms: begin_deletion(machine.state, body.group_id, names, reply)

    find = partial(group_shard, broker, body.group_id)
    delete_states(broker, body.group_id, (find, plan), on_done)
    return LATER
