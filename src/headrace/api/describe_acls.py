"""DescribeAcls: API key 29, versions 1 to 3.

KIP-140, KIP-290 (prefixed patterns and filters that match, from 1). SECURITY_DISABLED without an
authorizer.

The work is in `security.acl_filters`.
"""

from collections.abc import Coroutine
from typing import Any, Final

from headrace.errors import ErrorCode
from headrace.loop.slices import Slice, Slices, in_slices
from headrace.metadata.image import Image
from headrace.metadata.state import AclPattern
from headrace.security.acl_filters import AclFilter, InvalidAcl
from headrace.server.broker import Broker
from headrace.server.request import Request
from headrace.wire.messages.describe_acls_response import (
    AclDescription,
    DescribeAclsResource,
    DescribeAclsResponse,
)

NO_AUTHORIZER: Final = "No Authorizer is configured on the broker"


def handle(
    broker: Broker, request: Request
) -> DescribeAclsResponse | Coroutine[Any, Any, DescribeAclsResponse]:
    if broker.authorizer is None:
        return DescribeAclsResponse(
            error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER
        )
    try:
        wanted = AclFilter.of(request.body)
    except InvalidAcl as error:
        return DescribeAclsResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=str(error))
    return in_slices(describe(broker.image, wanted))


def describe(image: Image, wanted: AclFilter) -> Slices[DescribeAclsResponse]:
    """Return the ACLs that match a filter, by pattern."""
    current = Slice()
    found = yield from wanted.find(image, current)
    resources: dict[AclPattern, DescribeAclsResource] = {}
    for acl in found:
        pattern = acl.pattern
        row = resources.get(pattern)
        if row is None:
            row = resources[pattern] = DescribeAclsResource(
                resource_type=pattern.resource_type,
                resource_name=pattern.name,
                pattern_type=pattern.pattern_type,
                acls=[],
            )
        row.acls.append(
            AclDescription(
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
        )
        if current.spend():
            yield
    return DescribeAclsResponse(error_message=None, resources=list(resources.values()))
