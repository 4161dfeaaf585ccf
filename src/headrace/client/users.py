"""Users of SCRAM: their credentials are in the metadata log (KIP-554).

The password stays here: a broker gets what follows from it and a salt.
"""

import secrets
from collections.abc import Sequence
from typing import Final

from headrace.client.cluster import Cluster
from headrace.client.errors import raise_for
from headrace.errors import ErrorCode
from headrace.sasl import scram
from headrace.wire.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from headrace.wire.messages.alter_user_scram_credentials_response import (
    AlterUserScramCredentialsResponse,
)
from headrace.wire.messages.describe_user_scram_credentials_request import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from headrace.wire.messages.describe_user_scram_credentials_response import (
    DescribeUserScramCredentialsResponse,
)

SALT_BYTES: Final = 24
ITERATIONS: Final = 8192
MECHANISMS: Final = tuple(scram.MECHANISMS)


async def set_password(
    cluster: Cluster, user: str, password: str, mechanisms: Sequence[str] = MECHANISMS
) -> None:
    """Add a user, or give one another password, for these mechanisms."""
    rows = []
    for name in mechanisms:
        mechanism, salt = scram.MECHANISMS[name], secrets.token_bytes(SALT_BYTES)
        rows.append(
            ScramCredentialUpsertion(
                name=user,
                mechanism=mechanism.type_id,
                iterations=ITERATIONS,
                salt=salt,
                salted_password=scram.salted_password(mechanism, password, salt, ITERATIONS),
            )
        )
    await _alter(cluster, AlterUserScramCredentialsRequest(upsertions=rows))


async def remove_user(cluster: Cluster, user: str) -> None:
    """Remove a user with all its mechanisms; KafkaError if there is none."""
    found = await _describe(cluster, user)
    rows = [
        ScramCredentialDeletion(name=user, mechanism=scram.MECHANISMS[name].type_id)
        for name in found[user]
    ]
    await _alter(cluster, AlterUserScramCredentialsRequest(deletions=rows))


async def list_users(cluster: Cluster) -> dict[str, dict[str, int]]:
    """Return the iterations of each mechanism of each user."""
    return await _describe(cluster, None)


async def _alter(cluster: Cluster, body: AlterUserScramCredentialsRequest) -> None:
    answer = await cluster.ask(body, AlterUserScramCredentialsResponse)
    for row in answer.results:
        raise_for(row.error_code, row.error_message, f"user {row.user!r}")


async def _describe(cluster: Cluster, user: str | None) -> dict[str, dict[str, int]]:
    names = None if user is None else [UserName(name=user)]
    answer = await cluster.ask(
        DescribeUserScramCredentialsRequest(users=names),
        DescribeUserScramCredentialsResponse,
        code_of=lambda answer: answer.error_code,
    )
    raise_for(answer.error_code, answer.error_message, "the list of users")
    known = {mechanism.type_id: name for name, mechanism in scram.MECHANISMS.items()}
    found = {}
    for row in answer.results:
        if row.error_code != ErrorCode.NONE:
            raise_for(row.error_code, row.error_message, f"user {row.user!r}")
        infos = {
            known[info.mechanism]: info.iterations
            for info in row.credential_infos
            if info.mechanism in known
        }
        found[row.user] = infos
    return found
