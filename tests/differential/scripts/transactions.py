"""Transactions: their producers, their partitions, their end, and what readers see of them."""

from headrace.wire.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest
from headrace.wire.messages.describe_producers_request import (
    DescribeProducersRequest,
    TopicRequest,
)
from headrace.wire.messages.end_txn_response import EndTxnResponse
from headrace.wire.messages.init_producer_id_response import InitProducerIdResponse
from headrace.wire.messages.list_offsets_response import ListOffsetsResponse
from headrace.wire.messages.produce_response import ProduceResponse
from tests.differential.conversation import Conversation
from tests.differential.group_requests import group_coordinator
from tests.differential.requests import (
    LATEST,
    Producer,
    Topic,
    batch,
    fetch,
    from_offset,
    list_offsets,
    produce,
)
from tests.differential.transaction_requests import (
    add_offsets,
    add_partitions,
    begun,
    end,
    init,
    transaction_coordinator,
)

PRODUCE_OF_TRANSACTIONS_1 = 11
PRODUCE_OF_TRANSACTIONS_2 = 13
STRANGER = 987_654_321


def init_transactions(talk: Conversation) -> None:
    transaction_coordinator(talk)
    talk.producer_id()  # the first block of ids may take a while
    for version in range(6):
        name = talk.name(f"v{version}")
        talk.ask_settled(f"a new id v{version}", init(name), version)
        talk.ask_settled(f"again v{version}", init(name), version)
        for timeout_ms in (-1, 0, 900_001, 2**31 - 1):
            request = init(talk.name("timeouts"), timeout_ms)
            talk.ask_settled(f"a timeout of {timeout_ms} v{version}", request, version)
        talk.ask(f"an empty id v{version}", init(""), version)
    for timeout_ms in (1, 900_000):
        talk.ask_settled(f"a timeout of {timeout_ms}", init(talk.name("limits"), timeout_ms))
    for version in (3, 4, 5):
        name = talk.name(f"known-{version}")
        one = begun(talk, name)

        def ask(what: str, *producer: int, name: str = name, version: int = version) -> Producer:
            request = init(name, producer=(producer[0], producer[1]))
            got = talk.ask_settled(f"{what} v{version}", request, version)
            assert isinstance(got, InitProducerIdResponse)
            return Producer(got.producer_id, got.producer_epoch)

        two = ask("its id and epoch", one.id, one.epoch)
        ask("its id and epoch once more", one.id, one.epoch)
        ask("another id", STRANGER, 0)
        ask("an epoch ahead", two.id, two.epoch + 7)
        three = ask("its next epoch", two.id, two.epoch)
        ask("an epoch long ago", one.id, one.epoch)
        ask("an id without an epoch", three.id, -1)
        ask("an epoch without an id", -1, 3)
        unknown = talk.name(f"unknown-{version}")
        ask("an id of nobody", STRANGER, 0, name=unknown)
        ask("an id of nobody, again", STRANGER, 0, name=unknown)


def transactions_of_version_1(talk: Conversation) -> None:
    """A client before KIP-890's second part: it adds partitions, and its epoch stays."""
    transaction_coordinator(talk)
    topic = talk.topic("plain", partitions=2)
    name = talk.name("t")
    one = begun(talk, name)
    sequence = 0

    def send(what: str, producer: Producer, version: int = PRODUCE_OF_TRANSACTIONS_1) -> None:
        nonlocal sequence
        who = Producer(producer.id, producer.epoch, sequence)
        records = batch(b"a", producer=who, is_transactional=True)
        request = produce(topic, records, transactional_id=name)
        answer = talk.ask_settled(what, request, version)
        assert isinstance(answer, ProduceResponse)
        if answer.responses[0].partition_responses[0].error_code == 0:
            sequence += 1

    send("before it is added", one)
    for version in range(4):
        for committed in (True, False):
            what = f"v{version}, {'committed' if committed else 'aborted'}"
            added = add_partitions(name, one, {topic.name: [0]}, version)
            talk.ask_settled(f"add a partition {what}", added, version)
            send(f"produce {what}", one)
            _see(talk, f"before the end {what}", topic)
            request = end(name, one, committed=committed)
            talk.ask_settled(f"end {what}", request, min(version, 4))
            talk.ask_settled(f"end again {what}", request, min(version, 4))
            other = end(name, one, committed=not committed)
            talk.ask_settled(f"end the other way {what}", other, min(version, 4))
            _settle(talk, topic)
            _see(talk, f"after the end {what}", topic)
    send("when it is over", one)
    talk.ask_settled("end nothing v4", end(name, begun(talk, talk.name("new"))), 4)
    talk.ask_settled("who there is", _producers(topic), hide=["last_timestamp"])


def transactions_of_version_2(talk: Conversation) -> None:
    """A client of KIP-890's second part: partitions add themselves, each end has a new epoch."""
    transaction_coordinator(talk)
    topic = talk.topic("plain", partitions=2)
    name = talk.name("t")
    one = begun(talk, name)

    def send(what: str, producer: Producer, sequence: int = 0, partition: int = 0) -> None:
        who = Producer(producer.id, producer.epoch, sequence)
        records = batch(b"a", b"b", producer=who, is_transactional=True)
        request = produce(topic, records, partition=partition, transactional_id=name)
        talk.ask_settled(what, request, PRODUCE_OF_TRANSACTIONS_2)

    def finish(what: str, producer: Producer, *, committed: bool = True) -> Producer:
        answer = talk.ask_settled(what, end(name, producer, committed=committed), 5)
        assert isinstance(answer, EndTxnResponse)
        return Producer(answer.producer_id, answer.producer_epoch, 0)

    send("produce", one)
    send("produce more", one, 2)
    send("the same again", one, 2)
    send("produce to another partition", one, 0, 1)
    talk.ask_settled("who there is meanwhile", _producers(topic), hide=["last_timestamp"])
    _see(talk, "meanwhile", topic)
    two = finish("commit", one)
    _settle(talk, topic)
    _see(talk, "when it is committed", topic)
    finish("commit again", one)
    finish("abort what is committed", one, committed=False)
    send("produce in the old epoch", one, 4)
    send("produce in the new epoch, not from zero", two, 4)
    send("produce in the new epoch", two)
    finish("a late commit of the old epoch", one)
    three = finish("abort", two, committed=False)
    _settle(talk, topic)
    _see(talk, "when it is aborted", topic)
    finish("abort again", two, committed=False)
    finish("commit what is aborted", two)
    finish("commit nothing", three)
    four = finish("abort nothing", three, committed=False)
    finish("abort nothing again", three, committed=False)
    finish("commit nothing after that", four)
    finish("an epoch ahead", Producer(four.id, four.epoch + 5))
    finish("another's id", Producer(STRANGER, 0))
    send("produce in an epoch ahead", Producer(four.id, four.epoch + 5))
    request = produce(topic, batch(b"a", producer=four), transactional_id=name)
    talk.ask_settled("a plain batch", request)
    talk.ask_settled("who there is", _producers(topic), hide=["last_timestamp"])


def transactions_fenced(talk: Conversation) -> None:
    """A second producer with the same id, while the first one's transaction is open."""
    transaction_coordinator(talk)
    topic = talk.topic("plain")
    for version in (3, 4, 5):
        name = talk.name(f"v{version}")
        one = begun(talk, name)
        added = add_partitions(name, one, {topic.name: [0]})
        talk.ask_settled(f"add a partition v{version}", added, 3)
        got = talk.ask_settled(f"another begins v{version}", init(name), version)
        assert isinstance(got, InitProducerIdResponse)
        two = Producer(got.producer_id, got.producer_epoch, 0)
        for number in range(4):
            request = add_partitions(name, one, {topic.name: [0]}, number)
            talk.ask_settled(f"the first adds v{number} of {version}", request, number)
        for number in range(5):
            asked = add_offsets(name, one, talk.name("group"))
            talk.ask_settled(f"the first adds offsets v{number} of {version}", asked, number)
        for number in range(6):
            asked_end = end(name, one)
            talk.ask_settled(f"the first ends v{number} of {version}", asked_end, number)
        for number in (3, 4, 5):
            again = init(name, producer=(one.id, one.epoch))
            talk.ask_settled(f"the first begins v{number} of {version}", again, number)
        records = batch(b"a", producer=one, is_transactional=True)
        for number in (PRODUCE_OF_TRANSACTIONS_1, PRODUCE_OF_TRANSACTIONS_2):
            sent = produce(topic, records, transactional_id=name)
            talk.ask_settled(f"the first produces v{number} of {version}", sent, number)
        talk.ask_settled(f"the second ends v{version}", end(name, two), version)


def add_partitions_to_transactions(talk: Conversation) -> None:
    transaction_coordinator(talk)
    group_coordinator(talk)
    topic = talk.topic("plain", partitions=2)
    name = talk.name("t")
    one = begun(talk, name)
    unknown = talk.name("unknown")
    for version in range(6):

        def ask(
            what: str,
            id_: str,
            producer: Producer,
            topics: dict[str, list[int]],
            *,
            version: int = version,
            verify_only: bool = False,
        ) -> None:
            request = add_partitions(id_, producer, topics, version, verify_only=verify_only)
            talk.ask_settled(f"{what} v{version}", request, version)

        good = {topic.name: [0]}
        ask("an unknown transactional id", talk.name("none"), one, good)
        ask("an empty transactional id", "", one, good)
        ask("another producer id", name, Producer(STRANGER, 0), good)
        ask("an epoch ahead", name, Producer(one.id, one.epoch + 3), good)
        ask("epoch -1", name, Producer(one.id, -1), good)
        ask("an unknown topic", name, one, {unknown: [0]})
        ask("a known and an unknown topic", name, one, {unknown: [0], topic.name: [0]})
        ask("an unknown partition", name, one, {topic.name: [9]})
        ask("no partition", name, one, {topic.name: []})
        ask("no topic", name, one, {})
        ask("an internal topic", name, one, {"__consumer_offsets": [0]})
        if version >= 4:
            ask("is it there", name, one, good, verify_only=True)
        ask("a partition", name, one, good)
        ask("the same again", name, one, good)
        if version >= 4:
            ask("is it there now", name, one, good, verify_only=True)
            both = {topic.name: [0, 1]}
            ask("are both there", name, one, both, verify_only=True)
            ask("is it there in an epoch ahead", name, Producer(one.id, 9), good, verify_only=True)
            stranger = talk.name("none")
            ask("is it there for nobody", stranger, one, good, verify_only=True)
            several = add_partitions(name, one, good, version, verify_only=True)
            more = add_partitions(stranger, one, good, version, verify_only=False)
            several.transactions += more.transactions
            talk.ask_settled(f"several transactions v{version}", several, version)
        talk.ask_settled(f"end v{version}", end(name, one), 4)
    nothing = AddPartitionsToTxnRequest()
    talk.ask("no transactions", nothing, patience_seconds=2)


def add_offsets_to_transactions(talk: Conversation) -> None:
    transaction_coordinator(talk)
    name = talk.name("t")
    one = begun(talk, name)
    for version in range(5):
        for what, id_, producer in (
            ("an unknown transactional id", talk.name("none"), one),
            ("an empty transactional id", "", one),
            ("another producer id", name, Producer(STRANGER, 0)),
            ("an epoch ahead", name, Producer(one.id, one.epoch + 3)),
            ("epoch -1", name, Producer(one.id, -1)),
            ("as it should be", name, one),
            ("again", name, one),
        ):
            request = add_offsets(id_, producer, talk.name("group"))
            talk.ask_settled(f"{what} v{version}", request, version)
        talk.ask_settled(f"an empty group id v{version}", add_offsets(name, one, ""), version)
        talk.ask_settled(f"end v{version}", end(name, one), version)


def end_transactions(talk: Conversation) -> None:
    transaction_coordinator(talk)
    name = talk.name("t")
    one = begun(talk, name)
    for version in range(6):
        for what, id_, producer in (
            ("an unknown transactional id", talk.name("none"), one),
            ("an empty transactional id", "", one),
            ("another producer id", name, Producer(STRANGER, 0)),
            ("an epoch ahead", name, Producer(one.id, one.epoch + 3)),
            ("epoch -1", name, Producer(one.id, -1)),
        ):
            for committed in (True, False):
                request = end(id_, producer, committed=committed)
                word = "commit" if committed else "abort"
                talk.ask_settled(f"{word} of {what} v{version}", request, version)


def _see(talk: Conversation, what: str, topic: Topic) -> None:
    """Keep what readers of both kinds get, and where the log is said to end."""
    for level, word in ((0, "all"), (1, "committed")):
        request = fetch(from_offset(topic, 0), isolation_level=level)
        talk.ask(f"what there is {what}, {word}", request)
        asked = list_offsets(topic, (0, LATEST), isolation_level=level)
        talk.ask(f"where it ends {what}, {word}", asked)


def _settle(talk: Conversation, topic: Topic) -> None:
    """Wait until the markers of a transaction that has ended are written."""

    def stable_offset() -> int:
        request = list_offsets(topic, (0, LATEST), isolation_level=1)
        return talk.quietly(request, ListOffsetsResponse).topics[0].partitions[0].offset

    talk.until(
        list_offsets(topic, (0, LATEST)),
        ListOffsetsResponse,
        lambda m: m.topics[0].partitions[0].offset == stable_offset(),
    )


def _producers(topic: Topic) -> DescribeProducersRequest:
    return DescribeProducersRequest(topics=[TopicRequest(name=topic.name, partition_indexes=[0])])


SCRIPTS = (
    init_transactions,
    transactions_of_version_1,
    transactions_of_version_2,
    transactions_fenced,
    add_partitions_to_transactions,
    add_offsets_to_transactions,
    end_transactions,
)
