"""ACLs, logins and delegation tokens: each counts for the next request of the connection.

For a listener with SASL whose users may do what no ACL is about.
"""

from typing import Final

from headrace.errors import ErrorCode
from headrace.wire import ApiKey
from headrace.wire.messages.create_acls_request import AclCreation, CreateAclsRequest
from headrace.wire.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from headrace.wire.messages.describe_acls_request import DescribeAclsRequest
from headrace.wire.messages.describe_delegation_token_response import (
    DescribeDelegationTokenResponse,
)
from headrace.wire.messages.sasl_authenticate_request import SaslAuthenticateRequest
from headrace.wire.messages.sasl_handshake_request import SaslHandshakeRequest
from headrace.wire.schema import Message
from tests.broker.delegation_token_play import create as create_token
from tests.broker.delegation_token_play import describe as describe_tokens
from tests.broker.delegation_token_play import expire, renew
from tests.differential.conversation import Conversation
from tests.differential.pairs.pair import BEHIND, TIMES, Pair
from tests.differential.requests import LATEST, creatable, create, list_offsets, metadata

TOPIC, LITERAL, ANY, DENY, DESCRIBE = 2, 3, 1, 2, 8
USER: Final = "ann"
MINUTE_MS: Final = 60_000


def log_in() -> list[Message]:
    """Return the requests with which a client logs in."""
    token = f"\0{USER}\0{USER}-secret".encode()
    return [SaslHandshakeRequest(mechanism="PLAIN"), SaslAuthenticateRequest(auth_bytes=token)]


def order_of_acls(talk: Conversation) -> None:
    """An ACL is described, and counts, as soon as it is created, and no more once it is deleted."""
    *_, created = talk.quietly_at_once([*log_in(), create(creatable(talk.name("t")))])
    assert created.topics[0].error_code == 0
    topic = talk.settled(talk.name("t"))
    acl = AclCreation(
        resource_type=TOPIC,
        resource_name=topic.name,
        resource_pattern_type=LITERAL,
        principal=f"User:{USER}",
        host="*",
        operation=DESCRIBE,
        permission_type=DENY,
    )
    described = DescribeAclsRequest(
        resource_type_filter=TOPIC,
        resource_name_filter=topic.name,
        pattern_type_filter=LITERAL,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    unwanted = DeleteAclsFilter(TOPIC, topic.name, LITERAL, None, None, ANY, ANY)
    for _ in range(TIMES):
        before, _, there, denied, hidden, deleted, gone, after = talk.quietly_at_once(
            [
                list_offsets(topic, (0, LATEST)),
                CreateAclsRequest(creations=[acl]),
                described,
                list_offsets(topic, (0, LATEST)),
                metadata(topic.name),
                DeleteAclsRequest(filters=[unwanted]),
                described,
                list_offsets(topic, (0, LATEST)),
            ]
        )
        assert len(there.resources) == len(deleted.filter_results[0].matching_acls) == 1
        assert gone.resources == []
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        codes = [each.topics[0].partitions[0].error_code for each in (before, denied, after)]
        assert codes == [0, code, 0]
        assert hidden.topics[0].error_code == code


def order_of_delegation_tokens(talk: Conversation) -> None:
    """A token is described once created, with its end once renewed, and no more once ended."""
    for turn in range(TIMES):
        logging_in = [] if turn else log_in()
        *logged_in, made, there = talk.quietly_at_once(
            [*logging_in, create_token(lifetime_ms=MINUTE_MS), describe_tokens([USER])]
        )
        assert [answer.error_code for answer in (*logged_in, made)] == [0] * len(logging_in) + [0]
        assert made.token_id in ends_of(there)
        token = bytes(made.hmac)
        renewed, prolonged, ended, left, refused = talk.quietly_at_once(
            [
                renew(token, MINUTE_MS // 2),
                describe_tokens([USER]),
                expire(token),
                describe_tokens([USER]),
                renew(token),
            ]
        )
        assert ends_of(prolonged)[made.token_id] == renewed.expiry_timestamp_ms
        assert ended.error_code == 0
        assert made.token_id not in ends_of(left)
        assert refused.error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def ends_of(described: DescribeDelegationTokenResponse) -> dict[str, int]:
    """Return when each token that is described ends."""
    return {row.token_id: row.expiry_timestamp for row in described.tokens}


SASL: Final = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
PAIRS: Final = (
    Pair(order_of_acls, (*SASL, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS), BEHIND),
    Pair(
        order_of_delegation_tokens,
        (
            ApiKey.CREATE_DELEGATION_TOKEN,
            ApiKey.RENEW_DELEGATION_TOKEN,
            ApiKey.EXPIRE_DELEGATION_TOKEN,
        ),
        BEHIND,
    ),
)
