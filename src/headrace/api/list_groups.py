"""ListGroups: API key 16, versions 0 to 5.

KIP-518 (filter by state, from 4), KIP-848 (filter by type, from 5). Lists the groups that this node
coordinates.

The work is in `groups.administration`.
"""

from typing import Final

from headrace.coordinator.machine import Reply
from headrace.coordinator.shard import Shard
from headrace.errors import KafkaError
from headrace.groups.administration import (
    GroupFilter,
    GroupRow,
    group_ids,
    list_groups,
)
from headrace.groups.machine import GroupsMachine
from headrace.loop.slices import Slice, Slices, finish
from headrace.server.broker import Broker
from headrace.server.gathering import (
    ask_in_slices,
)
from headrace.server.request import Request
from headrace.wire.messages.list_groups_request import ListGroupsRequest
from headrace.wire.messages.list_groups_response import ListedGroup, ListGroupsResponse

GROUPS_AT_ONCE: Final = 500
"""How many groups are listed in one turn of the loop."""


async def handle(broker: Broker, request: Request) -> ListGroupsResponse:
    body: ListGroupsRequest = request.body
    wanted = GroupFilter(
        await finish(_in_small_letters(body.states_filter)),
        await finish(_in_small_letters(body.types_filter)),
    )
    shards = tuple(broker.groups)

    def find_ids(shard: Shard[GroupsMachine], reply: Reply[list[str]]) -> None:
        shard.write(lambda machine, now_ms: group_ids(machine.state, reply), reply)

    found = await ask_in_slices(shards, find_ids)
    slices = [
        (shard, ids[start : start + GROUPS_AT_ONCE])
        for shard, ids in zip(shards, found, strict=True)
        if not isinstance(ids, KafkaError)
        for start in range(0, len(ids), GROUPS_AT_ONCE)
    ]

    def list_slice(
        each: tuple[Shard[GroupsMachine], list[str]], reply: Reply[list[GroupRow]]
    ) -> None:
        shard, ids = each
        shard.write(lambda machine, now_ms: list_groups(machine.state, wanted, reply, ids), reply)

    listed = await ask_in_slices(slices, list_slice, at_once=1)
    # A shard that is not in service hides its groups; a client that is told so asks again.
    for ids in found:
        if isinstance(ids, KafkaError):
            return ListGroupsResponse(error_code=ids.code)
    return await finish(_response(listed))


def _in_small_letters(names: list[str]) -> Slices[set[str]]:
    found: set[str] = set()
    current = Slice()
    for name in names:
        found.add(name.lower())
        if current.spend():
            yield
    return found


def _response(listed: list[list[GroupRow] | KafkaError]) -> Slices[ListGroupsResponse]:
    groups: list[ListedGroup] = []
    current = Slice()
    for rows in listed:
        if isinstance(rows, KafkaError):
            return ListGroupsResponse(error_code=rows.code)
        groups += [ListedGroup(*row) for row in rows]
        if current.spend(len(rows)):
            yield
    return ListGroupsResponse(groups=groups)
