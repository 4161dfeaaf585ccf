"""What a rule asks about the client of a request, and how it takes requests apart."""

import copy
from collections.abc import Callable, Iterable
from types import GeneratorType
from typing import Any, Final, TypeAlias, TypeVar

from headrace.errors import ErrorCode, KafkaError
from headrace.ids import ZERO_TOPIC_ID, TopicId
from headrace.loop.slices import Slice, Slices
from headrace.metadata.state import DelegationToken
from headrace.security.acls import CLUSTER_NAME, SUPPORTED, Operation, Resource
from headrace.security.authorizer import Authorizer
from headrace.server.broker import Broker
from headrace.server.failures import failed_rows
from headrace.server.operations import operation_bits
from headrace.server.request import Request
from headrace.wire.schema import Message

T = TypeVar("T")
Amend: TypeAlias = Callable[[Any], Any]
"""Completes the response of a handler: returns it, or `Slices` of it if that may take long."""
Outcome: TypeAlias = "Amend | Message | None"
"""None if a request may pass as it is now, a response for it, or what to do to one."""
Rule: TypeAlias = Callable[["Check", Request], "Outcome | Slices[Outcome]"]
"""Returns the outcome, or slices of it where a request may name very many things.

It may change the request, and raises KafkaError to refuse it as a whole.
"""
CHECK_UNITS: Final = 4
"""How long a decision takes, as `loop.slices` counts it."""
CODES: Final = {
    Resource.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    Resource.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    Resource.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    Resource.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    Resource.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
MESSAGES: Final = {
    Resource.TOPIC: "Topic authorization failed.",
    Resource.GROUP: "Group authorization failed.",
    Resource.CLUSTER: "Cluster authorization failed.",
    Resource.TRANSACTIONAL_ID: "Transactional Id authorization failed.",
    Resource.USER: "Delegation Token authorization failed.",
}
"""As Kafka words it: a client must not learn whether a resource exists."""


class Check:
    """The rights of the client of one request."""

    __slots__ = ("_authorizer", "_broker", "_host", "_principal", "has_unknown")

    def __init__(self, authorizer: Authorizer, broker: Broker, request: Request) -> None:
        self._authorizer = authorizer
        self._broker = broker
        self.has_unknown = False
        """Whether an id was looked up that no topic has, so that nobody needs rights to it."""
        self._principal = request.peer.principal
        self._host = request.peer.host

    @property
    def generation(self) -> int:
        """How often ACLs have changed."""
        return self._authorizer.generation

    def may(self, operation: Operation, resource: Resource, name: str) -> bool:
        """Return whether the client may do something with a resource."""
        return self._authorizer.allows(self._principal, self._host, operation, resource, name)

    def may_topic(self, operation: Operation, name: str) -> bool:
        return self.may(operation, Resource.TOPIC, name)

    def may_group(self, operation: Operation, name: str) -> bool:
        return self.may(operation, Resource.GROUP, name)

    def may_cluster(self, operation: Operation) -> bool:
        return self.may(operation, Resource.CLUSTER, CLUSTER_NAME)

    def may_some(self, operation: Operation, resource: Resource) -> bool:
        """Return whether the client may do something with any resource of a type."""
        return self._authorizer.allows_some(self._principal, self._host, operation, resource)

    def require(self, operation: Operation, resource: Resource, name: str) -> None:
        """Raise the resource's error unless the client may do something with it."""
        if not self.may(operation, resource, name):
            raise self.refusal(resource)

    def require_cluster(self, operation: Operation) -> None:
        self.require(operation, Resource.CLUSTER, CLUSTER_NAME)

    def require_group(self, operation: Operation, name: str | None) -> None:
        self.require(operation, Resource.GROUP, name or "")

    def refusal(self, resource: Resource) -> KafkaError:
        """Count a refusal and return it as an error."""
        self._broker.counters.requests_denied += 1
        return KafkaError(CODES[resource], MESSAGES[resource])

    def bits(self, resource: Resource, name: str) -> int:
        """Return the operations that the client may do, as responses have them (KIP-430)."""
        return operation_bits(op for op in SUPPORTED[resource] if self.may(op, resource, name))

    def cluster_bits(self) -> int:
        """Return those on the cluster; none for whoever may not describe it."""
        if not self.may_cluster(Operation.DESCRIBE):
            return 0
        return self.bits(Resource.CLUSTER, CLUSTER_NAME)

    def topic_name(self, name: str | None, topic_id: bytes = ZERO_TOPIC_ID) -> str | None:
        """Return the name of a topic that a request names or has the id of; None if unknown."""
        if topic_id == ZERO_TOPIC_ID:
            return name or ""
        topic = self._broker.image.topic_by_id(TopicId(topic_id))
        if topic is None:
            self.has_unknown = True
            return None
        return topic.name

    def delegation_token(self, token_id: str) -> DelegationToken | None:
        return self._broker.image.delegation_token(token_id)

    def has_topic(self, name: str) -> bool:
        return name in self._broker.image.state.topics

    def topic_names(self) -> Iterable[str]:
        """Return the names of all topics."""
        return self._broker.image.state.topics


def divide(rows: Iterable[T], is_allowed: Callable[[T], bool]) -> Slices[tuple[list[T], list[T]]]:
    """Return the rows that are allowed, and those that are not."""
    allowed: list[T] = []
    denied: list[T] = []
    current = Slice()
    for row in rows:
        (allowed if is_allowed(row) else denied).append(row)
        if current.spend(CHECK_UNITS):
            yield
    return allowed, denied


def each(rows: Iterable[T], look: Callable[[T], object], units: int = CHECK_UNITS) -> Slices[None]:
    """Do something for every row."""
    current = Slice()
    for row in rows:
        look(row)
        if current.spend(units):
            yield


def take_out(
    check: Check,
    request: Request,
    fields: tuple[str, str],
    is_allowed: Callable[[Any], bool],
    resource: Resource = Resource.TOPIC,
) -> "Slices[Outcome]":
    """Take the rows that are not allowed out of a request, for a response with their errors.

    `fields` are the names of the lists in the request and the response. If nothing is left, the
    handler has nothing to do: to some an empty list means everything.
    """
    asked, answered = fields
    allowed, denied = yield from divide(getattr(request.body, asked) or (), is_allowed)
    if not denied:
        return None
    refusal = check.refusal(resource)
    body = copy.copy(request.body)
    setattr(body, asked, denied)
    failed: Any = yield from failed_rows(request, body, refusal.code, refusal.message)
    if not allowed:
        response: Message = _succeeded(failed)
        return response
    setattr(request.body, asked, allowed)

    def amend(response: Any) -> Any:
        # An error of the whole request is all that a client hears, as in Kafka.
        if getattr(response, "error_code", ErrorCode.NONE) == ErrorCode.NONE:
            getattr(response, answered).extend(getattr(failed, answered))
        return response

    return amend


def _succeeded(response: Any) -> Any:
    """Return a response whose rows have errors, not the whole."""
    if hasattr(response, "error_code"):
        response.error_code = ErrorCode.NONE
    if hasattr(response, "error_message"):
        response.error_message = None
    return response


def both(first: "Amend | None", second: "Amend | None") -> "Amend | None":
    """Return what does both, one after the other."""
    if first is None or second is None:
        return first or second
    before, after = first, second

    def amend(response: Any) -> Slices[Any]:
        response = yield from amended(before, response)
        response = yield from amended(after, response)
        return response

    return amend


def amended(amend: Amend, response: Any) -> Slices[Any]:
    """Return a response that is completed, whether or not that takes slices."""
    found = amend(response)
    if isinstance(found, GeneratorType):
        found = yield from found
    return found
