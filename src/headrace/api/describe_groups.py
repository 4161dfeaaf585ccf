"""DescribeGroups: API key 15, versions 0 to 6.

KIP-430 (authorized operations, from 3), KIP-1043 (a group that is not a classic one is
GROUP_ID_NOT_FOUND with a message, from 6; before, it is Dead).

The work is in `groups.administration`.
"""

from collections.abc import Coroutine
from functools import partial
from typing import Any, Final

from headrace.coordinator.machine import Reply
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.administration import (
    DEAD,
    describe_group,
)
from headrace.server.broker import Broker
from headrace.server.gathering import (
    answer_each,
    ask_shard,
)
from headrace.server.operations import GROUP_OPERATIONS
from headrace.server.request import Answer, Request
from headrace.wire.messages.describe_groups_request import DescribeGroupsRequest
from headrace.wire.messages.describe_groups_response import (
    DescribedGroup,
    DescribeGroupsResponse,
)
from headrace.wire.schema import Message

FIRST_WITH_MISSING_GROUPS: Final = 6
"""The version of DescribeGroups that says that a group is not there."""


def handle(broker: Broker, request: Request) -> Answer | Coroutine[Any, Any, Message]:
    body: DescribeGroupsRequest = request.body

    def describe(group_id: str, reply: Reply[DescribedGroup]) -> None:
        ask_shard(
            partial(broker.groups.shard, group_id),
            lambda reply: lambda machine, _: describe_group(machine.state, group_id, reply),
            reply,
        )

    def row(group_id: str, answer: DescribedGroup | KafkaError) -> DescribedGroup:
        described = _described(answer, group_id, request.version)
        if body.include_authorized_operations and described.error_code == ErrorCode.NONE:
            described.authorized_operations = GROUP_OPERATIONS
        return described

    return answer_each(
        request, body.groups, describe, row, lambda rows: DescribeGroupsResponse(groups=rows)
    )


def _described(answer: DescribedGroup | KafkaError, group_id: str, version: int) -> DescribedGroup:
    if not isinstance(answer, KafkaError):
        return answer
    if answer.code != ErrorCode.GROUP_ID_NOT_FOUND:
        return DescribedGroup(group_id=group_id, error_code=answer.code)
    if version < FIRST_WITH_MISSING_GROUPS:
        return DescribedGroup(group_id=group_id, group_state=DEAD)
    return DescribedGroup(
        error_code=answer.code,
        error_message=answer.message,
        group_id=group_id,
        group_state=DEAD,
    )
