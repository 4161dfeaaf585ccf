"""What requests about delegation tokens need, beside the tokens themselves (KIP-48, KIP-373)."""

from typing import Any, Final

from headrace.loop.slices import Slice, Slices
from headrace.security.acls import Operation, Resource
from headrace.security.delegation_tokens import is_about
from headrace.server.request import Request
from headrace.server.rights.checks import CHECK_UNITS, CODES, Amend, Check
from headrace.server.token_requests import may_ask, not_created, owner_of
from headrace.wire.schema import Message

SHOWN_UNITS: Final = 2 * CHECK_UNITS
"""How long the decision about a token takes, which asks for two rights."""
RENEWERS_PER_UNIT: Final = 64
"""How many renewers are compared in the time of a unit."""


def create(check: Check, request: Request) -> "Message | None":
    """CREATE_TOKENS on a user whose token it is to be, unless that is the client itself."""
    requester = request.peer.principal
    owner = owner_of(request.body, requester)
    is_refused_anyhow = not may_ask(request.peer)
    if is_refused_anyhow or owner == requester:
        return None
    if check.may(Operation.CREATE_TOKENS, Resource.USER, owner):
        return None
    check.refusal(Resource.USER)
    return not_created(request, CODES[Resource.USER])


def describe(check: Check, request: Request) -> "Amend":
    """Nothing for one's own tokens; DESCRIBE on others, or DESCRIBE_TOKENS on their owner."""
    principal = request.peer.principal

    def is_shown(row: Any) -> bool:
        token = check.delegation_token(row.token_id)
        return token is not None and (
            is_about(token, principal)
            or check.may(Operation.DESCRIBE, Resource.DELEGATION_TOKEN, token.token_id)
            or check.may(Operation.DESCRIBE_TOKENS, Resource.USER, token.owner)
        )

    def amend(response: Any) -> Slices[Any]:
        shown: list[Any] = []
        rows = response.tokens
        rows.reverse()
        current = Slice()
        while rows:  # freed one by one: all at once takes long, too
            row = rows.pop()
            if is_shown(row):
                shown.append(row)
            if current.spend(SHOWN_UNITS + len(row.renewers) // RENEWERS_PER_UNIT):
                yield
        response.tokens = shown
        return response

    return amend
