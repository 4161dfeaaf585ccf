"""ACLs: who may do what with which resources (KIP-140, KIP-290)."""

from collections.abc import Sequence
from enum import IntEnum

import msgspec

from headrace.client.cluster import Cluster
from headrace.client.errors import raise_for
from headrace.wire.messages.create_acls_request import AclCreation, CreateAclsRequest
from headrace.wire.messages.create_acls_response import CreateAclsResponse
from headrace.wire.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from headrace.wire.messages.delete_acls_response import DeleteAclsResponse
from headrace.wire.messages.describe_acls_request import DescribeAclsRequest
from headrace.wire.messages.describe_acls_response import DescribeAclsResponse

_ANY = 1


class AclResource(IntEnum):
    """What ACLs are about, by Kafka's codes."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class AclOperation(IntEnum):
    """What can be allowed and denied, by Kafka's codes."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AccessRule(msgspec.Struct, frozen=True, kw_only=True):
    """One ACL."""

    principal: str
    """As `User:alice`; `User:*` is everybody."""
    operation: AclOperation
    resource: AclResource
    name: str
    """The resource's name, or the start of it if prefixed; `*` matches every resource."""
    is_prefixed: bool = False
    is_denied: bool = False
    host: str = "*"


async def create_acls(cluster: Cluster, rules: Sequence[AccessRule]) -> None:
    """Add ACLs; raise the first refusal. Those that are there already stay."""
    rows = [
        AclCreation(
            resource_type=rule.resource,
            resource_name=rule.name,
            resource_pattern_type=4 if rule.is_prefixed else 3,
            principal=rule.principal,
            host=rule.host,
            operation=rule.operation,
            permission_type=2 if rule.is_denied else 3,
        )
        for rule in rules
    ]
    answer = await cluster.ask(CreateAclsRequest(creations=rows), CreateAclsResponse)
    for rule, row in zip(rules, answer.results, strict=True):
        raise_for(row.error_code, row.error_message, f"the ACL of {rule.principal}")


async def describe_acls(cluster: Cluster, *, principal: str | None = None) -> list[AccessRule]:
    """Return all ACLs, or those of one principal."""
    body = DescribeAclsRequest(
        resource_type_filter=_ANY,
        resource_name_filter=None,
        pattern_type_filter=_ANY,
        principal_filter=principal,
        host_filter=None,
        operation=_ANY,
        permission_type=_ANY,
    )
    answer = await cluster.ask(body, DescribeAclsResponse, code_of=lambda answer: answer.error_code)
    raise_for(answer.error_code, answer.error_message, "the list of ACLs")
    return [
        AccessRule(
            principal=row.principal,
            operation=AclOperation(row.operation),
            resource=AclResource(resource.resource_type),
            name=resource.resource_name,
            is_prefixed=resource.pattern_type == 4,
            is_denied=row.permission_type == 2,
            host=row.host,
        )
        for resource in answer.resources
        for row in resource.acls
    ]


async def delete_acls(cluster: Cluster, rules: Sequence[AccessRule]) -> int:
    """Remove exactly these ACLs; return how many there were of them."""
    filters = [
        DeleteAclsFilter(
            resource_type_filter=rule.resource,
            resource_name_filter=rule.name,
            pattern_type_filter=4 if rule.is_prefixed else 3,
            principal_filter=rule.principal,
            host_filter=rule.host,
            operation=rule.operation,
            permission_type=2 if rule.is_denied else 3,
        )
        for rule in rules
    ]
    answer = await cluster.ask(DeleteAclsRequest(filters=filters), DeleteAclsResponse)
    for rule, result in zip(rules, answer.filter_results, strict=True):
        raise_for(result.error_code, result.error_message, f"the ACL of {rule.principal}")
        for row in result.matching_acls:
            raise_for(row.error_code, row.error_message, f"the ACL of {rule.principal}")
    return sum(len(result.matching_acls) for result in answer.filter_results)
