"""The consumer protocol: ConsumerGroupHeartbeat and ConsumerGroupDescribe (KIP-848)."""

from headrace.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from headrace.wire.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
)
from headrace.wire.messages.consumer_group_heartbeat_response import (
    ConsumerGroupHeartbeatResponse,
)
from headrace.wire.messages.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from headrace.wire.messages.create_partitions_response import CreatePartitionsResponse
from headrace.wire.messages.delete_topics_response import DeleteTopicsResponse
from headrace.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.differential.consumer_requests import (
    LEFT,
    ask_beat,
    consumer_beat,
    describe,
    topic_of_groups,
)
from tests.differential.conversation import Conversation
from tests.differential.group_requests import (
    group_coordinator,
)
from tests.differential.plain import MADE_UP_ID
from tests.differential.requests import TIMEOUT_MS, Topic, delete

GROUP = 32
"""The kind of resource that has a group's configs."""


def consumer_group_of_one(talk: Conversation) -> None:
    group_coordinator(talk)
    topic = topic_of_groups(talk, "plain", partitions=3)
    for version in (0, 1):
        group = talk.name(f"v{version}")
        id_ = "" if version == 0 else "m"
        join_it = consumer_beat(group, id_, 0, topics=[topic.name], owned={})
        first = ask_beat(talk, f"join v{version}", join_it, version)
        member = first.member_id or ""
        describe(talk, f"described v{version}", group)
        every = {topic.id: [0, 1, 2]}
        own = consumer_beat(group, member, first.member_epoch, owned=every)
        ask_beat(talk, f"it owns what it got v{version}", own, version)
        beat = consumer_beat(group, member, first.member_epoch)
        ask_beat(talk, f"nothing changed v{version}", beat, version)
        describe(talk, f"described as stable v{version}", group)
        full = consumer_beat(
            group, member, first.member_epoch, topics=[topic.name], owned=every, rebalance_ms=60_000
        )
        ask_beat(talk, f"all is told again v{version}", full, version)
        some = consumer_beat(group, member, first.member_epoch, owned={topic.id: [0]})
        ask_beat(talk, f"it owns one of three v{version}", some, version)
        again = ask_beat(talk, f"it joins again v{version}", _with_id(join_it, member), version)
        gone = consumer_beat(group, member, LEFT)
        ask_beat(talk, f"it leaves v{version}", gone, version)
        ask_beat(talk, f"it leaves again v{version}", gone, version)
        beat = consumer_beat(group, member, again.member_epoch)
        ask_beat(talk, f"its heartbeat afterwards v{version}", beat, version)
        describe(talk, f"described as empty v{version}", group)


def consumer_heartbeat_errors(talk: Conversation) -> None:
    group_coordinator(talk)
    topic = topic_of_groups(talk, "plain", partitions=2)
    group, topics = talk.name("group"), [topic.name]

    def ask(name: str, request: ConsumerGroupHeartbeatRequest) -> None:
        for version in (0, 1):
            ask_beat(talk, f"{name} v{version}", request, version)

    ask("no group", consumer_beat("", "m", 0, topics=topics, owned={}))
    ask("a group of blanks", consumer_beat("  ", "m", 0, topics=topics, owned={}))
    ask("no subscription", consumer_beat(talk.name("a"), "m", 0, owned={}))
    ask("an empty subscription", consumer_beat(talk.name("b"), "m", 0, topics=[], owned={}))
    ask("nothing said of what it owns", consumer_beat(talk.name("c"), "m", 0, topics=topics))
    owning = consumer_beat(talk.name("d"), "m", 0, topics=topics, owned={topic.id: [0]})
    ask("it owns before it joins", owning)
    late = consumer_beat(talk.name("e"), "m", 0, topics=topics, owned={}, rebalance_ms=-1)
    ask("no rebalance timeout", late)
    late = consumer_beat(talk.name("f"), "m", 0, topics=topics, owned={}, rebalance_ms=0)
    ask("a rebalance timeout of 0", late)
    other = consumer_beat(talk.name("g"), "m", 0, topics=topics, owned={}, assignor="none")
    ask("an assignor that does not exist", other)
    other = consumer_beat(talk.name("h"), "m", 0, topics=topics, owned={}, assignor="")
    ask("an assignor without a name", other)
    ask("epoch -3", consumer_beat(talk.name("i"), "m", -3))
    ask("epoch 1 of a group that does not exist", consumer_beat(talk.name("j"), "m", 1))
    ask("it leaves a group that does not exist", consumer_beat(talk.name("j"), "m", LEFT))
    ask("it leaves for a while without an instance", consumer_beat(talk.name("j"), "m", -2))
    instance = consumer_beat(talk.name("k"), "m", 0, topics=topics, owned={}, instance="")
    ask("an instance without a name", instance)
    rack = consumer_beat(talk.name("l"), "m", 0, topics=topics, owned={})
    rack.rack_id = ""
    ask("a rack without a name", rack)
    ask("no member id", consumer_beat(talk.name("m"), "", 0, topics=topics, owned={}))
    ask("no member id, epoch 1", consumer_beat(group, "", 1))
    ask("no member id, it leaves", consumer_beat(group, "", LEFT))
    unknown = consumer_beat(talk.name("n"), "m", 0, topics=[talk.name("none")], owned={})
    ask("an unknown topic", unknown)
    unknown = consumer_beat(talk.name("o"), "m", 0, topics=["a b", ""], owned={})
    ask("invalid topics", unknown)
    first = ask_beat(talk, "a member", consumer_beat(group, "m", 0, topics=topics, owned={}))
    epoch = first.member_epoch
    ask("an unknown member", consumer_beat(group, "nobody", epoch))
    ask("an unknown member leaves", consumer_beat(group, "nobody", LEFT))
    ask("an epoch ahead", consumer_beat(group, "m", epoch + 1))
    ask("an old epoch", consumer_beat(group, "m", epoch - 2 or 1))
    strange = consumer_beat(group, "m", epoch, owned={MADE_UP_ID: [0]})
    ask("it owns what does not exist", strange)
    strange = consumer_beat(group, "m", epoch, owned={topic.id: [7]})
    ask("it owns a partition that does not exist", strange)
    ask("it takes another assignor", consumer_beat(group, "m", epoch, assignor="range"))
    ask("it takes one that is none", consumer_beat(group, "m", epoch, assignor="none"))
    ask("it wants nothing any more", consumer_beat(group, "m", epoch, topics=[]))
    describe(talk, "described", group)


def consumer_subscriptions(talk: Conversation) -> None:
    """Epochs, and what a member gets when its subscription or its topics change."""
    group_coordinator(talk)
    one, two = (
        topic_of_groups(talk, "one", partitions=2),
        topic_of_groups(talk, "two", partitions=2),
    )
    group = talk.name("group")
    first = ask_beat(talk, "join", consumer_beat(group, "m", 0, topics=[one.name], owned={}))
    owned = {one.id: [0, 1]}
    ask_beat(talk, "own", consumer_beat(group, "m", first.member_epoch, owned=owned))
    both = consumer_beat(group, "m", first.member_epoch, topics=[one.name, two.name], owned=owned)
    second = ask_beat(talk, "a topic more", both)
    ask_beat(talk, "the epoch before, the same owned", both)
    owned = {one.id: [0, 1], two.id: [0, 1]}
    epoch = second.member_epoch
    ask_beat(talk, "own more", consumer_beat(group, "m", epoch, owned=owned))
    less = consumer_beat(group, "m", epoch, topics=[two.name], owned=owned)
    ask_beat(talk, "a topic less", less)
    describe(talk, "while it gives up", group)
    third = ask_beat(talk, "it gave up", consumer_beat(group, "m", epoch, owned={two.id: [0, 1]}))
    describe(talk, "when it gave up", group)
    epoch = third.member_epoch
    assignor = consumer_beat(group, "m", epoch, assignor="range", owned={two.id: [0, 1]})
    fourth = ask_beat(talk, "another assignor", assignor)
    describe(talk, "with another assignor", group)
    rack = consumer_beat(group, "m", fourth.member_epoch)
    rack.rack_id = "r"
    ask_beat(talk, "a rack", rack)
    describe(talk, "with a rack", group)


def consumer_group_of_two(talk: Conversation) -> None:
    group_coordinator(talk)
    topic = topic_of_groups(talk, "plain", partitions=4)
    for assignor in ("uniform", "range"):
        _two_members(talk, topic, assignor)


def _two_members(talk: Conversation, topic: Topic, assignor: str) -> None:
    group = talk.name(assignor)

    def ask(
        name: str, member: str, epoch: int, *partitions: int, is_said: bool = True
    ) -> ConsumerGroupHeartbeatResponse:
        owned = {topic.id: [*partitions]} if partitions else {}
        request = consumer_beat(
            group,
            member,
            epoch,
            owned=owned if is_said else None,
            topics=[topic.name] if epoch == 0 else None,
            assignor=assignor if epoch == 0 else None,
        )
        return ask_beat(talk, f"{assignor}: {name}", request)

    a = ask("a joins", "a", 0)
    ask("a owns all", "a", a.member_epoch, 0, 1, 2, 3)
    b = ask("b joins and waits", "b", 0)
    ask("b waits on", "b", b.member_epoch)
    describe(talk, f"{assignor}: a has not heard of it", group)
    a2 = ask("a hears", "a", a.member_epoch, is_said=False)
    kept = _partitions(a2)
    describe(talk, f"{assignor}: a gives up", group)
    ask("b still waits", "b", b.member_epoch)
    ask("a owns too much", "a", a2.member_epoch, 0, 1, 2, 3)
    a3 = ask("a gave up", "a", a2.member_epoch, *kept)
    b2 = ask("b gets", "b", b.member_epoch, is_said=False)
    got = _partitions(b2)
    ask("b owns", "b", b2.member_epoch, *got)
    describe(talk, f"{assignor}: both have", group)
    ask("a's epoch before", "a", a.member_epoch, is_said=False)
    ask("a's epoch before, with what it owns", "a", a.member_epoch, *kept)
    ask_beat(talk, f"{assignor}: b leaves", consumer_beat(group, "b", LEFT))
    ask("a takes over", "a", a3.member_epoch, *kept)
    describe(talk, f"{assignor}: a alone", group)


def _partitions(answer: ConsumerGroupHeartbeatResponse) -> list[int]:
    rows = answer.assignment.topic_partitions if answer.assignment else []
    return [partition for row in rows for partition in row.partitions]


def consumer_late_member(talk: Conversation) -> None:
    """One that does not give up in its time what another waits for."""
    group_coordinator(talk)
    topic = topic_of_groups(talk, "plain", partitions=2)
    group, every = talk.name("group"), {topic.id: [0, 1]}
    joining = consumer_beat(group, "a", 0, topics=[topic.name], owned={}, rebalance_ms=300)
    a = ask_beat(talk, "a joins", joining)
    ask_beat(talk, "a owns all", consumer_beat(group, "a", a.member_epoch, owned=every))
    joining = consumer_beat(group, "b", 0, topics=[topic.name], owned={})
    b = ask_beat(talk, "b joins", joining)
    ask_beat(talk, "a hears", consumer_beat(group, "a", a.member_epoch))
    talk.until(
        consumer_beat(group, "a", a.member_epoch),
        ConsumerGroupHeartbeatResponse,
        lambda m: m.error_code != 0,
    )
    ask_beat(talk, "a is too late", consumer_beat(group, "a", a.member_epoch, owned=every))
    ask_beat(talk, "b has all", consumer_beat(group, "b", b.member_epoch, owned={}))
    describe(talk, "b alone", group)


def consumer_topics_change(talk: Conversation) -> None:
    """A topic that grows, and one that goes."""
    group_coordinator(talk)
    topic, other = (topic_of_groups(talk, "plain"), topic_of_groups(talk, "other"))
    group, topics = talk.name("group"), [topic.name, other.name]
    a = ask_beat(talk, "join", consumer_beat(group, "a", 0, topics=topics, owned={}))
    owned = {topic.id: [0], other.id: [0]}
    ask_beat(talk, "own", consumer_beat(group, "a", a.member_epoch, owned=owned))
    grown = CreatePartitionsTopic(name=topic.name, count=3, assignments=None)
    talk.quietly(
        CreatePartitionsRequest(topics=[grown], timeout_ms=TIMEOUT_MS), CreatePartitionsResponse
    )
    beat = consumer_beat(group, "a", a.member_epoch, owned=owned)
    got = talk.until(
        beat, ConsumerGroupHeartbeatResponse, lambda m: m.member_epoch > beat.member_epoch
    )
    describe(talk, "it has grown", group)
    owned = {topic.id: [0, 1, 2], other.id: [0]}
    own = consumer_beat(group, "a", got.member_epoch, owned=owned)
    ask_beat(talk, "own what there is more", own)
    talk.quietly(delete(other.name), DeleteTopicsResponse)
    beat = consumer_beat(group, "a", got.member_epoch)
    talk.until(beat, ConsumerGroupHeartbeatResponse, lambda m: m.assignment is not None)
    left = consumer_beat(group, "a", got.member_epoch, owned={topic.id: [0, 1, 2]})
    ask_beat(talk, "own what is left", left)
    describe(talk, "one is gone", group)


def consumer_group_configs(talk: Conversation) -> None:
    """What a group is told of its own shows in its answers."""
    group_coordinator(talk)
    topic = topic_of_groups(talk, "plain")
    group = talk.name("group")
    joining = consumer_beat(group, "a", 0, topics=[topic.name], owned={})
    a = ask_beat(talk, "join", joining)
    change = AlterableConfig(name="consumer.heartbeat.interval.ms", value="6000")
    resource = AlterConfigsResource(resource_type=GROUP, resource_name=group, configs=[change])
    request = IncrementalAlterConfigsRequest(resources=[resource])
    talk.ask("another interval", request)
    beat = consumer_beat(group, "a", a.member_epoch)
    talk.until(beat, ConsumerGroupHeartbeatResponse, lambda m: m.heartbeat_interval_ms == 6000)
    ask_beat(talk, "the heartbeat says it", beat)


def consumer_regex(talk: Conversation) -> None:
    group_coordinator(talk)
    topic = topic_of_groups(talk, "one", partitions=2)
    topic_of_groups(talk, "two")
    for number, regex in enumerate(("[", "(", "*", "(?P<a", "a{2,1}", "\\", "(?=a)", "a\\1")):
        request = consumer_beat(talk.name(f"bad{number}"), "m", 0, regex=regex, owned={})
        ask_beat(talk, f"a regex that is none: {regex}", request)
    empty = consumer_beat(talk.name("empty"), "m", 0, regex="", owned={})
    ask_beat(talk, "an empty regex", empty)
    request = consumer_beat(talk.name("old"), "m", 0, topics=[topic.name], owned={})
    ask_beat(talk, "a member by name", request)
    group = talk.name("group")
    request = consumer_beat(group, "m", 0, regex=f"{topic.name}|x-other.*", owned={})
    ask_beat(talk, "a regex", request)
    talk.until(
        consumer_beat(group, "m", 0, regex=f"{topic.name}|x-other.*", owned={}),
        ConsumerGroupHeartbeatResponse,
        lambda m: bool(m.assignment and m.assignment.topic_partitions),
    )
    hidden = ["member_epoch", "group_epoch", "assignment_epoch"]
    talk.ask("when it is resolved", ConsumerGroupDescribeRequest(group_ids=[group]), hide=hidden)


def consumer_describe(talk: Conversation) -> None:
    group_coordinator(talk)
    topic = topic_of_groups(talk, "plain", partitions=2)
    group = talk.name("group")
    ask_beat(talk, "join", consumer_beat(group, "m", 0, topics=[topic.name], owned={}))
    for version in (0, 1):
        for name, groups in (
            ("it", [group]),
            ("one that does not exist", [talk.name("none")]),
            ("an empty id", [""]),
            ("nobody", []),
            ("it twice and another", [group, talk.name("none"), group]),
        ):
            request = ConsumerGroupDescribeRequest(group_ids=groups)
            talk.ask(f"{name} v{version}", request, version)
        request = ConsumerGroupDescribeRequest(
            group_ids=[group, talk.name("none")], include_authorized_operations=True
        )
        talk.ask(f"with operations v{version}", request, version)


def _with_id(request: ConsumerGroupHeartbeatRequest, member: str) -> ConsumerGroupHeartbeatRequest:
    request.member_id = member
    return request


SCRIPTS = (
    consumer_group_of_one,
    consumer_heartbeat_errors,
    consumer_subscriptions,
    consumer_group_of_two,
    consumer_late_member,
    consumer_topics_change,
    consumer_group_configs,
    consumer_regex,
    consumer_describe,
)
