"""What requests about groups, their members and their offsets need."""

from functools import partial
from typing import Any, Final

from headrace.errors import ErrorCode
from headrace.ids import ZERO_TOPIC_ID
from headrace.loop.slices import Slice, Slices
from headrace.security.acls import Operation, Resource
from headrace.server.request import Request
from headrace.server.rights.checks import (
    CHECK_UNITS,
    CODES,
    MESSAGES,
    Amend,
    Check,
    Outcome,
    Rule,
    both,
    divide,
    each,
    take_out,
)
from headrace.wire.messages.offset_fetch_response import (
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from headrace.wire.schema import Message

BITS_UNITS: Final = 16
"""How long it takes to find out all that somebody may do with a group."""
_UNKNOWN_OFFSET: Final = -1


def whole_group(operation: Operation) -> Rule:
    """Return the rule of requests about one group."""

    def rule(check: Check, request: Request) -> None:
        check.require_group(operation, request.body.group_id)

    return rule


def group_and_topics(
    of_group: Operation,
    of_topics: Operation,
    answered: str = "topics",
    name: str = "name",
) -> Rule:
    """Return the rule of requests about one group and some topics."""

    def rule(check: Check, request: Request) -> "Slices[Outcome]":
        check.require_group(of_group, request.body.group_id)
        return take_out(
            check,
            request,
            ("topics", answered),
            lambda row: _may(check, of_topics, row, name),
        )

    return rule


def _may(check: Check, operation: Operation, row: Any, name: str = "name") -> bool:
    found = check.topic_name(getattr(row, name, ""), getattr(row, "topic_id", ZERO_TOPIC_ID))
    return found is None or check.may_topic(operation, found)


def member(check: Check, request: Request) -> "Slices[Outcome]":
    """READ on the group and DESCRIBE on every topic that a member subscribes to by name."""
    check.require_group(Operation.READ, request.body.group_id)
    yield from each(
        request.body.subscribed_topic_names or (),
        lambda name: check.require(Operation.DESCRIBE, Resource.TOPIC, name),
    )
    return None


def streams_member(check: Check, request: Request) -> "Slices[Outcome]":
    """READ on the group, DESCRIBE on its topics, and CREATE on those that would be created."""
    body = request.body
    check.require_group(Operation.READ, body.group_id)
    current = Slice()
    for part in () if body.topology is None else body.topology.subtopologies:
        internal = (*part.state_changelog_topics, *part.repartition_source_topics)
        for name in (*part.source_topics, *part.repartition_sink_topics):
            check.require(Operation.DESCRIBE, Resource.TOPIC, name)
            if current.spend(CHECK_UNITS):
                yield
        for row in internal:
            check.require(Operation.DESCRIBE, Resource.TOPIC, row.name)
            if not check.has_topic(row.name) and not check.may_cluster(Operation.CREATE):
                check.require(Operation.CREATE, Resource.TOPIC, row.name)
            if current.spend(CHECK_UNITS):
                yield
        if current.spend():
            yield
    return None


def describe_groups(check: Check, request: Request) -> "Slices[Outcome]":
    """DESCRIBE on each group."""
    return _groups(check, request, ("groups", "groups"), Operation.DESCRIBE)


def describe_members(check: Check, request: Request) -> "Slices[Outcome]":
    """DESCRIBE on each group and on every topic that its members have (CVE-2026-41115)."""
    outcome = yield from _groups(check, request, ("group_ids", "groups"), Operation.DESCRIBE)
    if isinstance(outcome, Message):
        return outcome

    def amend(response: Any) -> Slices[Any]:
        current = Slice()
        for row in response.groups:
            if current.spend(CHECK_UNITS + len(row.members)):
                yield
            if row.error_code == ErrorCode.NONE and not _may_see(check, row.members):
                check.refusal(Resource.TOPIC)
                row.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                row.error_message = (
                    "The described group uses topics that the client is not authorized to describe."
                )
                row.members = []
        return response

    return both(amend, outcome)


def _may_see(check: Check, members: list[Any]) -> bool:
    """Return whether every topic in the assignments of members may be described."""
    names: set[str] = set()
    for row in members:
        for assignment in (row.assignment, getattr(row, "target_assignment", None)):
            if assignment is not None:
                names.update(each.topic_name for each in assignment.topic_partitions)
    return all(check.may_topic(Operation.DESCRIBE, name) for name in names)


def describe_streams(check: Check, request: Request) -> "Slices[Outcome]":
    """DESCRIBE on each group and on every topic of its topology."""
    outcome = yield from _groups(check, request, ("group_ids", "groups"), Operation.DESCRIBE)
    if isinstance(outcome, Message):
        return outcome

    def amend(response: Any) -> Slices[Any]:
        current = Slice()
        for row in response.groups:
            if current.spend(CHECK_UNITS + len(row.members)):
                yield
            topology = row.topology
            parts = () if topology is None else topology.subtopologies or ()
            names = {name for part in parts for name in part.source_topics or ()}
            for part in parts:
                names.update(part.repartition_sink_topics or ())
                names.update(each.name for each in part.state_changelog_topics or ())
                names.update(each.name for each in part.repartition_source_topics or ())
            is_hidden = not all(check.may_topic(Operation.DESCRIBE, name) for name in names)
            if row.error_code == ErrorCode.NONE and is_hidden:
                check.refusal(Resource.TOPIC)
                row.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                row.error_message = (
                    "The described group uses topics that the client is not authorized to describe."
                )
                row.members, row.topology = [], None
        return response

    return both(amend, outcome)


def _groups(
    check: Check, request: Request, fields: tuple[str, str], operation: Operation
) -> "Slices[Outcome]":
    outcome = yield from take_out(
        check, request, fields, lambda name: check.may_group(operation, name), Resource.GROUP
    )
    if isinstance(outcome, Message) or not getattr(
        request.body, "include_authorized_operations", False
    ):
        return outcome

    def show(row: Any) -> None:
        if row.error_code == ErrorCode.NONE:
            row.authorized_operations = check.bits(Resource.GROUP, row.group_id)

    def amend(response: Any) -> Slices[Any]:
        yield from each(response.groups, show, BITS_UNITS)
        return response

    return both(amend, outcome)


def delete_groups(check: Check, request: Request) -> "Slices[Outcome]":
    return _groups(check, request, ("groups_names", "results"), Operation.DELETE)


def list_groups(check: Check, request: Request) -> "Amend | None":
    """DESCRIBE on the cluster, else the list has the groups that the client may describe."""
    if check.may_cluster(Operation.DESCRIBE):
        return None

    def amend(response: Any) -> Slices[Any]:
        response.groups, _ = yield from divide(
            response.groups, lambda row: check.may_group(Operation.DESCRIBE, row.group_id)
        )
        return response

    return amend


def offset_fetch(check: Check, request: Request) -> "Slices[Outcome]":
    """DESCRIBE on each group and topic; of all topics those that the client may describe."""
    body = request.body
    if request.version < 8:
        check.require_group(Operation.DESCRIBE, body.group_id)
        if body.topics is None:
            return lambda response: _hide_topics(check, response, response)
        outcome = yield from take_out(
            check,
            request,
            ("topics", "topics"),
            lambda row: check.may_topic(Operation.DESCRIBE, row.name),
        )
        return outcome
    allowed, denied = yield from divide(
        body.groups, lambda row: check.may_group(Operation.DESCRIBE, row.group_id)
    )
    if denied:
        check.refusal(Resource.GROUP)
    rows = [
        OffsetFetchResponseGroup(group_id=row.group_id, error_code=CODES[Resource.GROUP], topics=[])
        for row in denied
    ]
    hidden: dict[str, list[OffsetFetchResponseTopics]] = {}
    unnamed, current = set(), Slice()
    for group in allowed:
        if group.topics is None:
            unnamed.add(group.group_id)
            continue
        group.topics, refused = yield from divide(
            group.topics, lambda row: _may(check, Operation.DESCRIBE, row)
        )
        refusals: list[OffsetFetchResponseTopics] = []
        yield from each(refused, partial(_refuse_topic, refusals))
        hidden[group.group_id] = refusals
        if current.spend():
            yield
        if refused:
            check.refusal(Resource.TOPIC)
    body.groups = allowed

    def amend(response: Any) -> Slices[Any]:
        for group in response.groups:
            if group.group_id in unnamed:
                yield from _hide_topics(check, group, response)
            if group.error_code == ErrorCode.NONE:
                group.topics.extend(hidden.get(group.group_id, ()))
        response.groups.extend(rows)
        return response

    return amend


def _hide_topics(check: Check, holder: Any, response: Any) -> Slices[Any]:
    """Leave out the topics that the client may not describe."""
    holder.topics, _ = yield from divide(
        holder.topics, lambda row: _may(check, Operation.DESCRIBE, row)
    )
    return response


def _refuse_topic(refusals: list[OffsetFetchResponseTopics], row: Any) -> None:
    refused = OffsetFetchResponseTopics(
        name=row.name,
        topic_id=row.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index,
                committed_offset=_UNKNOWN_OFFSET,
                error_code=CODES[Resource.TOPIC],
            )
            for index in row.partition_indexes
        ],
    )
    refusals.append(refused)


def find_coordinator(check: Check, request: Request) -> "Outcome | Slices[Outcome]":
    """DESCRIBE on the group or transactional id; CLUSTER_ACTION for those of share partitions."""
    body = request.body
    resource = {0: Resource.GROUP, 1: Resource.TRANSACTIONAL_ID}.get(body.key_type)
    if resource is None:
        check.require_cluster(Operation.CLUSTER_ACTION)
        return None
    found = resource
    if request.version < 4:
        check.require(Operation.DESCRIBE, found, body.key)
        return None
    return take_out(
        check,
        request,
        ("coordinator_keys", "coordinators"),
        lambda key: check.may(Operation.DESCRIBE, found, key),
        found,
    )


def describe_share_offsets(check: Check, request: Request) -> "Slices[Outcome]":
    """DESCRIBE on each group and topic; of all topics those that the client may describe."""
    outcome = yield from take_out(
        check,
        request,
        ("groups", "groups"),
        lambda row: check.may_group(Operation.DESCRIBE, row.group_id),
        Resource.GROUP,
    )
    if isinstance(outcome, Message):
        return outcome

    def amend(response: Any) -> Slices[Any]:
        asked_of = {
            asked.group_id: {row.topic_name for row in asked.topics or ()}
            for asked in request.body.groups
        }
        for group in response.groups:
            shown, hidden = yield from divide(
                group.topics, lambda row: check.may_topic(Operation.DESCRIBE, row.topic_name)
            )
            named = asked_of.get(group.group_id, ())
            group.topics = shown
            for row in hidden:
                if row.topic_name not in named:
                    continue
                check.refusal(Resource.TOPIC)
                row.topic_id = ZERO_TOPIC_ID
                for partition in row.partitions:
                    partition.error_code = CODES[Resource.TOPIC]
                    partition.error_message = MESSAGES[Resource.TOPIC]
                    partition.start_offset = _UNKNOWN_OFFSET
                    partition.leader_epoch = 0
                group.topics.append(row)
        return response

    return both(amend, outcome)
