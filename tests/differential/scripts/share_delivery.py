"""Share groups over time: records that come again, a full window, several partitions, endings."""

from typing import Any, Final

from headrace.wire.messages.initialize_share_group_state_response import (
    InitializeShareGroupStateResponse,
)
from headrace.wire.messages.share_fetch_request import FetchPartition, FetchTopic
from headrace.wire.messages.share_fetch_response import ShareFetchResponse
from headrace.wire.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse
from tests.differential.connection import Connection
from tests.differential.consumer_requests import topic_of_groups
from tests.differential.conversation import Conversation
from tests.differential.group_requests import group_coordinator
from tests.differential.plain import MADE_UP_ID
from tests.differential.requests import Topic, batch, delete
from tests.differential.share_requests import LEFT, share_beat, share_coordinator, wait_for_states
from tests.differential.share_session import (
    ACCEPT,
    FINAL,
    REJECT,
    RELEASE,
    Member,
    begin_share,
    set_group_config,
)
from tests.differential.share_state_requests import Share, share_states

RECORD_LIMIT: Final = 1
WINDOW: Final = 100
"""The least that share.partition.max.record.locks may be."""


def share_redeliveries(talk: Conversation) -> None:
    """Records that were delivered often come in ever smaller pieces, and then no more."""
    for limit in ("2", "5", "10"):
        topic, group = talk.topic(limit), talk.name(limit)
        set_group_config(talk, group, "share.delivery.count.limit", limit)
        begin_share(talk, group, topic)
        member = Member(talk, group, topic)
        member.open(0)
        talk.append(topic, batch(*[b"x"] * 16), batch(*[b"y"] * 3))
        for turn in range(40):
            answer = member.fetch(f"limit {limit}, fetch {turn}")
            ranges = _acquired(answer)
            if not ranges:
                break
            acks = [(first, last, [RELEASE]) for first, last in ranges]
            member.acknowledge(f"limit {limit}, release {turn}", {0: acks})
        talk.ask(f"limit {limit}, what is written", Share(group, topic.id).summary(-1))


def share_redeliveries_of_some(talk: Conversation) -> None:
    """One bad record among good ones of a batch."""
    topic, group = talk.topic("t"), talk.name("g")
    begin_share(talk, group, topic)
    member = Member(talk, group, topic)
    member.open(0)
    talk.append(topic, batch(*[b"x"] * 8))
    for turn in range(8):
        answer = member.fetch(f"fetch {turn}")
        ranges = _acquired(answer)
        if not ranges:
            break
        kinds = [
            (offset, offset, [RELEASE if offset == 5 or turn < 2 else ACCEPT])
            for first, last in ranges
            for offset in range(first, last + 1)
        ]
        member.acknowledge(f"acknowledge {turn}", {0: kinds})
    talk.append(topic, batch(b"later"))
    member.fetch("what comes later")
    talk.ask("what is written", Share(group, topic.id).summary(-1))


def share_window(talk: Conversation) -> None:
    """No more than so many records are in flight."""
    topic, group = talk.topic("t"), talk.name("g")
    set_group_config(talk, group, "share.partition.max.record.locks", str(WINDOW))
    begin_share(talk, group, topic)
    member = Member(talk, group, topic)
    member.open(0)
    talk.append(topic, *[batch(*[b"x"] * 30)] * 8)
    for turn in range(6):
        member.fetch(f"fill {turn}", max_records=30)
    member.acknowledge("one in the middle", {0: [(45, 45, [ACCEPT])]})
    member.fetch("still full")
    member.acknowledge("a gap is given back", {0: [(60, 69, [RELEASE])]})
    member.fetch("only that")
    member.fetch("and no more")
    member.acknowledge("the beginning", {0: [(0, 29, [ACCEPT])]})
    member.fetch("as many more")
    member.fetch("but not more than that")
    member.acknowledge("the next", {0: [(30, 44, [REJECT])]})
    member.fetch("over what was acknowledged before")
    talk.ask("what is written", Share(group, topic.id).summary(-1))


def share_window_of_records(talk: Conversation) -> None:
    """The same with a limit that is kept to the record."""
    topic, group = talk.topic("t"), talk.name("g")
    set_group_config(talk, group, "share.partition.max.record.locks", str(WINDOW))
    begin_share(talk, group, topic)
    member = Member(talk, group, topic)
    member.open(0)
    talk.append(topic, *[batch(*[b"x"] * 40)] * 4)
    options: dict[str, Any] = {"max_records": 35, "share_acquire_mode": RECORD_LIMIT}
    for turn in range(4):
        member.fetch(f"fill {turn}", **options)
    member.acknowledge("some", {0: [(0, 9, [ACCEPT]), (10, 12, [RELEASE]), (20, 20, [RELEASE])]})
    for turn in range(3):
        member.fetch(f"what came free {turn}", **options, batch_size=2)


def share_many_partitions(talk: Conversation) -> None:
    one, two, group = talk.topic("one", 2), talk.topic("two"), talk.name("g")
    begin_share(talk, group, one, 0, 1)
    begin_share(talk, group, two)
    member = Member(talk, group, one)
    both = [_named(one, 0, 1), _named(two, 0)]

    def are_loaded() -> bool:
        member.epoch = 0
        answer = member.fetch_quietly(topics=both)
        return sum(len(topic.partitions) for topic in answer.responses) == 3

    talk.until_so(are_loaded)
    for partition in (0, 1):
        talk.append(one, batch(b"1", b"2"), batch(b"3", b"4"), partition=partition)
    talk.append(two, batch(b"5", b"6"))
    taken = [sorted(_acquired_everywhere(member.fetch_quietly(max_records=3))) for _ in range(4)]
    found = sorted(each for ranges in taken for each in ranges)
    talk.keep("all that was acquired", member.fetch_request(), 2, [len(found), *map(str, found)])
    member.acknowledge("of two partitions", {0: [(0, 1, [ACCEPT])], 1: [(0, 3, [RELEASE])]})
    member.fetch("the released ones")
    member.acknowledge(
        "right, wrong and unknown",
        {0: [(2, 3, [ACCEPT])], 1: [(7, 7, [ACCEPT])], 5: [(0, 0, [ACCEPT])]},
    )
    unknown = Topic(talk.name("unknown"), MADE_UP_ID)
    talk.ask("what is written of one", Share(group, one.id).summary(-1, 0, 1))
    member.fetch("the end", share_session_epoch=FINAL)
    again = Member(talk, group, unknown, "again")
    again.fetch("an unknown topic", 0)


def share_left_groups(talk: Conversation) -> None:
    """A session does not end with the membership."""
    group_coordinator(talk)
    share_coordinator(talk)
    topic, group = topic_of_groups(talk, "t"), talk.name("g")
    set_group_config(talk, group, "share.auto.offset.reset", "earliest")
    epoch = talk.quietly(
        share_beat(group, "m", 0, [topic.name]), ShareGroupHeartbeatResponse
    ).member_epoch
    wait_for_states(talk, group)
    talk.quietly(share_beat(group, "m", epoch), ShareGroupHeartbeatResponse)
    member = Member(talk, group, topic)
    member.open(0)
    talk.append(topic, batch(b"a", b"b", b"c", b"d"))
    member.fetch("all")
    talk.quietly(share_beat(group, "m", LEFT), ShareGroupHeartbeatResponse)
    member.acknowledge("of one who left", {0: [(0, 0, [ACCEPT])]})
    member.fetch("one who left fetches", acks={0: [(1, 1, [RELEASE])]})
    member.acknowledge("and ends its session", {0: [(2, 2, [ACCEPT])]}, share_session_epoch=FINAL)
    other = Member(talk, group, topic, "other")
    other.fetch_until_records("what is left for another", 0)


def share_sessions_of_others(talk: Conversation) -> None:
    """Sessions of one member over several connections, and of several over one."""
    topic, group = talk.topic("t"), talk.name("g")
    begin_share(talk, group, topic)
    member = Member(talk, group, topic)
    member.open(0)
    talk.append(topic, batch(b"a"), batch(b"b"), batch(b"c"))
    member.fetch("the first", max_records=1)
    with Connection(talk.address) as connection:
        request = member.fetch_request(max_records=1)
        connection.send(request, 2)
        answer = connection.answer(type(request), 2)
        assert isinstance(answer, tuple)
        talk.keep("over another connection", request, 2, talk.plain(answer[1]))
        member.epoch += 1
    member.fetch("that one is gone, and the session goes on", max_records=1)
    second = Member(talk, group, topic, "second")
    second.fetch("nothing for another", 0)
    second.acknowledge("what is not its own", {0: [(0, 0, [ACCEPT])]})
    member.acknowledge("and what is", {0: [(0, 2, [RELEASE])]})
    second.fetch("then it has it")
    talk.ask(
        "the session of another group",
        Member(talk, talk.name("h"), topic).fetch_request(0, share_session_epoch=second.epoch),
    )


def share_states_missing(talk: Conversation) -> None:
    """Partitions that nobody has begun, and topics that go."""
    topic, group = talk.topic("t", 2), talk.name("g")
    share_states(talk, Share(group, topic.id))
    member = Member(talk, group, topic)
    member.fetch("a partition without a state", 0)
    member.fetch("once more")
    talk.append(topic, batch(b"a"))
    begin_share(talk, group, topic, 0)
    member.fetch_until_records("when it has begun")
    talk.ask("the topic goes", delete(topic.name))
    talk.gone(topic.name)
    member.acknowledge("of a topic that is gone", {0: [(0, 0, [ACCEPT])]})


def share_beginnings(talk: Conversation) -> None:
    """Where a group begins of which nothing is known."""
    for reset in ("earliest", "latest", "by_duration:PT1H", "by_duration:P20000D"):
        name = reset.replace(":", "-").lower()
        topic, group = talk.topic(name), talk.name(name)
        set_group_config(talk, group, "share.auto.offset.reset", reset)
        talk.append(topic, batch(b"old", b"older", timestamp=1_600_000_000_000))
        share = Share(group, topic.id)
        share_states(talk, share)
        begun = talk.quietly(share.initialize(1, -1), InitializeShareGroupStateResponse)
        assert begun.results[0].partitions[0].error_code == 0, begun
        member = Member(talk, group, topic)
        answers: list[ShareFetchResponse] = []

        def is_loaded(member: Member = member, answers: list[Any] = answers) -> bool:
            member.epoch = 0
            answers.append(member.fetch_quietly(0))
            return bool(answers[-1].responses)

        talk.until_so(is_loaded)
        talk.append(topic, batch(b"new"))
        found = [each for answer in answers for each in _acquired(answer)]
        found += _acquired(member.fetch_quietly())
        talk.keep(reset, member.fetch_request(), 2, [str(each) for each in found])


def _named(topic: Topic, *partitions: int) -> FetchTopic:
    rows = [FetchPartition(partition_index=each) for each in partitions]
    return FetchTopic(topic_id=topic.id, partitions=rows)


def _acquired(answer: ShareFetchResponse) -> list[tuple[int, int]]:
    return [(first, last) for _, first, last in _acquired_everywhere(answer)]


def _acquired_everywhere(answer: ShareFetchResponse) -> list[tuple[int, int, int]]:
    return [
        (row.partition_index, each.first_offset, each.last_offset)
        for topic in answer.responses
        for row in topic.partitions
        for each in row.acquired_records
    ]


SCRIPTS = (
    share_redeliveries,
    share_redeliveries_of_some,
    share_window,
    share_window_of_records,
    share_many_partitions,
    share_left_groups,
    share_sessions_of_others,
    share_states_missing,
    share_beginnings,
)
