"""AlterUserScramCredentials: API key 51, version 0.

KIP-554. Clients send the salted password, never the password; what is kept can check a proof and
not make one. A user whose row cannot be done, or who is named twice with a mechanism, is refused as
a whole; other users are not.

The work is in `metadata.rights`.
"""

from collections.abc import Mapping
from typing import Final

from headrace.errors import ErrorCode, KafkaError
from headrace.loop.slices import Slice, Slices, finish
from headrace.metadata.ddl import Ddl, RemoveScramCredential, SetScramCredential
from headrace.metadata.image import Image
from headrace.metadata.state import ScramCredential
from headrace.sasl import scram
from headrace.server.broker import Broker
from headrace.server.proposals import propose_each
from headrace.server.request import Request
from headrace.wire.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from headrace.wire.messages.alter_user_scram_credentials_response import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)

_BY_ID: Final = {mechanism.type_id: mechanism for mechanism in scram.MECHANISMS.values()}
TIMEOUT_MS: Final = 30_000
"""How long changes may take; the request does not say."""
ROW_UNITS: Final = 5
"""How long the keys of a row take, as `loop.slices` counts it."""


async def handle(broker: Broker, request: Request) -> AlterUserScramCredentialsResponse:
    problems: dict[str, KafkaError | None] = {}
    wanted = await finish(plan(broker.image, request.body, problems))
    outcomes = await propose_each(broker, [change for _, change in wanted], TIMEOUT_MS, request)
    for (name, _), outcome in zip(wanted, outcomes, strict=True):
        problems[name] = problems[name] or outcome
    return AlterUserScramCredentialsResponse(results=await finish(_results(problems)))


def plan(
    image: Image, body: AlterUserScramCredentialsRequest, problems: dict[str, KafkaError | None]
) -> Slices[list[tuple[str, Ddl]]]:
    """Return the changes, each with its user; `problems` gets all users, and what they lack."""
    rows: list[ScramCredentialDeletion | ScramCredentialUpsertion] = [
        *body.deletions,
        *body.upsertions,
    ]
    current = Slice()
    repeated: dict[tuple[str, int], int] = {}
    for row in rows:
        key = row.name, row.mechanism
        repeated[key] = repeated.get(key, 0) + 1
        problems[row.name] = None
        if current.spend():
            yield
    changes: list[tuple[str, Ddl]] = []
    for row in rows:
        try:
            if repeated[row.name, row.mechanism] > 1:
                raise KafkaError(
                    ErrorCode.DUPLICATE_RESOURCE,
                    "A user credential cannot be altered twice in the same request",
                )
            changes.append((row.name, _change(image, row)))
        except KafkaError as error:
            problems[row.name] = problems[row.name] or error
        if current.spend(ROW_UNITS):
            yield
    return [(name, change) for name, change in changes if problems[name] is None]


def _results(
    problems: Mapping[str, KafkaError | None],
) -> Slices[list[AlterUserScramCredentialsResult]]:
    results: list[AlterUserScramCredentialsResult] = []
    current = Slice()
    for name, problem in problems.items():
        results.append(
            AlterUserScramCredentialsResult(
                user=name,
                error_code=ErrorCode.NONE if problem is None else problem.code,
                error_message=None if problem is None else problem.message,
            )
        )
        if current.spend():
            yield
    return results


def _change(image: Image, row: ScramCredentialDeletion | ScramCredentialUpsertion) -> Ddl:
    if not row.name:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    mechanism = _BY_ID.get(row.mechanism)
    if mechanism is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(row, ScramCredentialDeletion):
        if image.scram_credential(row.name, row.mechanism) is None:
            raise KafkaError(
                ErrorCode.RESOURCE_NOT_FOUND,
                "Attempt to delete a user credential that does not exist",
            )
        return RemoveScramCredential(row.name, row.mechanism)
    if not scram.ITERATIONS_MIN <= row.iterations <= scram.ITERATIONS_MAX:
        low = row.iterations < scram.ITERATIONS_MIN
        raise KafkaError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL, f"Too {'few' if low else 'many'} iterations"
        )
    salt, salted = bytes(row.salt), bytes(row.salted_password)
    if not salt or not salted or len(salt) > scram.SALT_BYTES_MAX:
        raise KafkaError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL, "salt and salted password must not be empty or long"
        )
    made = scram.credential_of(mechanism, salted, salt, row.iterations)
    credential = ScramCredential(made.salt, made.stored_key, made.server_key, made.iterations)
    return SetScramCredential(row.name, row.mechanism, credential)
