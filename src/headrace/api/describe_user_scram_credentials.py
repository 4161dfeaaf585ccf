"""DescribeUserScramCredentials: API key 50, version 0.

KIP-554. Lists users with their mechanisms and iterations, never a salt or a key; all users if the
request names none.
"""

from collections.abc import Coroutine
from typing import Any, Final

from headrace.errors import ErrorCode
from headrace.loop.slices import Slice, Slices, in_slices
from headrace.metadata.image import Image
from headrace.sasl import scram
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

ROW_UNITS: Final = 2
"""How long a row takes, as `loop.slices` counts it."""
_MECHANISMS: Final = sorted(mechanism.type_id for mechanism in scram.MECHANISMS.values())


def handle(
    broker: Broker, request: Request
) -> (
    DescribeUserScramCredentialsResponse | Coroutine[Any, Any, DescribeUserScramCredentialsResponse]
):
    return in_slices(describe(broker.image, request.body))


def describe(
    image: Image, body: DescribeUserScramCredentialsRequest
) -> Slices[DescribeUserScramCredentialsResponse]:
    """Return the mechanisms of the users that are named, or of all."""
    named: dict[str, int] = {}
    current = Slice()
    for row in body.users or ():
        named[row.name] = named.get(row.name, 0) + 1
        if current.spend():
            yield
    if not body.users:
        for name, _ in tuple(image.state.scram_credentials):  # they come and go between the slices
            named[name] = 1
            if current.spend():
                yield
    results = []
    for name, count in named.items():
        result = _result(image, name, count)
        if body.users or result.credential_infos:  # else it is gone in the meantime
            results.append(result)
        if current.spend(ROW_UNITS):
            yield
    return DescribeUserScramCredentialsResponse(error_message=None, results=results)


def _result(image: Image, name: str, count: int) -> DescribeUserScramCredentialsResult:
    result = DescribeUserScramCredentialsResult(user=name, error_message=None)
    if count > 1:
        result.error_code = ErrorCode.DUPLICATE_RESOURCE
        result.error_message = (
            f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        )
        return result
    result.credential_infos = [
        CredentialInfo(mechanism=mechanism, iterations=row.iterations)
        for mechanism in _MECHANISMS
        if (row := image.scram_credential(name, mechanism)) is not None
    ]
    if not result.credential_infos:
        result.error_code = ErrorCode.RESOURCE_NOT_FOUND
        result.error_message = "Attempt to describe a user credential that does not exist: " + name
    return result
