"""SCRAM credentials: a description shows what was set or removed before it."""

from typing import Final

from headrace.errors import ErrorCode
from headrace.wire import ApiKey
from headrace.wire.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from headrace.wire.messages.describe_user_scram_credentials_request import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from tests.differential.conversation import Conversation
from tests.differential.pairs.pair import BEHIND, TIMES, Pair

SHA_512: Final = 2


def order_of_scram_credentials(talk: Conversation) -> None:
    """A user can be described once set, and is unknown once removed."""
    for turn in range(TIMES):
        name = f"user-{turn}"
        put = ScramCredentialUpsertion(name, SHA_512, 4096, b"salt", b"p" * 64)
        describe = DescribeUserScramCredentialsRequest([UserName(name)])
        _, shown, _, gone = talk.ask_at_once(
            f"credentials {turn}",
            [
                AlterUserScramCredentialsRequest(upsertions=[put]),
                describe,
                AlterUserScramCredentialsRequest(
                    deletions=[ScramCredentialDeletion(name, SHA_512)]
                ),
                describe,
            ],
        )
        assert [row.mechanism for row in shown.results[0].credential_infos] == [SHA_512]
        assert gone.results[0].error_code == ErrorCode.RESOURCE_NOT_FOUND


PAIRS: Final = (Pair(order_of_scram_credentials, (ApiKey.ALTER_USER_SCRAM_CREDENTIALS,), BEHIND),)
