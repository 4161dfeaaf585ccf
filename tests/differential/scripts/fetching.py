"""Fetch: offsets, limits, epochs and sessions."""

from headrace.wire.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headrace.wire.messages.delete_records_response import DeleteRecordsResponse
from headrace.wire.messages.fetch_request import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from headrace.wire.messages.fetch_response import FetchResponse
from tests.differential.conversation import Conversation
from tests.differential.plain import MADE_UP_ID
from tests.differential.requests import Topic, batch, delete, fetch, from_offset


def fetch_versions(talk: Conversation) -> None:
    topic = talk.topic("plain")
    talk.append(topic, batch(b"a", b"b"), batch(b"c"))
    talk.ask_all_versions("from the start", fetch(from_offset(topic, 0)))
    talk.ask_all_versions("from the end", fetch(from_offset(topic, 3)))
    talk.ask_all_versions("beyond the end", fetch(from_offset(topic, 4)))
    unknown = Topic(talk.name("unknown"), MADE_UP_ID)
    talk.ask_all_versions("an unknown topic", fetch(from_offset(unknown, 0)))
    talk.ask_all_versions("an unknown partition", fetch(from_offset(topic, 0, partition=5)))
    committed = fetch(from_offset(topic, 0), isolation_level=1)
    talk.ask_all_versions("what is committed", committed, (4, 11, 12, 18))


def fetch_offsets(talk: Conversation) -> None:
    topic = talk.topic("plain")
    empty = talk.topic("empty")
    talk.append(topic, batch(b"a", b"b", b"c"), batch(b"d"), batch(b"e", b"f"))
    for offset in (-2, -1, 0, 1, 2, 3, 4, 5, 6, 7, 2**63 - 1):
        talk.ask(f"from {offset}", fetch(from_offset(topic, offset)))
    for offset in (-1, 0, 1):
        talk.ask(f"from {offset} of nothing", fetch(from_offset(empty, offset)))
    row = DeleteRecordsTopic(
        name=topic.name, partitions=[DeleteRecordsPartition(partition_index=0, offset=2)]
    )
    talk.quietly(DeleteRecordsRequest(topics=[row], timeout_ms=5000), DeleteRecordsResponse)
    for offset in (1, 2, 3):
        talk.ask(f"from {offset} when 2 is the first", fetch(from_offset(topic, offset)))
    for level in (1, 2, -1):
        request = fetch(from_offset(topic, 3), isolation_level=level)
        talk.ask(f"isolation level {level}", request)


def fetch_limits(talk: Conversation) -> None:
    topic = talk.topic("plain", partitions=3)
    one = batch(b"a" * 100)
    for partition in range(3):
        talk.append(topic, one, one, one, partition=partition)
    size = len(one)

    def ask(name: str, *limits: int, max_bytes: int = 1 << 20, min_bytes: int = 0) -> None:
        rows = [
            FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=limit)
            for partition, limit in enumerate(limits)
        ]
        request = fetch(
            FetchTopic(topic=topic.name, topic_id=topic.id, partitions=rows),
            max_bytes=max_bytes,
            min_bytes=min_bytes,
        )
        talk.ask(name, request)

    ask("one batch of a partition", size)
    ask("a batch and a half of a partition", size + size // 2)
    ask("half a batch of a partition", size // 2)
    ask("one byte of a partition", 1)
    ask("no byte of a partition", 0)
    ask("-1 bytes of a partition", -1)
    ask("one byte of three partitions", 1, 1, 1)
    ask("no byte of three partitions", 0, 0, 0)
    ask("one batch of three partitions", size, size, size)
    ask("one batch in all", size, size, size, max_bytes=size)
    ask("one byte in all", size * 9, size * 9, max_bytes=1)
    ask("no byte in all", size, size, max_bytes=0)
    ask("-1 bytes in all", size, size, max_bytes=-1)
    ask("two batches in all", size * 9, size * 9, max_bytes=size * 2)
    ask("four batches in all", size * 9, size * 9, size * 9, max_bytes=size * 4)
    ask("at least more than there is", size * 9, min_bytes=1 << 20)
    ask("at least -1 bytes", size, min_bytes=-1)
    behind = fetch(from_offset(topic, 3), max_wait_ms=20, min_bytes=1)
    talk.ask("a wait that nothing ends", behind)
    talk.ask("a wait of -1", fetch(from_offset(topic, 3), max_wait_ms=-1, min_bytes=1))
    talk.ask("an error ends a wait", fetch(from_offset(topic, 9), max_wait_ms=60_000, min_bytes=1))
    large = talk.topic("large")
    talk.append(large, batch(b"x" * 5000), batch(b"y" * 5000))
    first = fetch(from_offset(large, 0, max_bytes=10), max_bytes=10)
    talk.ask("a first batch above every limit", first)
    both = fetch(from_offset(topic, 0, max_bytes=size), from_offset(large, 0, max_bytes=10))
    talk.ask("a large batch behind another partition", both)


def fetch_epochs(talk: Conversation) -> None:
    topic = talk.topic("plain")
    talk.append(topic, batch(b"a", b"b"))
    for epoch in (-2, -1, 0, 1, 99):
        for version in (9, 12, 18):
            request = fetch(from_offset(topic, 0, leader_epoch=epoch))
            talk.ask(f"the leader's epoch is {epoch} v{version}", request, version)
    for epoch in (-2, -1, 0, 1, 99):
        request = fetch(from_offset(topic, 1, last_fetched_epoch=epoch))
        talk.ask(f"the last record's epoch is {epoch}", request)
    talk.ask(
        "the epoch is there, the offset not", fetch(from_offset(topic, 9, last_fetched_epoch=0))
    )


def fetch_places(talk: Conversation) -> None:
    topic = talk.topic("plain")
    talk.append(topic, batch(b"a"))
    talk.ask("nothing", fetch())
    row = FetchTopic(topic=topic.name, topic_id=topic.id)
    talk.ask("no partition", fetch(row))
    talk.ask("partition -1", fetch(from_offset(topic, 0, partition=-1)))
    talk.ask("an id of zeros", fetch(from_offset(Topic(topic.name), 0)))
    talk.ask("an empty name v12", fetch(from_offset(Topic(""), 0)), 12)
    talk.ask("an invalid name v12", fetch(from_offset(Topic("a b"), 0)), 12)
    talk.ask("the metadata log v12", fetch(from_offset(Topic("__cluster_metadata"), 0)), 12)
    good = from_offset(topic, 0)
    for version in (4, 12, 13, 18):
        unknown = from_offset(Topic(talk.name("unknown"), MADE_UP_ID), 0)
        talk.ask(f"a known and an unknown topic v{version}", fetch(good, unknown), version)
    talk.ask("a partition twice", fetch(good, good))
    request = fetch(good)
    request.rack_id = "here"
    talk.ask("from a rack", request)
    request = fetch(good)
    request.cluster_id = "another"
    talk.ask("of another cluster", request)
    for version, replica in ((11, 1), (11, 99), (11, -2), (14, 99)):
        request = fetch(good)
        request.replica_id = replica
        talk.ask(f"as replica {replica} v{version}", request, version)
    request = fetch(good)
    request.replica_state = ReplicaState(replica_id=99, replica_epoch=1)
    talk.ask("as replica 99 v18", request)
    old = talk.topic("deleted")
    talk.append(old, batch(b"a"))
    talk.ask("delete a topic", delete(old.name))
    talk.gone(old.name)
    for version in (12, 18):
        talk.ask(f"a topic that was deleted v{version}", fetch(from_offset(old, 0)), version)


def fetch_sessions(talk: Conversation) -> None:
    topic = talk.topic("plain", partitions=2)
    other = talk.topic("other")
    talk.append(topic, batch(b"a"))
    first, second = from_offset(topic, 0), from_offset(topic, 0, partition=1)

    def ask(name: str, request: FetchRequest, version: int = 18) -> int:
        answer = talk.ask(name, request, version)
        assert isinstance(answer, FetchResponse)
        return answer.session_id

    session = ask("a full fetch that opens a session", fetch(first, second, session=(0, 0)))
    ask("the same session, nothing new", fetch(session=(session, 1)))
    ask("the old epoch again", fetch(session=(session, 1)))
    ask("an epoch ahead", fetch(session=(session, 9)))
    ask("from the next offset", fetch(from_offset(topic, 1), session=(session, 2)))
    ask("nothing is new", fetch(session=(session, 3)))
    talk.append(topic, batch(b"b"), partition=1)
    ask("a record in the second partition", fetch(session=(session, 4)))
    ask("it comes again", fetch(session=(session, 5)))
    ask("one topic more", fetch(from_offset(other, 0), session=(session, 6)))
    forget = fetch(session=(session, 7))
    forget.forgotten_topics_data = [
        ForgottenTopic(topic=topic.name, topic_id=topic.id, partitions=[1])
    ]
    ask("forget the second partition", forget)
    ask("without it", fetch(session=(session, 8)))
    ask("an offset out of range", fetch(from_offset(topic, 99), session=(session, 9)))
    ask("an unknown partition", fetch(from_offset(topic, 0, partition=7), session=(session, 10)))
    unknown = Topic(talk.name("unknown"), MADE_UP_ID)
    ask("an unknown topic", fetch(from_offset(unknown, 0), session=(session, 11)))
    ask("again without naming them", fetch(session=(session, 12)))
    forget = fetch(session=(session, 13))
    forget.forgotten_topics_data = [
        ForgottenTopic(topic=unknown.name, topic_id=unknown.id, partitions=[0]),
        ForgottenTopic(topic=topic.name, topic_id=topic.id, partitions=[7]),
    ]
    ask("forget them", forget)
    ask("close it", fetch(session=(session, -1)))
    ask("a session that was closed", fetch(session=(session, 15)))
    ask("an unknown session", fetch(session=(123_456, 1)))
    ask("close an unknown session", fetch(first, session=(123_456, -1)))
    ask("open one with an unknown id", fetch(first, session=(123_456, 0)))
    ask("no session, an epoch of 5", fetch(first, session=(0, 5)))
    ask("an epoch of -2", fetch(first, session=(0, -2)))
    ask("nothing, but with a session", fetch(session=(0, 0)))


def fetch_sessions_of_old_versions(talk: Conversation) -> None:
    """Sessions by name, and a session that changes from names to ids."""
    topic = talk.topic("plain")
    talk.append(topic, batch(b"a"))
    good = from_offset(topic, 0)

    def ask(name: str, request: FetchRequest, version: int) -> int:
        answer = talk.ask(name, request, version)
        assert isinstance(answer, FetchResponse)
        return answer.session_id

    for version in (7, 11, 12, 13, 17):
        session = ask(f"open v{version}", fetch(good, session=(0, 0)), version)
        ask(f"go on v{version}", fetch(from_offset(topic, 1), session=(session, 1)), version)
        ask(f"nothing new v{version}", fetch(session=(session, 2)), version)
        unknown = from_offset(Topic(talk.name("unknown"), MADE_UP_ID), 0)
        ask(f"an unknown topic v{version}", fetch(unknown, session=(session, 3)), version)
        ask(f"close v{version}", fetch(session=(session, -1)), version)
    named = ask("open by name", fetch(good, session=(0, 0)), 12)
    ask("go on by id", fetch(good, session=(named, 1)), 13)
    by_id = ask("open by id", fetch(good, session=(0, 0)), 13)
    ask("go on by name", fetch(good, session=(by_id, 1)), 12)


def fetch_session_of_a_topic_made_again(talk: Conversation) -> None:
    topic = talk.topic("again")
    talk.append(topic, batch(b"a"))
    answer = talk.ask("open", fetch(from_offset(topic, 0), session=(0, 0)))
    assert isinstance(answer, FetchResponse)
    talk.ask("delete the topic", delete(topic.name))
    talk.gone(topic.name)
    talk.ask("go on", fetch(session=(answer.session_id, 1)))
    new = talk.topic("again")
    talk.ask("go on when it is made again", fetch(session=(answer.session_id, 2)))
    talk.ask("with its new id", fetch(from_offset(new, 0), session=(answer.session_id, 3)))
    talk.ask("without naming it", fetch(session=(answer.session_id, 4)))


SCRIPTS = (
    fetch_versions,
    fetch_offsets,
    fetch_limits,
    fetch_epochs,
    fetch_places,
    fetch_sessions,
    fetch_sessions_of_old_versions,
    fetch_session_of_a_topic_made_again,
)
