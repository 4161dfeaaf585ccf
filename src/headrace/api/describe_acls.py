"""DescribeAcls: API key 29, versions 1 to 3.

KIP-140, KIP-290 (prefixed patterns and filters that match, from 1). SECURITY_DISABLED without an
authorizer.

The work is in `security.acl_filters`.
"""

from typing import Final

from headrace.errors import ErrorCode
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


def handle(broker: Broker, request: Request) -> DescribeAclsResponse:
    if broker.authorizer is None:
        return DescribeAclsResponse(
            error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER
        )
    try:
        wanted = AclFilter.of(request.body)
    except InvalidAcl as error:
        return DescribeAclsResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=str(error))
    resources: dict[AclPattern, DescribeAclsResource] = {}
    for acl in wanted.find(broker.image):
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
    return DescribeAclsResponse(error_message=None, resources=list(resources.values()))
