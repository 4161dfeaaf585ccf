"""Members of share groups: ShareGroupHeartbeat and ShareGroupDescribe (KIP-932)."""

from collections import Counter

from headrace.wire.messages.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from headrace.wire.messages.delete_groups_request import DeleteGroupsRequest
from headrace.wire.messages.describe_groups_request import DescribeGroupsRequest
from headrace.wire.messages.list_groups_request import ListGroupsRequest
from headrace.wire.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from headrace.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from headrace.wire.messages.share_group_describe_request import ShareGroupDescribeRequest
from headrace.wire.messages.share_group_describe_response import ShareGroupDescribeResponse
from headrace.wire.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse
from headrace.wire.messages.streams_group_describe_request import StreamsGroupDescribeRequest
from headrace.wire.messages.streams_group_heartbeat_request import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    Topology,
)
from tests.differential.consumer_requests import consumer_beat, topic_of_groups
from tests.differential.consumer_requests import describe as describe_consumers
from tests.differential.conversation import Conversation
from tests.differential.group_requests import (
    commit,
    group_coordinator,
    heartbeat,
    join,
    joined,
)
from tests.differential.plain import Plain
from tests.differential.requests import TIMEOUT_MS, delete
from tests.differential.share_requests import (
    LEFT,
    ask_beat,
    describe,
    share_beat,
    share_coordinator,
    share_log,
    state_records,
    wait_for_states,
    whole_states,
)


def share_group_of_one(talk: Conversation) -> None:
    group_coordinator(talk)
    share_coordinator(talk)
    one, two = topic_of_groups(talk, "one", partitions=3), topic_of_groups(talk, "two")
    group = talk.name("group")
    first = ask_beat(talk, "join", share_beat(group, "m", 0, [one.name]))
    describe(talk, "described", group)
    wait_for_states(talk, group)
    _keep_log(talk, "what is written of a member that joined", group)
    third = ask_beat(talk, "the states have begun", share_beat(group, "m", first.member_epoch))
    epoch = third.member_epoch
    ask_beat(talk, "nothing changed", share_beat(group, "m", epoch))
    ask_beat(talk, "what it wants once more", share_beat(group, "m", epoch, [one.name]))
    both = [two.name, one.name]
    second = ask_beat(talk, "another topic", share_beat(group, "m", epoch, both))
    epoch = second.member_epoch
    wait_for_states(talk, group, whole_states(3, 1))
    ask_beat(talk, "the epoch before", share_beat(group, "m", epoch - 1))
    ask_beat(talk, "the epoch before, again", share_beat(group, "m", epoch, both))
    epoch += 1
    ask_beat(talk, "a rack", share_beat(group, "m", epoch, rack="r"))
    describe(talk, "described with both", group)
    ask_beat(talk, "it joins again", share_beat(group, "m", 0, both))
    ask_beat(talk, "it joins again for less", share_beat(group, "m", 0, [one.name]))
    describe(talk, "described with one", group)
    ask_beat(talk, "no topics", share_beat(group, "m", epoch + 1, []))
    describe(talk, "described with none", group)
    ask_beat(talk, "it leaves", share_beat(group, "m", LEFT))
    ask_beat(talk, "it leaves again", share_beat(group, "m", LEFT))
    describe(talk, "described as empty", group)
    ask_beat(talk, "a heartbeat afterwards", share_beat(group, "m", epoch))
    ask_beat(talk, "it comes back", share_beat(group, "m", 0, [one.name]))
    ask_beat(talk, "it leaves for good", share_beat(group, "m", LEFT))
    talk.ask("the group is deleted", DeleteGroupsRequest(groups_names=[group]))
    describe(talk, "described as deleted", group)
    _keep_log(talk, "what is written in all", group)


def share_group_of_many(talk: Conversation) -> None:
    group_coordinator(talk)
    share_coordinator(talk)
    topic = topic_of_groups(talk, "in", partitions=4)
    group = talk.name("group")
    ask_beat(talk, "the first", share_beat(group, "m1", 0, [topic.name]))
    wait_for_states(talk, group)
    _settle(talk, group)
    for count in range(2, 10):
        member = f"m{count}"
        ask = share_beat(group, member, 0, [topic.name])
        talk.quietly(ask, ShareGroupHeartbeatResponse)
        _settle(talk, group)
        _keep_loads(talk, f"{count} members", group)
    for count in range(8, 0, -1):
        gone = share_beat(group, f"m{count + 1}", LEFT)
        talk.quietly(gone, ShareGroupHeartbeatResponse)
        _settle(talk, group)
        if count != 7:  # there Kafka's loads, too, depend on hash maps
            _keep_loads(talk, f"{count} members are left", group)


def share_group_of_different_wishes(talk: Conversation) -> None:
    group_coordinator(talk)
    share_coordinator(talk)
    one, two = topic_of_groups(talk, "one", partitions=2), topic_of_groups(talk, "two")
    group = talk.name("group")
    ask_beat(talk, "a wants one", share_beat(group, "a", 0, [one.name]))
    wait_for_states(talk, group)
    ask_beat(talk, "b wants two", share_beat(group, "b", 0, [two.name]))
    wait_for_states(talk, group, whole_states(2, 1))
    _settle(talk, group)
    describe(talk, "both have what they want", group)
    ask_beat(talk, "b leaves", share_beat(group, "b", LEFT))
    describe(talk, "b is gone", group)
    _settle(talk, group)
    _settle(talk, group)
    describe(talk, "a is left", group)


def share_group_topics(talk: Conversation) -> None:
    group_coordinator(talk)
    share_coordinator(talk)
    grows, comes = topic_of_groups(talk, "grows"), talk.name("comes")
    group = talk.name("group")
    wanted = [grows.name, comes]
    ask_beat(talk, "a topic that is not there", share_beat(group, "m", 0, wanted))
    describe(talk, "described", group)
    wait_for_states(talk, group)
    _settle(talk, group)
    more = CreatePartitionsTopic(name=grows.name, count=2, assignments=None)
    talk.ask("a partition more", CreatePartitionsRequest(topics=[more], timeout_ms=TIMEOUT_MS))
    _wait_for_epoch(talk, group, 4)
    wait_for_states(talk, group, whole_states(2))
    _settle(talk, group)
    describe(talk, "described with another partition", group)
    talk.topic("comes")
    _wait_for_epoch(talk, group, 6)
    wait_for_states(talk, group, whole_states(2, 1))
    _settle(talk, group)
    describe(talk, "described with another topic", group)
    talk.ask("a topic is deleted", delete(grows.name))
    talk.gone(grows.name)
    _wait_for_epoch(talk, group, 8)
    wait_for_states(talk, group, whole_states(1))
    _settle(talk, group)
    describe(talk, "described without it", group)
    _keep(talk, "states", state_records(talk, group)[-1])


def share_heartbeat_errors(talk: Conversation) -> None:
    group_coordinator(talk)
    share_coordinator(talk)
    topic = topic_of_groups(talk, "in", partitions=2)
    wanted = [topic.name]
    ask_beat(talk, "no group", share_beat("", "m", 0, wanted))
    ask_beat(talk, "a group of blanks", share_beat("  ", "m", 0, wanted))
    ask_beat(talk, "no member", share_beat(talk.name("a"), "", 0, wanted))
    ask_beat(talk, "a member of blanks", share_beat(talk.name("a"), "  ", 0, wanted))
    ask_beat(talk, "nothing said of topics", share_beat(talk.name("a"), "m", 0))
    ask_beat(talk, "no topics", share_beat(talk.name("a"), "m", 0, []))
    ask_beat(talk, "an empty rack", share_beat(talk.name("a"), "m", 0, wanted, rack=""))
    ask_beat(talk, "an empty name of a topic", share_beat(talk.name("b"), "m", 0, [""]))
    ask_beat(talk, "a topic's name that cannot be", share_beat(talk.name("c"), "m", 0, ["a b"]))
    ask_beat(talk, "epoch -2", share_beat(talk.name("k"), "m", -2))
    ask_beat(talk, "epoch 1 of a group that is none", share_beat(talk.name("k"), "m", 1))
    ask_beat(talk, "it leaves a group that is none", share_beat(talk.name("k"), "m", LEFT))
    group = talk.name("group")
    ask_beat(talk, "a member", share_beat(group, "m", 0, wanted))
    wait_for_states(talk, group)
    epoch = _settle(talk, group)
    ask_beat(talk, "a topic twice", share_beat(group, "m", epoch, wanted * 2))
    ask_beat(talk, "an unknown member", share_beat(group, "nobody", epoch))
    ask_beat(talk, "an unknown member leaves", share_beat(group, "nobody", LEFT))
    ask_beat(talk, "an epoch ahead", share_beat(group, "m", epoch + 1))
    ask_beat(talk, "two epochs ahead", share_beat(group, "m", epoch + 2, wanted))
    other = topic_of_groups(talk, "other")
    beat = share_beat(group, "m", epoch, [other.name])
    ask_beat(talk, "another topic", beat)
    wait_for_states(talk, group, whole_states(2, 1))
    epoch = _settle(talk, group)
    beat = share_beat(group, "m", epoch, wanted)
    epoch = ask_beat(talk, "the first topic again", beat).member_epoch
    ask_beat(talk, "an old epoch", share_beat(group, "m", epoch - 2))
    ask_beat(talk, "an old epoch with topics", share_beat(group, "m", epoch - 2, wanted))
    describe(talk, "described", group)


def share_groups_and_others(talk: Conversation) -> None:
    group_coordinator(talk)
    topic = topic_of_groups(talk, "in", partitions=2)
    wanted = [topic.name]
    shared, consumers = talk.name("shared"), talk.name("consumers")
    classic, used = talk.name("classic"), talk.name("used")
    streams = talk.name("streams")
    ask_beat(talk, "a share group", share_beat(shared, "m", 0, wanted))
    beat = consumer_beat(consumers, "c", 0, topics=wanted, owned={})
    talk.ask("a consumer group", beat)
    joined(talk, classic)
    talk.ask("a group of offsets only", commit(used, topic, (0, 5)))
    topology = Topology(epoch=1, subtopologies=[Subtopology("0", source_topics=wanted)])
    talk.ask("a streams group", _streams(streams, topology))

    for name, group in (
        ("consumers", consumers),
        ("classic members", classic),
        ("offsets only", used),
        ("streams members", streams),
    ):
        ask_beat(talk, f"joins {name}", share_beat(group, "m", 0, wanted))
        ask_beat(talk, f"goes on among {name}", share_beat(group, "m", 1))
        ask_beat(talk, f"leaves {name}", share_beat(group, "m", LEFT))
        describe(talk, f"a description of {name}", group)
    talk.ask("a consumer in it", consumer_beat(shared, "c", 0, topics=wanted, owned={}))
    talk.ask("a consumer goes on in it", consumer_beat(shared, "c", 1))
    talk.ask("a consumer leaves it", consumer_beat(shared, "c", LEFT))
    talk.ask("a streams member in it", _streams(shared, topology))
    talk.ask("a classic member in it", join(shared), 3)
    talk.ask("a classic member with an id in it", join(shared, "x"))
    talk.ask("a classic heartbeat in it", heartbeat(shared, 1, "m"))
    talk.ask("a commit of its member", commit(shared, topic, (0, 5), member=("m", 2)))
    talk.ask("a commit of nobody", commit(shared, topic, (0, 5)))
    row = OffsetFetchRequestGroup(group_id=shared, topics=None)
    rows = [OffsetDeleteRequestTopic(topic.name, [OffsetDeleteRequestPartition(0)])]
    talk.ask("its offsets are deleted", OffsetDeleteRequest(shared, rows))
    talk.ask("its offsets", OffsetFetchRequest(groups=[row]))
    describe_consumers(talk, "as a consumer group", shared)
    talk.ask("as a streams group", StreamsGroupDescribeRequest(group_ids=[shared]))
    talk.ask_all_versions("as a classic group", DescribeGroupsRequest(groups=[shared]))
    talk.ask("it has members and is not deleted", DeleteGroupsRequest(groups_names=[shared]))
    ask_beat(talk, "its member leaves", share_beat(shared, "m", LEFT))
    talk.ask("a commit of nobody for an empty one", commit(shared, topic, (0, 5)))
    talk.ask("a consumer in an empty one", consumer_beat(shared, "c", 0, topics=wanted, owned={}))
    talk.ask("a classic member in an empty one", join(shared), 3)
    describe(talk, "it is still one", shared)


def list_share_groups(talk: Conversation) -> None:
    group_coordinator(talk)
    topic = topic_of_groups(talk, "in", partitions=2)
    for name in ("full", "left", "gone"):
        ask_beat(talk, name, share_beat(talk.name(name), "m", 0, [topic.name]))
    for name in ("left", "gone"):
        ask_beat(talk, f"{name} is left", share_beat(talk.name(name), "m", LEFT))
    talk.ask("gone is deleted", DeleteGroupsRequest(groups_names=[talk.name("gone")]))
    talk.ask("gone is deleted again", DeleteGroupsRequest(groups_names=[talk.name("gone")]))
    talk.ask_all_versions("all", ListGroupsRequest())
    for types in (["share"], ["Share"], ["consumer"], ["share", "classic"]):
        talk.ask(f"of type {types}", ListGroupsRequest(types_filter=types))
    for states in (["Empty"], ["stable"], ["Dead"], ["Assigning"]):
        talk.ask(f"in state {states}", ListGroupsRequest(states_filter=states))


def share_describe(talk: Conversation) -> None:
    group_coordinator(talk)
    topic = topic_of_groups(talk, "in")
    group = talk.name("group")
    ask_beat(talk, "join", share_beat(group, "m", 0, [topic.name], rack="r"))
    describe(talk, "one that does not exist", talk.name("none"))
    describe(talk, "an empty id", "")
    describe(talk, "nobody")
    describe(talk, "it twice and another", group, talk.name("none"), group)
    request = ShareGroupDescribeRequest(group_ids=[group], include_authorized_operations=True)
    talk.ask("with operations", request)


def _streams(group: str, topology: Topology) -> StreamsGroupHeartbeatRequest:
    return StreamsGroupHeartbeatRequest(
        group_id=group,
        member_id="s",
        rebalance_timeout_ms=60_000,
        topology=topology,
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id="p",
        client_tags=[],
    )


def _keep_log(talk: Conversation, name: str, group: str) -> None:
    for number, row in enumerate(share_log(talk, group)):
        _keep(talk, f"{name}, {number}", row)


def _keep(talk: Conversation, name: str, rows: Plain) -> None:
    talk.keep(name, ShareGroupDescribeRequest(), 1, rows)


def _described(talk: Conversation, group: str) -> ShareGroupDescribeResponse:
    return talk.quietly(ShareGroupDescribeRequest(group_ids=[group]), ShareGroupDescribeResponse)


def _settle(talk: Conversation, group: str) -> int:
    """Have members go on until all are in the epoch of the group; give it."""

    def is_settled() -> bool:
        for member in _described(talk, group).groups[0].members:
            beat = share_beat(group, member.member_id, member.member_epoch)
            talk.quietly(beat, ShareGroupHeartbeatResponse)
        row = _described(talk, group).groups[0]
        return {row.group_epoch, row.assignment_epoch} == {
            member.member_epoch for member in row.members
        }

    talk.until_so(is_settled)
    return _described(talk, group).groups[0].group_epoch


def _wait_for_epoch(talk: Conversation, group: str, epoch: int) -> None:
    """Have members go on until the group is in an epoch."""
    talk.until_so(lambda: _settle(talk, group) >= epoch)


def _keep_loads(talk: Conversation, name: str, group: str) -> None:
    """Keep how evenly partitions are given out: who has which depends on hash maps in Kafka."""
    row = _described(talk, group).groups[0]
    readers: Counter[int] = Counter()
    loads = []
    for member in row.members:
        held = [each for topic in member.assignment.topic_partitions for each in topic.partitions]
        loads.append(len(held))
        readers.update(held)
    _keep(
        talk,
        name,
        {
            "epochs": [row.group_epoch, row.assignment_epoch],
            "member epochs": sorted(member.member_epoch for member in row.members),
            "least and most read": [min(loads), max(loads)],
            "most readers": max(readers.values()),
        },
    )


SCRIPTS = (
    share_group_of_one,
    share_group_of_many,
    share_group_of_different_wishes,
    share_group_topics,
    share_heartbeat_errors,
    share_groups_and_others,
    list_share_groups,
    share_describe,
)
