"""CreateAcls: API key 30, versions 1 to 3.

KIP-140, KIP-290. Each ACL is checked and has a result of its own; one that is there already is
created again without a change. SECURITY_DISABLED without an authorizer.

The work is in `security.acl_filters` and `metadata.rights`.
"""

from typing import Final

from headrace.errors import ErrorCode, KafkaError
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
NO_AUTHORIZER: Final = "No Authorizer is configured."


async def handle(broker: Broker, request: Request) -> CreateAclsResponse:
    body: CreateAclsRequest = request.body
    if broker.authorizer is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    results = []
    created: list[Acl] = []
    places: list[int] = []
    for place, row in enumerate(body.creations):
        result = AclCreationResult(error_message=None)
        results.append(result)
        try:
            created.append(acl_of(row))
            places.append(place)
        except InvalidAcl as error:
            result.error_code, result.error_message = ErrorCode.INVALID_REQUEST, str(error)
    changes = [AddAcls((acl,)) for acl in created]
    outcomes = await propose_each(broker, changes, TIMEOUT_MS, request)
    for place, outcome in zip(places, outcomes, strict=True):
        if outcome is not None:
            results[place].error_code = outcome.code
            results[place].error_message = outcome.message
    return CreateAclsResponse(results=results)
