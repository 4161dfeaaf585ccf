"""Share groups, their records, states and offsets, and the requests that show them."""

from typing import Any, Final

from headrace.wire import ApiKey
from headrace.wire.messages.list_groups_request import ListGroupsRequest
from headrace.wire.messages.read_share_group_state_response import ReadShareGroupStateResponse
from headrace.wire.messages.share_fetch_response import ShareFetchResponse
from headrace.wire.messages.share_group_describe_request import ShareGroupDescribeRequest
from headrace.wire.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse
from tests.differential.consumer_requests import topic_of_groups
from tests.differential.conversation import Conversation
from tests.differential.group_requests import group_coordinator
from tests.differential.pairs.groups import groups_in
from tests.differential.pairs.pair import TIMES, Pair
from tests.differential.requests import batch, produce
from tests.differential.share_requests import (
    LEFT,
    alter_offsets,
    delete_offsets,
    offsets_of,
    share_beat,
    share_coordinator,
    wait_for_states,
)
from tests.differential.share_session import ACCEPT, RELEASE, Member, begin_share
from tests.differential.share_state_requests import Share, share_states

ACKNOWLEDGED: Final = 2


def order_of_share_heartbeats(talk: Conversation) -> None:
    group_coordinator(talk)
    share_coordinator(talk)
    topic = topic_of_groups(talk, "plain", partitions=2)
    for turn in range(TIMES):
        group = talk.name(f"g{turn}")
        describe = ShareGroupDescribeRequest(group_ids=[group])
        joined, there, _, left, listed = talk.ask_at_once(
            f"turn {turn}",
            [
                share_beat(group, "m", 0, [topic.name]),
                describe,
                share_beat(group, "m", LEFT),
                describe,
                ListGroupsRequest(),
            ],
        )
        (member,) = there.groups[0].members
        assert member.member_epoch == joined.member_epoch
        assert left.groups[0].members == []
        assert group in groups_in(listed)


def order_of_share_states(talk: Conversation) -> None:
    topic = talk.topic("plain")
    share_states(talk, Share(talk.name("any"), topic.id))
    for turn in range(TIMES):
        share = Share(talk.name(f"g{turn}"), topic.id)
        answers = talk.ask_at_once(
            f"turn {turn}",
            [
                share.initialize(1, 5),
                share.summary(0),
                share.read(0),
                share.write((7, 8, ACKNOWLEDGED, 1), start=6, complete=2),
                share.summary(0),
                share.read(0),
                share.delete(),
                share.summary(0),
            ],
        )
        assert [start_of(answers[at]) for at in (1, 2, 4, 5)] == [5, 5, 6, 6]
        assert states_of(answers[5]) == [(7, 8, ACKNOWLEDGED)]
        assert start_of(answers[7]) < 0


def order_of_share_offsets(talk: Conversation) -> None:
    group_coordinator(talk)
    share_coordinator(talk)
    topic = topic_of_groups(talk, "plain")
    talk.append(topic, batch(b"a", b"b", b"c"))
    for turn in range(TIMES):
        group = talk.name(f"g{turn}")
        talk.quietly(share_beat(group, "m", 0, [topic.name]), ShareGroupHeartbeatResponse)
        wait_for_states(talk, group)
        there = offsets_of(group, [(topic.name, [0])])
        _, altered, described, deleted, gone = talk.ask_at_once(
            f"turn {turn}",
            [
                share_beat(group, "m", LEFT),
                alter_offsets(group, (topic.name, [(0, 2)])),
                there,
                delete_offsets(group, topic.name),
                there,
            ],
        )
        assert altered.responses[0].partitions[0].error_code == 0
        assert described.groups[0].topics[0].partitions[0].start_offset == 2
        assert deleted.responses[0].error_code == 0
        assert gone.groups[0].topics[0].partitions[0].start_offset < 0


def order_of_share_fetches(talk: Conversation) -> None:
    """Records are acquired, given back, acquired again and accepted, all in one write."""
    for turn in range(TIMES):
        topic, group = talk.topic(f"t{turn}"), talk.name(f"g{turn}")
        begin_share(talk, group, topic)
        member = Member(talk, group, topic)
        member.open(0)
        first = member.epoch
        epochs: list[Any] = [{"share_session_epoch": first + step} for step in range(5)]
        written = Share(group, topic.id).read(-1)
        answers = talk.ask_at_once(
            f"turn {turn}",
            [
                produce(topic, batch(b"a", b"b")),
                member.fetch_request(**epochs[0]),
                member.acknowledge_request({0: [(0, 1, [RELEASE])]}, **epochs[1]),
                member.fetch_request(**epochs[2]),
                member.fetch_request(acks={0: [(0, 0, [ACCEPT])]}, **epochs[3]),
                written,
                member.acknowledge_request({0: [(1, 1, [ACCEPT])]}, **epochs[4]),
                written,
            ],
        )
        assert [acquired(answers[at]) for at in (1, 3, 4)] == [[(0, 1, 1)], [(0, 1, 2)], []]
        # The start of what is left moves with the next write, as in Kafka.
        assert states_of(answers[5])[0] == (0, 0, ACKNOWLEDGED)
        assert states_of(answers[7])[-1] == (1, 1, ACKNOWLEDGED)


def acquired(fetched: ShareFetchResponse) -> list[tuple[int, int, int]]:
    """Return the ranges of records that a fetch acquired, each with its delivery count."""
    return [
        (row.first_offset, row.last_offset, row.delivery_count)
        for topic in fetched.responses
        for partition in topic.partitions
        for row in partition.acquired_records
    ]


def states_of(answer: ReadShareGroupStateResponse) -> list[tuple[int, int, int]]:
    """Return the ranges of records that have a state, each with that."""
    return [
        (row.first_offset, row.last_offset, row.delivery_state)
        for row in answer.results[0].partitions[0].state_batches
    ]


def start_of(answer: object) -> int:
    """Return the start offset in an answer about the state of one partition."""
    offset: int = answer.results[0].partitions[0].start_offset  # type: ignore[attr-defined]
    return offset


PAIRS: Final = (
    Pair(order_of_share_heartbeats, (ApiKey.SHARE_GROUP_HEARTBEAT,)),
    Pair(
        order_of_share_states,
        (
            ApiKey.INITIALIZE_SHARE_GROUP_STATE,
            ApiKey.WRITE_SHARE_GROUP_STATE,
            ApiKey.DELETE_SHARE_GROUP_STATE,
        ),
    ),
    Pair(
        order_of_share_offsets,
        (
            ApiKey.SHARE_GROUP_HEARTBEAT,
            ApiKey.ALTER_SHARE_GROUP_OFFSETS,
            ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        ),
    ),
    Pair(
        order_of_share_fetches,
        (ApiKey.PRODUCE, ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE),
    ),
)
