"""DescribeUserScramCredentials: API key 50, version 0.

KIP-554. Lists users with their mechanisms and iterations, never a salt or a key; all users if the
request names none.
"""

from collections import Counter

from headrace.errors import ErrorCode
from headrace.metadata.image import Image
from headrace.server.broker import Broker
from headrace.server.request import Request
from headrace.wire.messages.describe_user_scram_credentials_request import (
    DescribeUserScramCredentialsRequest,
)
from headrace.wire.messages.describe_user_scram_credentials_response import (
    CredentialInfo,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


def handle(broker: Broker, request: Request) -> DescribeUserScramCredentialsResponse:
    body: DescribeUserScramCredentialsRequest = request.body
    infos = _infos(broker.image)
    named = Counter(row.name for row in body.users or ())
    results = [_result(name, count, infos) for name, count in named.items()]
    if not named:
        results = [_result(name, 1, infos) for name in infos]
    return DescribeUserScramCredentialsResponse(error_message=None, results=results)


def _infos(image: Image) -> dict[str, list[CredentialInfo]]:
    found: dict[str, list[CredentialInfo]] = {}
    for (name, mechanism), row in image.state.scram_credentials.items():
        info = CredentialInfo(mechanism=mechanism, iterations=row.iterations)
        found.setdefault(name, []).append(info)
    return found


def _result(
    name: str, count: int, infos: dict[str, list[CredentialInfo]]
) -> DescribeUserScramCredentialsResult:
    result = DescribeUserScramCredentialsResult(user=name, error_message=None)
    if count > 1:
        result.error_code = ErrorCode.DUPLICATE_RESOURCE
        result.error_message = (
            f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        )
    elif name not in infos:
        result.error_code = ErrorCode.RESOURCE_NOT_FOUND
        result.error_message = "Attempt to describe a user credential that does not exist: " + name
    else:
        result.credential_infos = infos[name]
    return result
