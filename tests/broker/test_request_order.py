"""Requests of one connection take effect in order: each sees what those before it did.

What is sent in one write is handled one after the other. tests/differential plays most of these
scripts to Apache Kafka too.
"""

from collections.abc import Iterator, Mapping
from inspect import isfunction, ismodule
from typing import Any, Final

import pytest

from headrace.ids import ZERO_TOPIC_ID, PartitionIndex, TopicName
from headrace.node.apis import SERVED
from headrace.records.compression import Compression
from headrace.testing.broker import TestBroker
from headrace.wire import ApiKey
from headrace.wire.messages.find_coordinator_request import FindCoordinatorRequest
from headrace.wire.schema import Message
from tests.broker import delegation_token_play
from tests.broker.peers import wait_until
from tests.differential.comparison import play
from tests.differential.connection import Connection
from tests.differential.conversation import Conversation
from tests.differential.pairs import nodes, rights
from tests.differential.pairs.pair import Pair
from tests.differential.peers import SETTINGS
from tests.differential.requests import Topic, batch, metadata, produce
from tests.differential.scripts.ordering import PAIRS
from tests.differential.share_requests import ANY_TOPIC_ID

READING: Final = frozenset(
    {
        ApiKey.API_VERSIONS,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        ApiKey.DESCRIBE_ACLS,
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.LIST_CONFIG_RESOURCES,
        ApiKey.LIST_GROUPS,
        ApiKey.LIST_OFFSETS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_TRANSACTIONS,
        ApiKey.OFFSET_FETCH,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ApiKey.READ_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
        ApiKey.SHARE_GROUP_DESCRIBE,
        ApiKey.STREAMS_GROUP_DESCRIBE,
    }
)
"""APIs that change nothing which a later request could show."""

EXCLUDED: Final = {
    ApiKey.HEARTBEAT: "it prolongs a session, which no request shows",
    ApiKey.ALTER_REPLICA_LOG_DIRS: "a node has one directory",
    ApiKey.UPDATE_RAFT_VOTER: "what voters tell of themselves here comes in another way",
}
"""APIs that have no effect which a request could show, each with the reason."""
ALL_PAIRS: Final = (*PAIRS, *rights.PAIRS, *nodes.PAIRS, *nodes.LOSSES)
"""Those of nodes are played by tests/cluster/test_request_order.py."""

ZSTD: Final = Compression.ZSTD
INTERNAL_TOPICS: Final = {
    "__consumer_offsets": (0, "any"),
    "__transaction_state": (1, "any"),
    "__share_group_state": (2, f"any:{ANY_TOPIC_ID}:0"),
}
"""What a FindCoordinator creates that comes first, with its key type and a key."""


@pytest.fixture(scope="session")
def headrace_settings() -> Mapping[str, str]:
    return {**SETTINGS, "group.initial.rebalance.delay.ms": "0"}


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name)
def test_a_request_sees_what_those_before_it_did(pair: Pair, headrace_module: TestBroker) -> None:
    play(pair.script, headrace_module.bootstrap)


@pytest.fixture(scope="module")
def protected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    """Run a node with SASL, ACLs and delegation tokens."""
    settings = {
        **delegation_token_play.SETTINGS,
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "allow.everyone.if.no.acl.found": "true",
        "super.users": "",
    }
    with TestBroker(tmp_path_factory.mktemp("protected"), settings) as broker:
        yield broker


@pytest.mark.parametrize("pair", rights.PAIRS, ids=lambda pair: pair.name)
def test_a_request_has_the_rights_that_those_before_it_left(
    pair: Pair, protected: TestBroker
) -> None:
    play(pair.script, protected.bootstrap)


def test_a_coordinator_that_was_found_has_its_topic(headrace: TestBroker) -> None:
    talk = Conversation(headrace.bootstrap, "found")
    try:
        for topic, (key_type, key) in INTERNAL_TOPICS.items():
            find = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
            before, found, after = talk.quietly_at_once([metadata(topic), find, metadata(topic)])
            assert before.topics[0].error_code != 0
            assert found.coordinators[0].error_code == 0
            assert after.topics[0].error_code == 0
    finally:
        talk.close()


def test_what_was_sent_before_the_client_hung_up_takes_effect(headrace: TestBroker) -> None:
    headrace.create_topic("orders")
    request = produce(Topic("orders", ZERO_TOPIC_ID), batch(b"a"), acks=0)
    versions = range(3, 13)  # each is new to the node at first
    for version in versions:
        for _ in range(2):
            with Connection(headrace.bootstrap) as connection:
                connection.send(request, version)
    written = 2 * len(versions)
    wait_until(lambda: end_of(headrace, "orders") == written, f"{written} records are there")


def test_a_batch_that_threads_validate_is_written_though_the_client_hung_up(
    headrace: TestBroker,
) -> None:
    headrace.create_topic("orders", configs={"compression.type": "gzip"})
    records = [b"%d" % number * 50_000 for number in range(10)]
    request = produce(Topic("orders", ZERO_TOPIC_ID), batch(*records, codec=ZSTD), acks=0)
    with Connection(headrace.bootstrap) as connection:
        for _ in range(3):
            connection.send(request, 12)
    wait_until(lambda: end_of(headrace, "orders") == 30, "thirty records are there")


def end_of(headrace: TestBroker, topic: str) -> int:
    partition = headrace.node.broker.replicas.find(TopicName(topic), PartitionIndex(0))
    return -1 if partition is None else partition.log.end_offset


def test_every_request_that_changes_something_is_in_a_pair() -> None:
    shown = {api for pair in ALL_PAIRS for api in pair.shows} | {ApiKey.FIND_COORDINATOR}
    assert shown | EXCLUDED.keys() == SERVED - READING
    assert not shown & EXCLUDED.keys()


def test_every_request_that_reads_something_is_in_a_pair() -> None:
    asked = {kind.API_KEY for pair in ALL_PAIRS for kind in requests_of(pair.script)}
    assert asked >= READING


def requests_of(function: Any) -> set[type[Message]]:
    """Return the messages that a script names, and what it calls of the scripts' modules."""
    found: set[type[Message]] = set()
    seen: set[Any] = set()
    left = [function]
    while left:
        function = left.pop()
        if function in seen:
            continue
        seen.add(function)
        names = function.__code__.co_names
        values = [function.__globals__.get(name) for name in names]
        values += [getattr(each, name, None) for each in values if ismodule(each) for name in names]
        for value in values:
            if isinstance(value, type) and issubclass(value, Message):
                found.add(value)
            elif isinstance(value, Message):
                found.add(type(value))
            elif isinstance(value, type) and value.__module__.startswith("tests."):
                left += filter(isfunction, vars(value).values())
            elif isfunction(value) and value.__module__.startswith("tests."):
                left.append(value)
    return found
