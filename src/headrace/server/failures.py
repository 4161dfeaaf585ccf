"""The response that reports everything in a request as failed.

Kafka's responses have no common place for an error. Where a version has one code for the whole
request, that is it; else each topic, partition or resource of the request is listed with the
code. tests/jvm/test_failures.py compares with Kafka's responses.
"""

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Final

import msgspec

from headrace.errors import ErrorCode
from headrace.loop.slices import Slice, Slices, run_whole
from headrace.server.request import Request
from headrace.wire import APIS, ApiKey
from headrace.wire.messages.fetch_response import FetchResponse
from headrace.wire.messages.init_producer_id_response import InitProducerIdResponse
from headrace.wire.plan import STRUCT, StructPlan, plan_message
from headrace.wire.schema import Message, Struct

ROW_UNITS: Final = 6
"""How long a row takes, as `loop.slices` counts it."""
_CODES: Final = frozenset({"error_code", "partition_error_code"})

_TOPICS_TOO: Final = {
    ApiKey.FETCH: range(7, 13),
    ApiKey.METADATA: range(13, 14),
    ApiKey.ELECT_LEADERS: range(1, 3),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: range(2),
}
"""Versions that have a code for the whole request and still list what was requested."""

_NAMES: Final = {
    "responses": ("topic_data", "topics", "topic_names", "resources"),
    "results": ("topics", "resources", "creations", "groups_names", "feature_updates"),
    "partition_responses": ("partition_data",),
    "partitions": ("partition_indexes",),
    "results_by_topic_v3_and_below": ("v3_and_below_topics",),
    "results_by_partition": ("partitions",),
    "filter_results": ("filters",),
    "groups": ("group_ids",),
    "coordinators": ("coordinator_keys",),
    "transaction_states": ("transactional_ids",),
    "replica_election_results": ("topic_partitions",),
    "partition_result": ("partitions",),
    "topic_name": ("name",),
    "partition_index": ("partition",),
    "user": ("name",),
}
"""Request names of response fields, where the two differ."""

_LISTS: Final[dict[tuple[ApiKey, str], Callable[[Any], Iterable[Any]]]] = {
    (ApiKey.DESCRIBE_LOG_DIRS, "results"): lambda body: (),  # directories
    (ApiKey.ALTER_REPLICA_LOG_DIRS, "results"): lambda body: (
        topic for directory in body.dirs for topic in directory.topics
    ),
    (ApiKey.ALTER_USER_SCRAM_CREDENTIALS, "results"): lambda body: {
        row.name: row for row in (*body.deletions, *body.upsertions)
    }.values(),
}
"""Responses whose list has no counterpart in the request."""

_KEYS: Final = frozenset(
    {"entity", "group_id", "index", "key", "name", "partition", "partition_id", "partition_index"}
    | {"producer_id", "resource_name", "resource_type", "topic", "topic_id", "topic_name"}
    | {"transactional_id", "user"}
)
"""Fields that identify an element of a response."""

_UNKNOWN: Final[dict[str, Any]] = {
    "base_offset": -1,
    "committed_offset": -1,
    "high_watermark": -1,
    "low_watermark": -1,
    "node_id": -1,
    "port": -1,
    "records": b"",
}
"""Fields whose value in a failure is not their default."""


def failure_response(request: Request, code: ErrorCode, message: str) -> Message | None:
    """Return the response to a request that is known to be small, see `failing`."""
    return run_whole(failing(request, code, message))


def failing(request: Request, code: ErrorCode, message: str) -> Slices[Message | None]:
    """Return the response to `request` that has `code` wherever Kafka would have it.

    None for a produce with acks=0, which has no response: close the connection, as nothing else
    tells the client.
    """
    api = APIS[request.api_key]
    if api.key == ApiKey.PRODUCE and request.body.acks == 0:
        return None
    response = api.response()
    topics_too = request.version in _TOPICS_TOO.get(api.key, ())
    failure = _Failure(api.key, code, message, topics_too)
    yield from failure.fill(response, request.body, _plan(api.response, request.version), Slice())
    match response:
        case FetchResponse():
            response.session_id = request.body.session_id
        case InitProducerIdResponse():
            response.producer_epoch = -1
    return response


def failed_rows(request: Request, body: Any, code: ErrorCode, message: str) -> Slices[Message]:
    """Return a response in which everything that `body` asks for has `code`.

    `body` is a part of the request: what its client may not have.
    """
    api = APIS[request.api_key]
    response = api.response()
    yield from _Failure(api.key, code, message, topics_too=True).fill(
        response, body, _plan(api.response, request.version), Slice()
    )
    return response


class _Failure(msgspec.Struct, frozen=True):
    key: ApiKey
    code: int
    message: str
    topics_too: bool

    def fill(self, answer: Struct, asked: Any, plan: StructPlan, current: Slice) -> Slices[None]:
        """Turn `answer` into the failure of `asked`: a request, a part of one, or a bare key."""
        names = {field.name for field in plan.present}
        for name in names & _CODES:
            setattr(answer, name, self.code)
        if "error_message" in names:
            answer.error_message = self.message  # type: ignore[attr-defined]
        for name in names & _UNKNOWN.keys():
            setattr(answer, name, _UNKNOWN[name])
        if self.topics_too or not names & _CODES:
            yield from self._fill_lists(answer, asked, plan, current)

    def _fill_lists(
        self, answer: Struct, asked: Any, plan: StructPlan, current: Slice
    ) -> Slices[None]:
        for field in plan.present:
            if field.is_array and field.kind == STRUCT and _holds_code(field.inner):
                elements = []
                for each in self._asked_for(asked, field.name):
                    element = field.inner.type()
                    _name(element, each, field.inner)
                    yield from self.fill(element, each, field.inner, current)
                    elements.append(element)
                    if current.spend(ROW_UNITS):
                        yield
                setattr(answer, field.name, elements)

    def _asked_for(self, asked: Any, name: str) -> Iterable[Any]:
        if (find := _LISTS.get((self.key, name))) is not None:
            return find(asked)
        return _find(asked, name) or ()


def _name(element: Struct, asked: Any, plan: StructPlan) -> None:
    """Copy the fields that identify an element from the request."""
    for field in plan.present:
        if field.name not in _KEYS:
            continue
        if isinstance(asked, Struct):
            value = _find(asked, field.name)
        else:  # a bare name or number
            value = asked if type(asked) is type(field.default) else None
        if field.is_array:  # a quota's entity, the one key that is not a single value
            value = [_copy(part, field.inner.type) for part in value]
        if value is not None:
            setattr(element, field.name, value)


def _copy(part: Struct, kind: type[Struct]) -> Struct:
    return kind(**{name: getattr(part, name) for name in part.__struct_fields__})


def _find(asked: Any, name: str) -> Any:
    """Return the request's counterpart of a response field, or None."""
    for candidate in (name, *_NAMES.get(name, ())):
        if value := getattr(asked, candidate, None):
            return value
    return getattr(asked, name, None)


@cache
def _plan(message: type[Message], version: int) -> StructPlan:
    return plan_message(message, version)


def _holds_code(plan: StructPlan) -> bool:
    return any(
        field.name in _CODES or (field.kind == STRUCT and _holds_code(field.inner))
        for field in plan.present
    )
