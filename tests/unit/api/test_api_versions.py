"""ApiVersions: what is served, to whom, and what a client hears that speaks another version."""

from time import monotonic_ns
from typing import Any

import pytest

from headrace.api import api_versions
from headrace.errors import ErrorCode
from headrace.metadata.ddl import SetConfigs
from headrace.metadata.state import ResourceType
from headrace.server.request import Request
from headrace.wire import ApiKey, read_response, response_parts
from headrace.wire.messages.api_versions_request import ApiVersionsRequest
from tests.unit.harness import Harness

SOFTWARE = ApiVersionsRequest(
    client_software_name="apache-kafka-java", client_software_version="4.3.1"
)


@pytest.mark.parametrize("version", range(5))
def test_every_version_lists_what_is_served(harness: Harness, version: int) -> None:
    body = SOFTWARE if version >= 3 else ApiVersionsRequest()
    answer = harness.ask(body, version)
    assert answer.error_code == ErrorCode.NONE
    rows = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
    assert rows[ApiKey.API_VERSIONS] == (0, 4)
    assert rows[ApiKey.METADATA] == (0, 13)
    assert rows[ApiKey.CREATE_TOPICS] == (2, 7)
    assert list(rows) == sorted(rows)


@pytest.mark.parametrize("version", range(5))
def test_a_response_is_encoded_once_for_as_long_as_the_metadata_stays(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    encoded: list[int] = []

    def encode(key: int, version: int, correlation_id: int, body: Any) -> Any:
        encoded.append(version)
        return response_parts(key, version, correlation_id, body)

    monkeypatch.setattr(api_versions, "response_parts", encode)
    body = SOFTWARE if version >= 3 else ApiVersionsRequest()
    first, second = harness.ask(body, version), harness.ask(body, version)
    assert first == second
    assert encoded == [version]
    harness.create_topic("orders")
    epochs = [harness.ask(body, version).finalized_features_epoch for _ in range(2)]
    assert encoded == [version] * 2
    if version >= 3:
        assert epochs == [harness.broker.image.applied_index] * 2


def test_a_response_that_was_kept_has_the_id_of_its_own_request(harness: Harness) -> None:
    async def ask(correlation_id: int) -> Any:
        request = Request(
            harness.peer, ApiKey.API_VERSIONS, 4, correlation_id, None, SOFTWARE, 0, monotonic_ns()
        )
        answered = harness.peer.expect(request)
        harness.node.dispatcher.dispatch(request)
        await answered
        assert request.parts is not None
        return read_response(b"".join(request.parts)[4:], ApiKey.API_VERSIONS, 4)

    heard = [harness.run(ask(correlation_id)) for correlation_id in (7, -1, 2**31 - 1)]
    assert [header.correlation_id for header, _ in heard] == [7, -1, 2**31 - 1]
    assert heard[0][1] == heard[1][1] == heard[2][1]


def test_features_that_begin_at_zero_are_kept_from_clients_that_refuse_them(
    harness: Harness,
) -> None:
    names = {
        version: {row.name for row in harness.ask(SOFTWARE, version).supported_features}
        for version in (3, 4)
    }
    assert names[3] == {"metadata.version"}
    assert names[4] > {"metadata.version", "group.version", "transaction.version"}


def test_finalized_features_are_those_of_the_image(harness: Harness) -> None:
    answer = harness.ask(SOFTWARE, 4)
    finalized = {row.name: row.max_version_level for row in answer.finalized_features}
    assert finalized == harness.broker.image.state.features
    assert finalized["metadata.version"] == 30
    assert answer.finalized_features_epoch == harness.broker.image.applied_index


def test_the_connection_knows_the_software_afterwards(harness: Harness) -> None:
    harness.ask(SOFTWARE, 4)
    assert harness.peer.client_software == "apache-kafka-java 4.3.1"


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("", "1"),
        ("a", ""),
        ("a b", "1"),
        ("-a", "1"),
        ("a.", "1"),
        ("a_b", "1"),
        ("ä", "1"),
        ("a", "1\n"),
    ],
)
def test_a_name_that_no_software_has_is_refused(harness: Harness, name: str, version: str) -> None:
    body = ApiVersionsRequest(client_software_name=name, client_software_version=version)
    answer = harness.ask(body, 3)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert answer.api_keys == []
    assert not harness.peer.client_software


def test_a_version_that_is_not_served_is_told_which_are(harness: Harness) -> None:
    async def ask() -> Any:
        request = Request(harness.peer, ApiKey.API_VERSIONS, 0, 7, None, None, 0, monotonic_ns())
        answered = harness.peer.expect(request)
        harness.node.dispatcher.dispatch(request)
        await answered
        assert request.parts is not None
        return read_response(b"".join(request.parts)[4:], ApiKey.API_VERSIONS, 0)[1]

    answer = harness.run(ask())
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(row.api_key, row.min_version, row.max_version) for row in answer.api_keys] == [
        (ApiKey.API_VERSIONS, 0, 4)
    ]


def test_telemetry_is_named_once_somebody_wants_it(harness: Harness) -> None:
    def named() -> set[int]:
        answer = harness.ask(SOFTWARE, 3)
        return {row.api_key for row in answer.api_keys} & {71, 72}

    assert named() == set()
    wanted = SetConfigs(ResourceType.CLIENT_METRICS, "probes", {"interval.ms": "60000"})
    harness.run(harness.broker.quorum.propose(wanted))
    assert named() == {71, 72}
