"""Rights of a node that has an audit: what is denied is said there, and nothing else costs."""

from typing import Final

from headrace.errors import KafkaError
from headrace.security.acls import Operation, Resource
from headrace.security.audit import NAMES_MAX
from headrace.security.authorizer import Authorizer
from headrace.server.broker import Broker
from headrace.server.request import Request
from headrace.server.rights.checks import Check

KEPT_MAX: Final = 100
"""How many of the answers "no" are remembered until one becomes a refusal."""


class AuditedCheck(Check):
    """The rights of the client of one request, with a memory of what it may not do.

    A "no" alone is no denial: lists leave out what a client may not see. A refusal is one.
    """

    __slots__ = ("_denied", "_request")

    def __init__(self, authorizer: Authorizer, broker: Broker, request: Request) -> None:
        super().__init__(authorizer, broker, request)
        self._request = request
        self._denied: list[tuple[Resource, Operation, str]] | None = None

    def may(self, operation: Operation, resource: Resource, name: str) -> bool:
        """Return whether the client may do something with a resource."""
        if self._authorizer.allows(self._principal, self._host, operation, resource, name):
            return True
        if self._denied is None:
            self._denied = []
        if len(self._denied) < KEPT_MAX:
            self._denied.append((resource, operation, name))
        return False

    def refusal(self, resource: Resource) -> KafkaError:
        """Count a refusal, say it, and return it as an error."""
        error = super().refusal(resource)
        denied = [each for each in self._denied or () if each[0] == resource]
        self._denied = None
        audit = self._broker.audit
        assert audit is not None, "rights are audited where there is an audit"
        audit.denied(
            self._request,
            ",".join(dict.fromkeys(operation.name for _, operation, _ in denied)),
            resource.name.lower(),
            list(dict.fromkeys(name for _, _, name in denied))[:NAMES_MAX],
            error.code,
        )
        return error
