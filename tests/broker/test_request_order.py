"""Requests of one connection take effect in order: each sees what those before it did.

What is sent in one write is handled one after the other. tests/differential plays most of these
scripts to Apache Kafka too.
"""

from collections.abc import Mapping
from typing import Final

import pytest

from headrace.ids import ZERO_TOPIC_ID, PartitionIndex, TopicName
from headrace.node.apis import SERVED
from headrace.records.compression import Compression
from headrace.testing.broker import TestBroker
from headrace.wire import ApiKey
from headrace.wire.messages.find_coordinator_request import FindCoordinatorRequest
from tests.broker.peers import wait_until
from tests.differential.comparison import play
from tests.differential.connection import Connection
from tests.differential.conversation import Conversation
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
    ApiKey.ELECT_LEADERS: "a node alone leads every partition already",
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: "a node alone has no other node to move a replica to",
    ApiKey.ALTER_REPLICA_LOG_DIRS: "a node has one directory",
    **dict.fromkeys(
        (ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER, ApiKey.UPDATE_RAFT_VOTER),
        "a node alone is the only voter",
    ),
    **dict.fromkeys(
        (ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS), "a node without an authorizer has no ACLs"
    ),
    **dict.fromkeys(
        (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE), "a listener without SASL refuses them"
    ),
    **dict.fromkeys(
        (
            ApiKey.CREATE_DELEGATION_TOKEN,
            ApiKey.RENEW_DELEGATION_TOKEN,
            ApiKey.EXPIRE_DELEGATION_TOKEN,
        ),
        "refused over PLAINTEXT",
    ),
    ApiKey.UNREGISTER_BROKER: "a node alone is up, and a broker that is up stays registered",
}
"""APIs whose effect one node cannot show, each with the reason."""

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
    shown = {api for pair in PAIRS for api in pair.shows} | {ApiKey.FIND_COORDINATOR}
    assert shown | EXCLUDED.keys() == SERVED - READING
    assert not shown & EXCLUDED.keys()
