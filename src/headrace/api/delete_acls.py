"""DeleteAcls: API key 31, versions 1 to 3.

KIP-140, KIP-290. Every ACL that a filter matches is removed and listed. SECURITY_DISABLED without
an authorizer.

The work is in `security.acl_filters` and `metadata.rights`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from headrace.errors import ErrorCode, KafkaError
from headrace.loop.slices import Slice, Slices, finish
from headrace.metadata.ddl import RemoveAcls
from headrace.metadata.image import Image
from headrace.metadata.state import Acl
from headrace.security.acl_filters import AclFilter, InvalidAcl
from headrace.server.broker import Broker
from headrace.server.proposals import propose_each
from headrace.server.request import Request
from headrace.wire.messages.delete_acls_request import DeleteAclsRequest
from headrace.wire.messages.delete_acls_response import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsResponse,
)

TIMEOUT_MS: Final = 30_000
"""How long a change may take; the request does not say."""
NO_AUTHORIZER: Final = "No Authorizer is configured."


async def handle(broker: Broker, request: Request) -> DeleteAclsResponse:
    body: DeleteAclsRequest = request.body
    if broker.authorizer is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    results: list[DeleteAclsFilterResult] = []
    unwanted = await finish(find(broker.image, body, results))
    changes = [RemoveAcls((acl,)) for acl in unwanted]
    outcomes = await propose_each(broker, changes, TIMEOUT_MS, request)
    await finish(_tell(unwanted, outcomes))
    return DeleteAclsResponse(filter_results=results)


def find(
    image: Image, body: DeleteAclsRequest, results: list[DeleteAclsFilterResult]
) -> Slices[dict[Acl, list[DeleteAclsMatchingAcl]]]:
    """Return the ACLs that filters match, each with its rows; `results` gets all rows."""
    unwanted: dict[Acl, list[DeleteAclsMatchingAcl]] = {}
    current = Slice()
    for row in body.filters:
        result = DeleteAclsFilterResult(error_message=None, matching_acls=[])
        results.append(result)
        if current.spend():
            yield
        try:
            wanted = AclFilter.of(row)
        except InvalidAcl as error:
            result.error_code, result.error_message = ErrorCode.INVALID_REQUEST, str(error)
            continue
        found = yield from wanted.find(image, current)
        for acl in found:
            matching = _matching(acl)
            result.matching_acls.append(matching)
            unwanted.setdefault(acl, []).append(matching)
            if current.spend():
                yield
    return unwanted


def _tell(
    unwanted: Mapping[Acl, Iterable[DeleteAclsMatchingAcl]],
    outcomes: Sequence[KafkaError | None],
) -> Slices[None]:
    """Put errors into the rows of the ACLs that could not be removed."""
    current = Slice()
    for rows, outcome in zip(unwanted.values(), outcomes, strict=True):
        if outcome is not None:
            for matching in rows:
                matching.error_code, matching.error_message = outcome.code, outcome.message
        if current.spend():
            yield


def _matching(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=acl.pattern.resource_type,
        resource_name=acl.pattern.name,
        pattern_type=acl.pattern.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
