"""The streams protocol: StreamsGroupHeartbeat and StreamsGroupDescribe (KIP-1071)."""

from headrace.wire.messages.metadata_response import MetadataResponse
from headrace.wire.messages.streams_group_describe_request import StreamsGroupDescribeRequest
from headrace.wire.messages.streams_group_heartbeat_request import (
    CopartitionGroup,
    Endpoint,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TaskOffset,
    TopicInfo,
    Topology,
)
from headrace.wire.messages.streams_group_heartbeat_response import StreamsGroupHeartbeatResponse
from tests.differential.consumer_requests import LEFT, consumer_beat, topic_of_groups
from tests.differential.conversation import Conversation
from tests.differential.group_requests import commit, group_coordinator, heartbeat, join
from tests.differential.requests import metadata

LEFT_STATIC = -2
REBALANCE_TIMEOUT_MS = 60_000


def streams_group_of_one(talk: Conversation) -> None:
    group_coordinator(talk)
    topic = topic_of_groups(talk, "in", partitions=3)
    group = talk.name("group")
    plain = Topology(epoch=1, subtopologies=[Subtopology("0", source_topics=[topic.name])])
    first = ask_beat(talk, "join", _joining(group, "m", plain))
    epoch = first.member_epoch
    describe(talk, "described", group)
    own = _beat(group, "m", epoch, active=_tasks(first))
    ask_beat(talk, "it owns what it got", own)
    ask_beat(talk, "nothing changed", _beat(group, "m", epoch))
    describe(talk, "described as stable", group)
    offsets = _beat(group, "m", epoch)
    offsets.task_offsets = [TaskOffset(subtopology_id="0", partition=0, offset=5)]
    ask_beat(talk, "offsets of its tasks", offsets)
    talk.ask("a commit", commit(group, topic, (0, 5), member=("m", epoch)))
    talk.ask("a commit of an epoch ahead", commit(group, topic, (0, 5), member=("m", epoch + 1)))
    talk.ask("a commit of a stranger", commit(group, topic, (0, 5), member=("x", epoch)))
    ask_beat(talk, "it joins again", _joining(group, "m", plain))
    gone = _beat(group, "m", LEFT)
    ask_beat(talk, "it leaves", gone)
    ask_beat(talk, "it leaves again", gone)
    describe(talk, "described as empty", group)
    ask_beat(talk, "its heartbeat afterwards", _beat(group, "m", epoch))


def streams_heartbeat_errors(talk: Conversation) -> None:
    group_coordinator(talk)
    topic = topic_of_groups(talk, "in", partitions=2)
    plain = Topology(epoch=1, subtopologies=[Subtopology("0", source_topics=[topic.name])])

    def joining(suffix: str, topology: Topology | None = plain) -> StreamsGroupHeartbeatRequest:
        return _joining(talk.name(suffix), "m", topology)

    ask_beat(talk, "no group", _joining("", "m", plain))
    ask_beat(talk, "a group of blanks", _joining("  ", "m", plain))
    ask_beat(talk, "no member", _joining(talk.name("a"), "", plain))
    ask_beat(talk, "no topology", joining("b", None))
    request = joining("c")
    request.rebalance_timeout_ms = -1
    ask_beat(talk, "no rebalance timeout", request)
    request = joining("d")
    request.rebalance_timeout_ms = 0
    ask_beat(talk, "a rebalance timeout of 0", request)
    for field in ("active_tasks", "standby_tasks", "warmup_tasks"):
        request = joining("e")
        setattr(request, field, None)
        ask_beat(talk, f"nothing said of {field}", request)
        setattr(request, field, [TaskIds("0", [0])])
        ask_beat(talk, f"it has {field} before it joins", request)
    request = joining("f")
    request.process_id = None
    ask_beat(talk, "no process id", request)
    request.process_id = ""
    ask_beat(talk, "an empty process id", request)
    request = joining("g")
    request.client_tags = None
    ask_beat(talk, "no client tags", request)
    for instance in ("", "i"):
        request = joining("h")
        request.instance_id = instance
        ask_beat(talk, f"an instance named {instance!r}", request)
    request = joining("i")
    request.rack_id = ""
    ask_beat(talk, "a rack without a name", request)
    request = joining("j")
    request.user_endpoint = Endpoint(host="", port=0)
    ask_beat(talk, "an endpoint that is none", request)
    ask_beat(talk, "epoch -3", _beat(talk.name("k"), "m", -3))
    ask_beat(talk, "epoch 1 of a group that does not exist", _beat(talk.name("k"), "m", 1))
    ask_beat(talk, "it leaves a group that does not exist", _beat(talk.name("k"), "m", LEFT))
    ask_beat(talk, "it leaves for a while", _beat(talk.name("k"), "m", LEFT_STATIC))


def streams_heartbeat_errors_of_members(talk: Conversation) -> None:
    group_coordinator(talk)
    topic = topic_of_groups(talk, "in", partitions=2)
    plain = Topology(epoch=1, subtopologies=[Subtopology("0", source_topics=[topic.name])])
    group = talk.name("group")
    first = ask_beat(talk, "a member", _joining(group, "m", plain))
    epoch = first.member_epoch
    ask_beat(talk, "an unknown member", _beat(group, "nobody", epoch))
    ask_beat(talk, "an unknown member leaves", _beat(group, "nobody", LEFT))
    ask_beat(talk, "an epoch ahead", _beat(group, "m", epoch + 1))
    ask_beat(talk, "an old epoch", _beat(group, "m", epoch - 1))
    ask_beat(talk, "an unknown subtopology", _beat(group, "m", epoch, active=[TaskIds("9", [0])]))
    ask_beat(talk, "an unknown task", _beat(group, "m", epoch, active=[TaskIds("0", [9])]))
    twice = [TaskIds("0", [0, 0])]
    ask_beat(talk, "a task twice", _beat(group, "m", epoch, active=twice))
    request = _beat(group, "m", epoch)
    request.topology = plain
    ask_beat(talk, "the topology once more", request)
    request = _beat(group, "m", epoch)
    request.shutdown_application = True
    ask_beat(talk, "it asks for a shutdown", request)
    describe(talk, "described", group)


def streams_topologies(talk: Conversation) -> None:
    group_coordinator(talk)
    two, three = (
        topic_of_groups(talk, "two", partitions=2),
        topic_of_groups(talk, "three", partitions=3),
    )
    missing = talk.name("missing")

    def ask(suffix: str, *subtopologies: Subtopology, epoch: int = 1) -> None:
        topology = Topology(epoch=epoch, subtopologies=list(subtopologies))
        group = talk.name(suffix.replace(" ", "-"))
        ask_beat(talk, suffix, _joining(group, "m", topology))
        describe(talk, f"described: {suffix}", group)

    ask("no subtopologies")
    ask("one without topics", Subtopology("0"))
    ask("a missing source", Subtopology("0", source_topics=[missing]))
    ask("a missing and a known source", Subtopology("0", source_topics=[missing, two.name]))
    ask("two sources", Subtopology("0", source_topics=[two.name, three.name]))
    both = [two.name, three.name]
    together = [CopartitionGroup(source_topics=[0, 1])]
    unequal = Subtopology("0", source_topics=both, copartition_groups=together)
    ask("sources that are not copartitioned", unequal)
    ask(
        "two subtopologies",
        Subtopology("0", source_topics=[two.name]),
        Subtopology("1", source_topics=[three.name]),
    )
    ask(
        "a subtopology twice",
        Subtopology("0", source_topics=[two.name]),
        Subtopology("0", source_topics=[three.name]),
    )
    ask("a pattern", Subtopology("0", source_topic_regex=["x-.*"]))
    ask("an invalid source", Subtopology("0", source_topics=["a b"]))
    outside = [CopartitionGroup(source_topics=[7])]
    wrong = Subtopology("0", source_topics=[two.name], copartition_groups=outside)
    ask("a copartition group that points nowhere", wrong)
    ask("epoch 0", Subtopology("0", source_topics=[two.name]), epoch=0)
    ask("epoch -1", Subtopology("0", source_topics=[two.name]), epoch=-1)
    group = talk.name("changed")
    old = Topology(epoch=1, subtopologies=[Subtopology("0", source_topics=[two.name])])
    ask_beat(talk, "a topology", _joining(group, "m", old))
    newer = Topology(epoch=2, subtopologies=[Subtopology("0", source_topics=[three.name])])
    ask_beat(talk, "another with a newer topology", _joining(group, "n", newer))
    older = Topology(epoch=0, subtopologies=[Subtopology("0", source_topics=[three.name])])
    ask_beat(talk, "another with an older topology", _joining(group, "o", older))
    other = Topology(epoch=1, subtopologies=[Subtopology("0", source_topics=[three.name])])
    ask_beat(talk, "another with the same epoch and other topics", _joining(group, "p", other))


def streams_internal_topics(talk: Conversation) -> None:
    group_coordinator(talk)
    topic = topic_of_groups(talk, "in", partitions=2)
    group = talk.name("group")
    names = [talk.name("repartition"), talk.name("changelog")]
    config = [KeyValue("cleanup.policy", "compact")]
    topology = Topology(
        epoch=1,
        subtopologies=[
            Subtopology("0", source_topics=[topic.name], repartition_sink_topics=[names[0]]),
            Subtopology(
                "1",
                repartition_source_topics=[TopicInfo(names[0], 0, 1)],
                state_changelog_topics=[TopicInfo(names[1], 0, 1, config)],
            ),
        ],
    )
    ask_beat(talk, "join", _joining(group, "m", topology))
    for name in names:
        talk.settled(name, 2)
        talk.ask(f"the topic {name[-10:]}", metadata(name))
    talk.until(
        metadata(*names), MetadataResponse, lambda m: all(t.error_code == 0 for t in m.topics)
    )
    talk.until(
        _joining(group, "m", topology),
        StreamsGroupHeartbeatResponse,
        lambda m: bool(m.active_tasks) and not m.status,
    )
    hidden = ["member_epoch", "group_epoch", "assignment_epoch"]
    talk.ask("tasks", _joining(group, "m", topology), hide=hidden)
    talk.ask("described", StreamsGroupDescribeRequest(group_ids=[group]), hide=hidden)


def streams_group_of_two(talk: Conversation) -> None:
    group_coordinator(talk)
    topic = topic_of_groups(talk, "in", partitions=4)
    group = talk.name("group")
    plain = Topology(epoch=1, subtopologies=[Subtopology("0", source_topics=[topic.name])])
    first = _joining(group, "a", plain)
    first.user_endpoint = Endpoint(host="localhost", port=9001)
    first.client_tags = [KeyValue("zone", "z1")]
    a = ask_beat(talk, "a joins", first)
    ask_beat(talk, "a owns all", _beat(group, "a", a.member_epoch, active=_tasks(a)))
    b = ask_beat(talk, "b joins and waits", _joining(group, "b", plain))
    describe(talk, "a has not heard of it", group)
    a2 = ask_beat(talk, "a hears", _beat(group, "a", a.member_epoch))
    kept = _tasks(a2)
    describe(talk, "a gives up", group)
    ask_beat(talk, "b still waits", _beat(group, "b", b.member_epoch))
    a3 = ask_beat(talk, "a gave up", _beat(group, "a", a2.member_epoch, active=kept))
    b2 = ask_beat(talk, "b gets", _beat(group, "b", b.member_epoch))
    ask_beat(talk, "b owns", _beat(group, "b", b2.member_epoch, active=_tasks(b2)))
    describe(talk, "both have", group)
    known = _beat(group, "b", b2.member_epoch)
    known.endpoint_information_epoch = -1
    ask_beat(talk, "b asks for endpoints", known)
    ask_beat(talk, "b leaves", _beat(group, "b", LEFT))
    ask_beat(talk, "a takes over", _beat(group, "a", a3.member_epoch, active=kept))
    describe(talk, "a alone", group)


def streams_describe(talk: Conversation) -> None:
    group_coordinator(talk)
    topic = topic_of_groups(talk, "in")
    group = talk.name("group")
    plain = Topology(epoch=1, subtopologies=[Subtopology("0", source_topics=[topic.name])])
    ask_beat(talk, "join", _joining(group, "m", plain))
    for name, groups in (
        ("one that does not exist", [talk.name("none")]),
        ("an empty id", [""]),
        ("nobody", []),
        ("it twice and another", [group, talk.name("none"), group]),
    ):
        talk.ask(name, StreamsGroupDescribeRequest(group_ids=groups))
    request = StreamsGroupDescribeRequest(group_ids=[group], include_authorized_operations=True)
    talk.ask("with operations", request)
    talk.ask("a consumer in it", consumer_beat(group, "c", 0, topics=[topic.name], owned={}))
    talk.ask("a classic member in it", join(group), 3)
    talk.ask("a classic heartbeat in it", heartbeat(group, 1, "m"))
    consumers = talk.name("consumers")
    talk.ask("a consumer", consumer_beat(consumers, "c", 0, topics=[topic.name], owned={}))
    ask_beat(talk, "a streams member among consumers", _joining(consumers, "m", plain))
    used = talk.name("used")
    talk.ask("offsets of nobody", commit(used, topic, (0, 5)))
    ask_beat(talk, "a streams member where there are offsets only", _joining(used, "m", plain))


def _joining(group: str, member: str, topology: Topology | None) -> StreamsGroupHeartbeatRequest:
    return StreamsGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
        topology=topology,
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id=f"process-{member}",
        client_tags=[],
    )


def _beat(
    group: str, member: str, epoch: int, active: list[TaskIds] | None = None
) -> StreamsGroupHeartbeatRequest:
    request = StreamsGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch)
    if active is not None:
        request.active_tasks, request.standby_tasks, request.warmup_tasks = active, [], []
    return request


def _tasks(answer: StreamsGroupHeartbeatResponse) -> list[TaskIds]:
    return [TaskIds(row.subtopology_id, row.partitions) for row in answer.active_tasks or ()]


def describe(talk: Conversation, name: str, group: str) -> None:
    talk.ask(name, StreamsGroupDescribeRequest(group_ids=[group]))


def ask_beat(
    talk: Conversation, name: str, request: StreamsGroupHeartbeatRequest
) -> StreamsGroupHeartbeatResponse:
    answer = talk.ask(name, request)
    assert isinstance(answer, StreamsGroupHeartbeatResponse)
    return answer


SCRIPTS = (
    streams_group_of_one,
    streams_heartbeat_errors,
    streams_heartbeat_errors_of_members,
    streams_topologies,
    streams_internal_topics,
    streams_group_of_two,
    streams_describe,
)
