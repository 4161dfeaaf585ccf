"""What requests about the cluster, its nodes and configs need."""

from functools import partial
from typing import Any, Final

from headrace.loop.slices import Slices
from headrace.metadata.state import ResourceType
from headrace.security.acls import CLUSTER_NAME, Operation, Resource
from headrace.server.request import Request
from headrace.server.rights.checks import (
    Amend,
    Check,
    Outcome,
    Rule,
    amended,
    both,
    take_out,
)
from headrace.wire.schema import Message

_OF_CONFIGS: Final = {ResourceType.TOPIC: Resource.TOPIC, ResourceType.GROUP: Resource.GROUP}
"""Resources whose configs are their own; those of others are the cluster's."""


def nobody_asks(check: Check, request: Request) -> None:
    """Nothing: everybody may."""


def needs(operation: Operation) -> Rule:
    """Return the rule of requests that need an operation on the cluster, and nothing else."""

    def rule(check: Check, request: Request) -> None:
        check.require_cluster(operation)

    return rule


def describe_cluster(check: Check, request: Request) -> "Amend | None":
    """Nothing, but what is shown of operations is the client's own."""
    if not request.body.include_cluster_authorized_operations:
        return None

    def amend(response: Any) -> Any:
        response.cluster_authorized_operations = check.cluster_bits()
        return response

    return amend


def configs(operation: Operation, answered: str) -> Rule:
    """Return the rule of requests about configs: an operation on each resource."""

    def rule(check: Check, request: Request) -> "Slices[Outcome]":
        outcome: Amend | None = None
        for resource in (Resource.CLUSTER, Resource.TOPIC, Resource.GROUP):
            may = partial(_may_configure, check, operation, resource)
            found = yield from take_out(check, request, ("resources", answered), may, resource)
            if isinstance(found, Message):
                # Nothing is left, and what was taken out before is to be told as well.
                if outcome is None:
                    return found
                response: Message = yield from amended(outcome, found)
                return response
            outcome = both(outcome, found)
        return outcome

    return rule


def _may_configure(check: Check, operation: Operation, resource: Resource, row: Any) -> bool:
    """Return whether a row may be asked for, as far as one type of resource is concerned."""
    if _OF_CONFIGS.get(row.resource_type, Resource.CLUSTER) != resource:
        return True
    name = CLUSTER_NAME if resource is Resource.CLUSTER else row.resource_name
    return check.may(operation, resource, name)
