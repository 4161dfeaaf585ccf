"""DeleteGroups: API key 42, versions 0 to 2.

KIP-229. A name that comes twice has one row. Of a share group the states of its partitions are
deleted first.

The work is in `groups.administration`.
"""

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any

from headrace.api.share_group_offsets import delete_group_states
from headrace.coordinator.machine import Operation, Reply
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.administration import (
    delete_group,
    give_up_deletion,
)
from headrace.groups.machine import GroupsMachine
from headrace.server.broker import Broker
from headrace.server.gathering import (
    answer_each,
    ask_shard,
)
from headrace.server.request import Answer, Request
from headrace.wire.messages.delete_groups_response import (
    DeletableGroupResult,
    DeleteGroupsResponse,
)
from headrace.wire.schema import Message


def handle(broker: Broker, request: Request) -> Answer | Coroutine[Any, Any, Message]:
    def row(group_id: str, answer: KafkaError | None) -> DeletableGroupResult:
        return DeletableGroupResult(group_id, ErrorCode.NONE if answer is None else answer.code)

    return answer_each(
        request,
        list(dict.fromkeys(request.body.groups_names)),
        partial(_delete_group, broker),
        row,
        lambda rows: DeleteGroupsResponse(results=rows),
    )


def _delete_group(broker: Broker, group_id: str, reply: Reply[None]) -> None:
    """Delete a group, and before it the states of its partitions if it is a share group."""

    def on_states(answer: KafkaError | None) -> None:
        if answer is not None:
            reply(answer)
        else:
            ask_shard(find, delete, on_deleted)

    def delete(reply: Reply[bool]) -> Operation[GroupsMachine]:
        # A group of which something cannot be read is deleted with that, and is served again then.
        unreadable = find().set_aside.tombstones(group_id)
        return lambda machine, now_ms: delete_group(machine.state, group_id, reply, unreadable)

    def give_up(reply: Reply[None]) -> Operation[GroupsMachine]:
        return lambda machine, now_ms: give_up_deletion(machine.state, group_id, reply)

    def on_deleted(answer: bool | KafkaError) -> None:
        if isinstance(answer, KafkaError):
            ask_shard(find, give_up, _ignore)
            reply(answer)
        elif answer:
            reply(None)
        else:  # it has more offsets than are deleted in one turn
            asyncio.get_running_loop().call_soon(ask_shard, find, delete, on_deleted)

    find = partial(broker.groups.shard, group_id, is_served=False)
    delete_group_states(broker, group_id, on_states)


def _ignore(_: object) -> None:
    """Drop a reply that no request waits for."""
