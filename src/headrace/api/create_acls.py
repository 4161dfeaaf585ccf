"""CreateAcls: API key 30, versions 1 to 3.

KIP-140, KIP-290. Each ACL is checked and has a result of its own; one that is there already is
created again without a change. SECURITY_DISABLED without an authorizer.

The work is in `security.acl_filters` and `metadata.rights`.
"""

from typing import Final

from headrace.errors import ErrorCode, KafkaError
from headrace.loop.slices import Slice, Slices, finish
from headrace.metadata.ddl import AddAcls
from headrace.metadata.state import Acl
from headrace.security.acl_filters import InvalidAcl, acl_of
from headrace.server.broker import Broker
from headrace.server.proposals import propose_each
from headrace.server.request import Request
from headrace.wire.messages.create_acls_request import CreateAclsRequest
from headrace.wire.messages.create_acls_response import AclCreationResult, CreateAclsResponse

TIMEOUT_MS: Final = 30_000
"""How long a change may take; the request does not say."""
ROW_UNITS: Final = 3
"""How long the check of an ACL takes, as `loop.slices` counts it."""
NO_AUTHORIZER: Final = "No Authorizer is configured."


async def handle(broker: Broker, request: Request) -> CreateAclsResponse:
    body: CreateAclsRequest = request.body
    if broker.authorizer is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    results: list[AclCreationResult] = []
    created = await finish(plan(body, results))
    changes = [AddAcls((acl,)) for acl, _ in created]
    outcomes = await propose_each(broker, changes, TIMEOUT_MS, request)
    for (_, result), outcome in zip(created, outcomes, strict=True):
        if outcome is not None:
            result.error_code, result.error_message = outcome.code, outcome.message
    return CreateAclsResponse(results=results)


def plan(
    body: CreateAclsRequest, results: list[AclCreationResult]
) -> Slices[list[tuple[Acl, AclCreationResult]]]:
    """Return the ACLs that can be created, with their rows; `results` gets all rows."""
    created: list[tuple[Acl, AclCreationResult]] = []
    current = Slice()
    for row in body.creations:
        result = AclCreationResult(error_message=None)
        results.append(result)
        try:
            created.append((acl_of(row), result))
        except InvalidAcl as error:
            result.error_code, result.error_message = ErrorCode.INVALID_REQUEST, str(error)
        if current.spend(ROW_UNITS):
            yield
    return created
