"""Groups of every kind, their members and offsets, and the requests that show them."""

from typing import Final

from headrace.errors import ErrorCode
from headrace.wire import ApiKey
from headrace.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from headrace.wire.messages.delete_groups_request import DeleteGroupsRequest
from headrace.wire.messages.describe_groups_request import DescribeGroupsRequest
from headrace.wire.messages.join_group_response import JoinGroupResponse
from headrace.wire.messages.leave_group_request import MemberIdentity
from headrace.wire.messages.list_groups_request import ListGroupsRequest
from headrace.wire.messages.list_groups_response import ListGroupsResponse
from headrace.wire.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from headrace.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from headrace.wire.messages.offset_fetch_response import OffsetFetchResponse
from headrace.wire.messages.streams_group_describe_request import StreamsGroupDescribeRequest
from headrace.wire.messages.streams_group_heartbeat_request import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    Topology,
)
from tests.differential.consumer_requests import LEFT, consumer_beat, topic_of_groups
from tests.differential.conversation import Conversation
from tests.differential.group_requests import (
    commit,
    group_coordinator,
    heartbeat,
    join,
    leave,
    sync,
)
from tests.differential.pairs.pair import TIMES, Pair
from tests.differential.requests import Topic

NO_OFFSET: Final = -1
LARGE_COMMIT_ROWS: Final = 40
METADATA_CHARACTERS: Final = 4000
"""With so many rows more than what is read at once, or decoded beside other work."""
SYNC_WITHOUT_PROTOCOL: Final = 4
"""The newest SyncGroup that need not name the protocol."""


def order_of_offset_commit(talk: Conversation) -> None:
    group_coordinator(talk)
    topic = topic_of_groups(talk, "plain")
    for turn in range(TIMES):
        group = talk.name(f"g{turn}")
        answers = talk.ask_at_once(
            f"turn {turn}",
            [
                commit(group, topic, (0, 7)),
                offset_fetch(group, topic),
                commit(group, topic, (0, 8)),
                offset_fetch(group, topic),
                ListGroupsRequest(),
            ],
        )
        assert [committed(answers[at]) for at in (1, 3)] == [7, 8]
        assert group in groups_in(answers[4])


def order_of_large_requests(talk: Conversation) -> None:
    """A request that takes long to read is not overtaken by a small one behind it."""
    group_coordinator(talk)
    topic = talk.topic("plain", partitions=LARGE_COMMIT_ROWS)
    for turn in range(TIMES):
        group = talk.name(f"g{turn}")
        rows = [(index, 8, "m" * METADATA_CHARACTERS) for index in range(LARGE_COMMIT_ROWS)]
        answers = talk.ask_at_once(
            f"turn {turn}",
            [
                commit(group, topic, (0, 7)),
                commit(group, topic, *rows),
                offset_fetch(group, topic),
                commit(group, topic, (0, 9)),
                offset_fetch(group, topic),
                commit(group, topic, *rows),
                commit(group, topic, *rows),
                offset_fetch(group, topic),
            ],
        )
        assert [committed(answers[at]) for at in (2, 4, 7)] == [8, 9, 8]


def order_of_offset_delete(talk: Conversation) -> None:
    group_coordinator(talk)
    topic = topic_of_groups(talk, "plain")
    for turn in range(TIMES):
        group = talk.name(f"g{turn}")
        row = OffsetDeleteRequestTopic(topic.name, [OffsetDeleteRequestPartition(0)])
        _, before, deleted, after = talk.ask_at_once(
            f"turn {turn}",
            [
                commit(group, topic, (0, 7)),
                offset_fetch(group, topic),
                OffsetDeleteRequest(group_id=group, topics=[row]),
                offset_fetch(group, topic),
            ],
        )
        assert deleted.error_code == deleted.topics[0].partitions[0].error_code == 0
        assert [committed(before), committed(after)] == [7, NO_OFFSET]


def order_of_delete_groups(talk: Conversation) -> None:
    group_coordinator(talk)
    topic = topic_of_groups(talk, "plain")
    for turn in range(TIMES):
        group = talk.name(f"g{turn}")
        _, before, deleted, described, fetched, after, again = talk.ask_at_once(
            f"turn {turn}",
            [
                commit(group, topic, (0, 7)),
                ListGroupsRequest(),
                DeleteGroupsRequest(groups_names=[group]),
                DescribeGroupsRequest(groups=[group]),
                offset_fetch(group, topic),
                ListGroupsRequest(),
                DeleteGroupsRequest(groups_names=[group]),
            ],
        )
        assert group in groups_in(before)
        assert deleted.results[0].error_code == 0
        assert described.groups[0].group_state == "Dead"
        assert committed(fetched) == NO_OFFSET
        assert group not in groups_in(after)
        assert again.results[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND


def order_of_classic_members(talk: Conversation) -> None:
    """A whole life in one write: only the member's id has to be known before."""
    group_coordinator(talk)
    topic = topic_of_groups(talk, "plain")
    for turn in range(TIMES):
        group = talk.name(f"g{turn}")
        named = talk.quietly(join(group), JoinGroupResponse, 9)
        talk.plain(named)  # numbers its id, whatever the next answers say
        member = named.member_id
        answers = talk.ask_at_once(
            f"turn {turn}",
            [
                join(group, member),
                DescribeGroupsRequest(groups=[group]),
                (sync(group, 1, member, (member, b"all")), SYNC_WITHOUT_PROTOCOL),
                DescribeGroupsRequest(groups=[group]),
                heartbeat(group, 1, member),
                commit(group, topic, (0, 7), member=(member, 1)),
                offset_fetch(group, topic),
                leave(group, MemberIdentity(member_id=member)),
                DescribeGroupsRequest(groups=[group]),
                heartbeat(group, 1, member),
            ],
        )
        states = [answers[at].groups[0].group_state for at in (1, 3, 8)]
        assert states == ["CompletingRebalance", "Stable", "Empty"]
        assert answers[3].groups[0].members[0].member_assignment == b"all"
        assert answers[4].error_code == 0
        assert committed(answers[6]) == 7
        assert answers[9].error_code == ErrorCode.UNKNOWN_MEMBER_ID


def order_of_consumer_heartbeats(talk: Conversation) -> None:
    group_coordinator(talk)
    topic = topic_of_groups(talk, "plain", partitions=2)
    for turn in range(TIMES):
        group = talk.name(f"g{turn}")
        describe = ConsumerGroupDescribeRequest(group_ids=[group])
        joined, there, _, left, listed = talk.ask_at_once(
            f"turn {turn}",
            [
                consumer_beat(group, "m", 0, topics=[topic.name], owned={}),
                describe,
                consumer_beat(group, "m", LEFT),
                describe,
                ListGroupsRequest(),
            ],
        )
        (member,) = there.groups[0].members
        assert member.member_epoch == joined.member_epoch
        assert member.assignment.topic_partitions[0].partitions == [0, 1]
        assert left.groups[0].members == []
        assert group in groups_in(listed)


def order_of_streams_heartbeats(talk: Conversation) -> None:
    group_coordinator(talk)
    topic = topic_of_groups(talk, "plain", partitions=2)
    plain = Topology(epoch=1, subtopologies=[Subtopology("0", source_topics=[topic.name])])
    for turn in range(TIMES):
        group = talk.name(f"g{turn}")
        describe = StreamsGroupDescribeRequest(group_ids=[group])
        joining = StreamsGroupHeartbeatRequest(
            group_id=group,
            member_id="m",
            rebalance_timeout_ms=60_000,
            topology=plain,
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
            process_id="p",
            client_tags=[],
        )
        leaving = StreamsGroupHeartbeatRequest(group_id=group, member_id="m", member_epoch=LEFT)
        joined, there, _, left, listed = talk.ask_at_once(
            f"turn {turn}", [joining, describe, leaving, describe, ListGroupsRequest()]
        )
        (member,) = there.groups[0].members
        assert member.member_epoch == joined.member_epoch
        assert left.groups[0].members == []
        assert group in groups_in(listed)


def offset_fetch(group: str, topic: Topic, *, stable: bool = False) -> OffsetFetchRequest:
    row = OffsetFetchRequestTopics(topic_id=topic.id, partition_indexes=[0])
    asked = OffsetFetchRequestGroup(group_id=group, topics=[row])
    return OffsetFetchRequest(groups=[asked], require_stable=stable)


def committed(fetched: OffsetFetchResponse) -> int:
    """Return the one offset in an answer of OffsetFetch."""
    return fetched.groups[0].topics[0].partitions[0].committed_offset


def groups_in(listed: ListGroupsResponse) -> set[str]:
    return {row.group_id for row in listed.groups}


PAIRS: Final = (
    Pair(order_of_offset_commit, (ApiKey.OFFSET_COMMIT,)),
    Pair(order_of_large_requests, (ApiKey.OFFSET_COMMIT,)),
    Pair(order_of_offset_delete, (ApiKey.OFFSET_DELETE,)),
    Pair(order_of_delete_groups, (ApiKey.DELETE_GROUPS, ApiKey.OFFSET_COMMIT)),
    Pair(
        order_of_classic_members,
        (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.LEAVE_GROUP, ApiKey.OFFSET_COMMIT),
    ),
    Pair(order_of_consumer_heartbeats, (ApiKey.CONSUMER_GROUP_HEARTBEAT,)),
    Pair(order_of_streams_heartbeats, (ApiKey.STREAMS_GROUP_HEARTBEAT,)),
)
