"""A request that fails as a whole has a response in every API and version."""

from collections.abc import Iterator
from random import Random
from typing import Any, cast

import pytest

from headrace.errors import ErrorCode
from headrace.server.failures import failure_response
from headrace.server.request import Peer, Request
from headrace.wire import APIS, Api, ApiKey, decode, encode
from headrace.wire.messages.alter_replica_log_dirs_request import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from headrace.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from headrace.wire.messages.create_topics_response import CreateTopicsResponse
from headrace.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headrace.wire.plan import STRUCT, StructPlan, plan_message
from headrace.wire.schema import Message, Struct
from tests.message_values import Filled, make_message

NOBODY = cast(Peer, None)
CODE = ErrorCode.UNKNOWN_SERVER_ERROR
CODES = ("error_code", "partition_error_code")
PARTITIONS = ("index", "partition", "partition_id", "partition_index")
PARTITION_LISTS = (
    *("partitions", "partition_indexes", "partition_data", "partition_responses"),
    *("partition_result", "results_by_partition"),
)
TOPICS = ("name", "topic", "topic_name", "topic_id")
CLIENT_APIS = [api for api in APIS.values() if "broker" in api.listeners]
WITHOUT_ROOM = (ApiKey.DESCRIBE_LOG_DIRS,)
"""APIs that have neither a code for the request nor for what it names, in their oldest versions."""


def request_of(api: Api, version: int, body: Message) -> Request:
    return Request(NOBODY, int(api.key), version, 1, "client", body, 100, 0)


def fail(api: Api, version: int, body: Message) -> Message:
    """What a client reads of the failure."""
    response = failure_response(request_of(api, version, body), CODE, "it failed")
    assert response is not None
    return decode(api.response, bytes(encode(response, version)), version)


def codes(value: Struct, plan: StructPlan) -> Iterator[int]:
    """Every error code that a version of a message has."""
    for field in plan.present:
        inner = getattr(value, field.name)
        if field.name in CODES:
            yield inner
        elif field.kind == STRUCT and inner is not None:
            for each in inner if field.is_array else [inner]:
                yield from codes(each, field.inner)


def partitions(value: Any) -> Iterator[tuple[object, int]]:
    """Every topic with each of its partitions, however the message calls them."""
    for name in getattr(value, "__struct_fields__", ()):
        inner = getattr(value, name)
        if not isinstance(inner, list):
            continue
        for each in inner:
            if name in PARTITION_LISTS and (topic := _first(value, TOPICS)) is not None:
                yield topic, each if isinstance(each, int) else _first(each, PARTITIONS)
            else:
                yield from partitions(each)


def _first(value: Struct, names: tuple[str, ...]) -> Any:
    nothing = (None, "", bytes(16))
    found = (getattr(value, name, None) for name in names)
    return next((each for each in found if each not in nothing), None)


@pytest.mark.parametrize("api", CLIENT_APIS, ids=lambda api: api.name)
def test_every_version_says_that_the_request_failed(api: Api) -> None:
    for version in range(api.versions.first, api.versions.last + 1):
        asked = make_message(api.request, version, Filled(Random(version)))
        answer = fail(api, version, asked)
        found = list(codes(answer, plan_message(api.response, version)))
        assert set(found) == {CODE} or (api.key in WITHOUT_ROOM and version < 3)


@pytest.mark.parametrize(
    "api",
    [
        *("Produce", "Fetch", "ListOffsets", "OffsetCommit", "OffsetForLeaderEpoch"),
        *("DeleteRecords", "AlterReplicaLogDirs", "DescribeProducers", "TxnOffsetCommit"),
        *("WriteTxnMarkers", "ElectLeaders", "AlterPartitionReassignments"),
    ],
)
def test_the_same_partitions_are_named(api: str) -> None:
    [of_name] = [each for each in CLIENT_APIS if each.name == api]
    last = 12 if api == "Fetch" else of_name.versions.last
    for version in range(of_name.versions.first, last + 1):
        asked = make_message(of_name.request, version, Filled(Random(version)))
        if isinstance(forgotten := getattr(asked, "forgotten_topics_data", None), list):
            forgotten.clear()
        named = sorted(partitions(fail(of_name, version, asked)), key=repr)
        assert named == sorted(partitions(asked), key=repr)
        assert named


def test_a_fetch_by_topic_ids_fails_as_a_whole() -> None:
    api = APIS[ApiKey.FETCH]
    asked: Any = make_message(api.request, 13, Filled(Random(1)))
    answer: Any = fail(api, 13, asked)
    assert (answer.error_code, answer.session_id) == (CODE, asked.session_id)
    assert answer.responses == []


def test_topics_of_all_directories_are_named_once_each() -> None:
    api = APIS[ApiKey.ALTER_REPLICA_LOG_DIRS]
    topics = [AlterReplicaLogDirTopic(name=name, partitions=[0, 1]) for name in ("a", "b")]
    dirs = [AlterReplicaLogDir(path=f"/{topic.name}", topics=[topic]) for topic in topics]
    answer: Any = fail(api, 2, AlterReplicaLogDirsRequest(dirs=dirs))
    assert list(partitions(answer)) == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]


def test_a_topic_has_the_message_where_the_version_has_room_for_it() -> None:
    body = CreateTopicsRequest(topics=[CreatableTopic(name="orders")])
    answer = fail(APIS[ApiKey.CREATE_TOPICS], 7, body)
    assert isinstance(answer, CreateTopicsResponse)
    assert [(topic.name, topic.error_message) for topic in answer.topics] == [
        ("orders", "it failed")
    ]


def test_a_produce_that_wants_no_answer_gets_none() -> None:
    data = [TopicProduceData(name="orders", partition_data=[PartitionProduceData(index=0)])]
    body = ProduceRequest(acks=0, topic_data=data)
    assert failure_response(request_of(APIS[ApiKey.PRODUCE], 9, body), CODE, "no") is None
