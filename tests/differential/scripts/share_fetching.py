"""ShareFetch and ShareAcknowledge: sessions, what is acquired, and what is said of it."""

from typing import Any

from headrace.wire.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse
from headrace.wire.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headrace.wire.messages.delete_records_response import DeleteRecordsResponse
from headrace.wire.messages.end_txn_response import EndTxnResponse
from headrace.wire.messages.list_offsets_response import ListOffsetsResponse
from headrace.wire.messages.produce_response import ProduceResponse
from tests.differential.connection import Connection
from tests.differential.conversation import Conversation
from tests.differential.plain import MADE_UP_ID
from tests.differential.requests import LATEST, Topic, batch, list_offsets, produce
from tests.differential.share_session import (
    ACCEPT,
    FINAL,
    GAP,
    LOAD_WAIT_MS,
    REJECT,
    RELEASE,
    RENEW,
    Ack,
    Member,
    begin_share,
    set_group_config,
)
from tests.differential.share_state_requests import Share
from tests.differential.transaction_requests import (
    add_partitions,
    begun,
    end,
    transaction_coordinator,
)

NOTHING: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
RECORD_LIMIT = 1


def share_sessions(talk: Conversation) -> None:
    topic, group = talk.topic("t", 3), talk.name("g")
    begin_share(talk, group, topic, 0, 1, 2)
    member = Member(talk, group, topic)
    for name, fields in (
        ("no member", {"member_id": None}),
        ("an empty member", {"member_id": ""}),
        ("no group", {"group_id": None}),
        ("an epoch without a session", {"share_session_epoch": 1}),
        ("the end of no session", {"share_session_epoch": FINAL}),
        ("a negative epoch", {"share_session_epoch": -2}),
        ("a new session that acknowledges", {"acks": {0: [(0, 0, [ACCEPT])]}}),
    ):
        talk.ask_all_versions(f"fetch: {name}", member.fetch_request(0, **fields))
    for name, fields in (
        ("no member", {"member_id": None}),
        ("no group", {"group_id": None}),
        ("an epoch without a session", {"share_session_epoch": 1}),
        ("the end of no session", {"share_session_epoch": FINAL}),
        ("an epoch that would begin a session", {"share_session_epoch": 0}),
    ):
        request = member.acknowledge_request({0: [(0, 0, [ACCEPT])]}, **fields)
        talk.ask_all_versions(f"acknowledge: {name}", request)
    member.open(0, 1)
    talk.append(topic, batch(b"a", b"b", b"c"), batch(b"d", b"e"))
    member.fetch("what there is")
    member.fetch("nothing more")
    member.fetch("a partition more", 2, max_wait_ms=LOAD_WAIT_MS, max_records=0)
    talk.append(topic, batch(b"f"), partition=2)
    talk.append(topic, batch(b"g"), partition=1)
    member.fetch("one that is forgotten", forgotten=(1,))
    member.fetch("one that was never there is forgotten", forgotten=(1, 9))
    member.fetch("an unknown partition", 9)
    member.fetch("it stays in the session")
    member.fetch("until it is forgotten", forgotten=(9,))
    talk.ask("a wrong epoch", member.fetch_request(share_session_epoch=1))
    talk.ask("a wrong epoch to acknowledge", member.acknowledge_request({}, share_session_epoch=1))
    member.acknowledge("nothing", {})
    member.acknowledge("no batches", {0: []})
    member.fetch("the end", 0, share_session_epoch=FINAL)
    talk.ask("after the end", member.fetch_request())
    again = Member(talk, group, topic)
    again.fetch_until_records("what was given back", 0)
    again.epoch = 0
    again.fetch("begun again, it holds what it held", 0)
    talk.ask(
        "the end with acknowledgements",
        again.acknowledge_request({0: [(0, 2, [ACCEPT])]}, share_session_epoch=FINAL),
    )


def share_disconnects(talk: Conversation) -> None:
    topic, group = talk.topic("t"), talk.name("g")
    begin_share(talk, group, topic)
    member = Member(talk, group, topic)
    member.open(0)
    talk.append(topic, batch(b"a", b"b"))
    other = Member(talk, group, topic, "other")
    with Connection(talk.address) as connection:
        request = other.fetch_request(0)
        connection.send(request, 2)
        connection.answer(type(request), 2)
        member.fetch("while another has all")
    member.fetch("when that one is gone", max_wait_ms=LOAD_WAIT_MS)


def share_acquisition(talk: Conversation) -> None:
    topic, group = talk.topic("t"), talk.name("g")
    begin_share(talk, group, topic)
    member = Member(talk, group, topic)
    member.open(0)
    for _ in range(8):
        talk.append(topic, batch(b"1", b"2", b"3"))
    member.fetch("four records, or a little more", max_records=4)
    member.fetch("four records and no more", max_records=4, share_acquire_mode=RECORD_LIMIT)
    member.fetch("one record of a batch", max_records=1, share_acquire_mode=RECORD_LIMIT)
    member.fetch("no records", max_records=0)
    member.fetch("a negative wait", max_wait_ms=-1, max_records=1)
    member.fetch("few bytes", max_bytes=10)
    member.fetch("more bytes than there are, when the time is over", min_bytes=100_000)
    talk.ask("an acquire mode that there is not", member.fetch_request(share_acquire_mode=7))
    single = talk.topic("single")
    begin_share(talk, group, single)
    member = Member(talk, group, single, "another")
    member.open(0)
    for _ in range(7):
        talk.append(single, batch(b"x"))
    member.fetch("ranges of at most two", batch_size=2, max_records=5)
    member.fetch("a batch size of one", batch_size=1)


def share_unknown_modes(talk: Conversation) -> None:
    """Acknowledge in fetches whose acquire mode there is not: whether that counts is seen later."""
    topic, group = talk.topic("t"), talk.name("g")
    begin_share(talk, group, topic)
    member = Member(talk, group, topic)
    member.open(0)
    talk.append(topic, batch(b"a", b"b", b"c", b"d"))
    member.fetch("records")
    unknown: dict[str, Any] = {"share_acquire_mode": 7}
    first: dict[int, list[Ack]] = {0: [(1, 1, [ACCEPT])]}
    talk.ask("a fetch that acknowledges", member.fetch_request(acks=first, **unknown))
    member.epoch += 1
    member.acknowledge("the same again", first)
    renewed: dict[int, list[Ack]] = {0: [(0, 0, [RENEW])]}
    member.fetch("a renewal", acks=renewed, is_renew_ack=True, **NOTHING, **unknown)
    last: dict[int, list[Ack]] = {0: [(2, 2, [ACCEPT])]}
    ending: dict[str, Any] = {"acks": last, "share_session_epoch": FINAL}
    talk.ask("the end of a session", member.fetch_request(**ending, **unknown))
    talk.ask("the end again", member.fetch_request(**ending))
    other = Member(talk, group, topic, "other")
    other.fetch_until_records("what is left", 0)


def append_transaction(
    talk: Conversation, topic: Topic, *values: bytes, is_committed: bool | None
) -> None:
    """Append a transaction of its own producer, and wait for its marker; None leaves it open."""
    name = f"{topic.name}-{values[0].decode()}"
    producer = begun(talk, name)
    joined = talk.until(
        add_partitions(name, producer, {topic.name: [0]}),
        AddPartitionsToTxnResponse,
        lambda m: (
            m.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
        ),
        version=3,
    )
    assert joined is not None
    records = batch(*values, producer=producer, is_transactional=True)
    written = talk.quietly(
        produce(topic, records, transactional_id=name), ProduceResponse, version=11
    )
    row = written.responses[0].partition_responses[0]
    assert row.error_code == 0, written
    if is_committed is not None:
        talk.until(
            end(name, producer, committed=is_committed),
            EndTxnResponse,
            lambda m: m.error_code == 0,
            version=4,
        )
        marker_at = row.base_offset + len(values)
        talk.until(
            list_offsets(topic, (0, LATEST)),
            ListOffsetsResponse,
            lambda m: m.topics[0].partitions[0].offset > marker_at,
        )


def share_transactions(talk: Conversation) -> None:
    transaction_coordinator(talk)
    for level in ("read_uncommitted", "read_committed"):
        topic, group = talk.topic(level), talk.name(level)
        set_group_config(talk, group, "share.isolation.level", level)
        begin_share(talk, group, topic)
        member = Member(talk, group, topic)
        member.open(0)
        append_transaction(talk, topic, b"a", b"b", is_committed=True)
        append_transaction(talk, topic, b"c", b"d", is_committed=False)
        talk.append(topic, batch(b"e"))
        append_transaction(talk, topic, b"f", is_committed=None)
        talk.append(topic, batch(b"g"))
        member.fetch(level)
        member.fetch(f"{level}, nothing more")
        member.acknowledge(f"{level}, markers are gaps", {0: [(2, 2, [GAP])]})
        talk.ask(f"{level}, what is written", Share(group, topic.id).summary(-1))


def share_acknowledgements(talk: Conversation) -> None:
    topic, group = talk.topic("t", 3), talk.name("g")
    begin_share(talk, group, topic, 0, 1, 2)
    member = Member(talk, group, topic)
    member.open(0, 1)
    for _ in range(4):
        talk.append(topic, batch(b"1", b"2", b"3"))
    share = Share(group, topic.id)
    member.acknowledge("nothing was acquired", {0: [(0, 0, [ACCEPT])]})
    member.acknowledge("nor behind that", {0: [(5, 5, [ACCEPT])]})
    member.fetch("all")
    for version in (1, 2):
        malformed: tuple[tuple[str, list[Ack]], ...] = (
            ("no types", [(0, 2, [])]),
            ("too many types", [(0, 0, [ACCEPT, ACCEPT])]),
            ("too few types", [(0, 2, [ACCEPT, ACCEPT])]),
            ("an unknown type", [(0, 0, [9])]),
            ("a negative type", [(0, 0, [-1])]),
            ("a renewal that is not announced", [(0, 0, [RENEW])]),
            ("offsets that go back", [(2, 1, [ACCEPT])]),
            ("negative offsets", [(-5, -4, [ACCEPT])]),
            ("batches that go back", [(1, 1, [ACCEPT]), (0, 0, [ACCEPT])]),
            ("batches that overlap", [(0, 1, [ACCEPT]), (1, 2, [ACCEPT])]),
            ("one beyond what was acquired", [(0, 0, [ACCEPT]), (90, 90, [ACCEPT])]),
            ("from within to beyond", [(11, 12, [ACCEPT])]),
        )
        for name, acks in malformed:
            member.acknowledge(f"{name} v{version}", {0: acks}, version=version)
    member.acknowledge("a partition that nobody fetched", {2: [(0, 0, [ACCEPT])]})
    member.acknowledge("an unknown partition", {9: [(0, 0, [ACCEPT])]})
    stranger = Member(talk, group, Topic(talk.name("unknown"), MADE_UP_ID))
    stranger.epoch = member.epoch
    stranger.acknowledge("an unknown topic", {0: [(0, 0, [ACCEPT])]})
    member.epoch = stranger.epoch
    member.acknowledge("the first batch", {0: [(0, 2, [ACCEPT])]}, version=1)
    talk.ask("what is written of it", share.summary(-1))
    member.acknowledge("again, before the start", {0: [(0, 2, [ACCEPT])]})
    member.acknowledge("each its own", {0: [(3, 5, [ACCEPT, RELEASE, REJECT])]})
    talk.ask("what is written of them", share.summary(-1))
    member.acknowledge("some that are over", {0: [(3, 3, [ACCEPT])]})
    member.fetch("what was released")
    member.acknowledge("gaps", {0: [(4, 4, [GAP])]})
    member.fetch("with acknowledgements", acks={0: [(6, 8, [RELEASE])]}, max_records=0)
    member.fetch("and what they gave")
    member.fetch("with wrong ones", acks={0: [(90, 90, [ACCEPT])], 9: [(0, 0, [ACCEPT])]})
    member.fetch("forget the unknown one", forgotten=(9,))
    talk.ask("what is written in the end", share.summary(-1))
    member.fetch("the end with some", acks={0: [(9, 11, [ACCEPT])]}, share_session_epoch=FINAL)
    talk.ask("what is written at the end", share.summary(-1))


def share_renewals(talk: Conversation) -> None:
    topic, group = talk.topic("t"), talk.name("g")
    begin_share(talk, group, topic)
    member = Member(talk, group, topic)
    member.open(0)
    talk.append(topic, batch(b"1", b"2", b"3", b"4"))
    member.fetch("all")
    renewal = {0: [(0, 0, [RENEW])]}
    for field in NOTHING:
        fields = NOTHING | {field: 1}
        talk.ask(f"with {field}", member.fetch_request(acks=renewal, is_renew_ack=True, **fields))
    member.fetch("as it should be", acks=renewal, is_renew_ack=True, **NOTHING)
    member.fetch("without saying so", acks=renewal)
    member.acknowledge("of one", renewal, is_renew_ack=True)
    member.acknowledge("said, and none there", {0: [(1, 1, [ACCEPT])]}, is_renew_ack=True)
    member.acknowledge("of some", {0: [(2, 3, [RENEW, RELEASE])]}, is_renew_ack=True)
    member.fetch("what is left")
    set_group_config(talk, group, "share.renew.acknowledge.enable", "false")
    member.acknowledge("forbidden", renewal, is_renew_ack=True)


def share_deleted_records(talk: Conversation) -> None:
    topic, group = talk.topic("t"), talk.name("g")
    begin_share(talk, group, topic)
    member = Member(talk, group, topic)
    member.open(0)
    for _ in range(4):
        talk.append(topic, batch(b"1", b"2", b"3"))
    member.fetch("the first batch", max_records=1)
    row = DeleteRecordsTopic(
        name=topic.name, partitions=[DeleteRecordsPartition(partition_index=0, offset=6)]
    )
    talk.quietly(DeleteRecordsRequest(topics=[row], timeout_ms=5000), DeleteRecordsResponse)
    member.fetch_until_records("after six records are deleted")
    member.acknowledge("one that is gone", {0: [(0, 2, [ACCEPT])]})
    member.acknowledge("the rest", {0: [(6, 11, [ACCEPT])]})
    talk.ask("what is written", Share(group, topic.id).summary(-1))


SCRIPTS = (
    share_sessions,
    share_disconnects,
    share_acquisition,
    share_unknown_modes,
    share_transactions,
    share_acknowledgements,
    share_renewals,
    share_deleted_records,
)
