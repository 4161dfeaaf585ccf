"""A request that fails as a whole is answered as Apache Kafka answers it, in every version."""

from collections.abc import Iterator
from random import Random
from typing import Any, cast

import pytest

from headrace.errors import ErrorCode
from headrace.server.failures import failure_response
from headrace.server.request import Peer, Request
from headrace.wire import APIS, Api, ApiKey, decode, encode
from headrace.wire.schema import Struct
from tests.message_values import Filled, make_message
from tools.jvm.oracles import FailureOracle

CODE = ErrorCode.UNKNOWN_SERVER_ERROR
CLIENT_APIS = [api for api in APIS.values() if "broker" in api.listeners]
NOBODY = cast(Peer, None)
DIFFERENT = {
    ApiKey.CREATE_ACLS: "Kafka's class refuses values that no ACL has",
    ApiKey.DELETE_ACLS: "Kafka's class refuses values that no ACL has",
    ApiKey.CREATE_DELEGATION_TOKEN: "Kafka fills in an anonymous owner",
    ApiKey.DESCRIBE_CLIENT_QUOTAS: "Kafka has null for a list that is empty here",
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: "Kafka adds rows without a user",
    ApiKey.JOIN_GROUP: "Kafka has null for a protocol that is empty here",
    ApiKey.LIST_PARTITION_REASSIGNMENTS: "Kafka lists what was asked for as being moved",
}


@pytest.fixture(scope="module")
def failures() -> Iterator[FailureOracle]:
    with FailureOracle() as oracle:
        yield oracle


@pytest.mark.parametrize(
    "api", [api for api in CLIENT_APIS if api.key not in DIFFERENT], ids=lambda api: api.name
)
def test_a_failed_request_is_answered_as_by_kafka(api: Api, failures: FailureOracle) -> None:
    for version in range(api.versions.first, api.versions.last + 1):
        asked = make_message(api.request, version, Filled(Random(version)))
        body = bytes(encode(asked, version))
        theirs = decode(api.response, failures.fail(api.key, version, body, CODE), version)
        request = Request(NOBODY, int(api.key), version, 1, "client", asked, len(body), 0)
        response = failure_response(request, CODE, "it failed")
        assert response is not None
        ours = decode(api.response, bytes(encode(response, version)), version)
        assert _plain(ours) == _plain(theirs)


def _plain(value: Any) -> Any:
    """Everything but messages and the order of lists, which are ours."""
    if isinstance(value, list):
        return sorted(map(_plain, value), key=repr)
    if isinstance(value, Struct):
        fields = (name for name in value.__struct_fields__ if name != "error_message")
        return {name: _plain(getattr(value, name)) for name in fields}
    return bytes(value) if isinstance(value, memoryview) else value
