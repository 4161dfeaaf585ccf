"""Groups from outside: ListGroups, DescribeGroups and DeleteGroups."""

from headrace.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from headrace.wire.messages.consumer_group_heartbeat_response import (
    ConsumerGroupHeartbeatResponse,
)
from headrace.wire.messages.delete_groups_request import DeleteGroupsRequest
from headrace.wire.messages.describe_groups_request import DescribeGroupsRequest
from headrace.wire.messages.leave_group_request import MemberIdentity
from headrace.wire.messages.leave_group_response import LeaveGroupResponse
from headrace.wire.messages.list_groups_request import ListGroupsRequest
from headrace.wire.messages.offset_commit_response import OffsetCommitResponse
from headrace.wire.messages.streams_group_describe_request import StreamsGroupDescribeRequest
from tests.differential.consumer_requests import consumer_beat, topic_of_groups
from tests.differential.conversation import Conversation
from tests.differential.group_requests import (
    RANGE,
    commit,
    group_coordinator,
    join,
    joined,
    leave,
    stable,
)

FIRST_WITH_STATES = 4
FIRST_WITH_TYPES = 5


def list_groups(talk: Conversation) -> None:
    _groups_of_all_kinds(talk)
    talk.ask_all_versions("all", ListGroupsRequest())
    for states in (
        *(["Stable"], ["stable"], ["STABLE"], ["Empty"], ["CompletingRebalance"]),
        *(["PreparingRebalance"], ["Dead"], ["Assigning"], ["Reconciling"], ["NotReady"]),
        *(["Unknown"], ["none such"], [""], ["Empty", "Stable"], ["Empty", "none such"]),
    ):
        for version in range(FIRST_WITH_STATES, 6):
            request = ListGroupsRequest(states_filter=states)
            talk.ask(f"in state {','.join(states)!r} v{version}", request, version)
    for types in (
        *(["classic"], ["Classic"], ["CONSUMER"], ["consumer"], ["share"], ["streams"]),
        *(["unknown"], ["none such"], [""], ["classic", "consumer"]),
    ):
        request = ListGroupsRequest(types_filter=types)
        talk.ask(f"of type {','.join(types)!r}", request)
    both = ListGroupsRequest(types_filter=["classic"], states_filter=["Stable"])
    talk.ask("of a type in a state", both)
    both = ListGroupsRequest(types_filter=["consumer"], states_filter=["Empty"])
    talk.ask("of a type in another state", both)


def describe_groups(talk: Conversation) -> None:
    _groups_of_all_kinds(talk)
    kinds = ("stable", "unassigned", "empty", "offsets", "connect", "pending", "consumer", "none")
    for kind in kinds:
        request = DescribeGroupsRequest(groups=[talk.name(kind)])
        talk.ask_all_versions(f"a group that is {kind}", request)
        if kind in ("stable", "none"):
            request.include_authorized_operations = True
            versions = range(3, 7)
            talk.ask_all_versions(f"operations on a group that is {kind}", request, versions)
        named = [talk.name(kind)]
        other = ConsumerGroupDescribeRequest(group_ids=named)
        talk.ask_all_versions(f"as a consumer group: {kind}", other)
        talk.ask(f"as a streams group: {kind}", StreamsGroupDescribeRequest(group_ids=named))
    talk.ask_all_versions("an empty group id", DescribeGroupsRequest(groups=[""]))
    talk.ask_all_versions("no group", DescribeGroupsRequest())
    several = [talk.name(kind) for kind in ("stable", "none", "stable")]
    talk.ask("several, one of them twice", DescribeGroupsRequest(groups=several))


def delete_groups(talk: Conversation) -> None:
    _groups_of_all_kinds(talk)
    for version in range(3):
        for kind in ("stable", "unassigned", "connect", "pending", "consumer", "none"):
            request = DeleteGroupsRequest(groups_names=[talk.name(kind)])
            talk.ask(f"a group that is {kind} v{version}", request, version)
        talk.ask(f"an empty id v{version}", DeleteGroupsRequest(groups_names=[""]), version)
        talk.ask(f"no group v{version}", DeleteGroupsRequest(), version)
    names = [talk.name(kind) for kind in ("empty", "stable", "none", "offsets", "empty")]
    talk.ask("several, one of them twice", DeleteGroupsRequest(groups_names=names))
    talk.ask("what is left", ListGroupsRequest())
    talk.ask("a deleted group", DescribeGroupsRequest(groups=[talk.name("empty")]))


def _groups_of_all_kinds(talk: Conversation) -> None:
    group_coordinator(talk)
    topic = topic_of_groups(talk, "plain", partitions=2)
    stable(talk, talk.name("stable"), RANGE, ("roundrobin", b"r"), instance=talk.name("i"))
    joined(talk, talk.name("unassigned"))
    gone = stable(talk, talk.name("empty"))
    member = MemberIdentity(member_id=gone.member_id)
    talk.quietly(leave(talk.name("empty"), member), LeaveGroupResponse)
    talk.quietly(commit(talk.name("offsets"), topic, (0, 5)), OffsetCommitResponse)
    stable(talk, talk.name("connect"), ("x", b"opaque"), protocol_type="connect")
    talk.ask("one that gets an id and does not use it", join(talk.name("pending")))
    beat = consumer_beat(talk.name("consumer"), "m", 0, topics=[topic.name], owned={})
    talk.quietly(beat, ConsumerGroupHeartbeatResponse)


SCRIPTS = (list_groups, describe_groups, delete_groups)
