"""Delegation tokens: what requests about very many of them cost, and how long they hold the loop.

Every user may send them, and may have made the tokens.
"""

from types import SimpleNamespace
from typing import Any

import pytest

from headrace.api.describe_delegation_token import describe
from headrace.loop.slices import run_whole
from headrace.metadata.image import Image
from headrace.metadata.state import DelegationToken
from headrace.security.authorizer import Authorizer
from headrace.security.delegation_tokens import DelegationTokens
from headrace.server.request import Request
from headrace.server.rights.checks import Check, amended
from headrace.server.rights.table import RIGHTS
from headrace.wire import ApiKey
from headrace.wire.messages.describe_delegation_token_request import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from tests.growth.slices import assert_slices_are_short, total_steps
from tests.growth.steps import assert_stays_flat

MANY = 4000
VERSION = 3


def token(
    number: int, renewers: tuple[str, ...] = (), owner: str = "User:ann", expiry_ms: int = 2**62
) -> DelegationToken:
    return DelegationToken(f"t{number}", owner, owner, renewers, 0, 2**62, expiry_ms, b"")


def holding(count: int, renewers: tuple[str, ...] = ()) -> Image:
    image = Image()
    for number in range(count):
        image.state.delegation_tokens[f"t{number}"] = token(number, renewers)
    return image


def described(image: Image, owners: int | None) -> Any:
    """Return the slices in which tokens are described for so many owners, who have none."""
    tokens = DelegationTokens("secret", lambda: image, lambda: 0)
    rows = None
    if owners is not None:
        rows = [DescribeDelegationTokenOwner("User", f"u{number}") for number in range(owners)]
    body = DescribeDelegationTokenRequest(owners=rows)
    return describe(tokens, tuple(image.state.delegation_tokens.values()), body, VERSION)


@pytest.mark.parametrize("owners", [None, MANY, 10 * MANY])
@pytest.mark.parametrize("renewers", [0, 100])
def test_no_description_holds_the_loop(owners: int | None, renewers: int) -> None:
    image = holding(MANY, tuple(f"User:r{number}" for number in range(renewers)))
    response = assert_slices_are_short(described(image, owners))
    assert len(response.tokens) == (MANY if owners is None else 0)


def test_a_token_costs_the_same_however_many_owners_are_named() -> None:
    def for_each_token(owners: int) -> int:
        few, many = holding(10), holding(110)
        return total_steps(described(many, owners)) - total_steps(described(few, owners))

    assert_stays_flat(for_each_token, 100)


def test_tokens_of_owner_requester_and_renewers_are_described() -> None:
    image = Image()
    known = image.state.delegation_tokens
    for number, (owner, renewers) in enumerate(
        (("User:ann", ()), ("User:bob", ("User:eve", "User:ann")), ("User:bob", ("User:eve",)))
    ):
        known[f"t{number}"] = token(number, renewers, owner)
    tokens = DelegationTokens("secret", lambda: image, lambda: 0)
    for named, found in (("ann", ["t0", "t1"]), ("bob", ["t1", "t2"]), ("zoe", [])):
        body = DescribeDelegationTokenRequest(owners=[DescribeDelegationTokenOwner("User", named)])
        response = run_whole(describe(tokens, known.values(), body, VERSION))
        assert [row.token_id for row in response.tokens] == found


class Held(dict[str, DelegationToken]):
    """Tokens, none of which may be gone through: C does that without steps."""

    def keys(self) -> Any:
        raise AssertionError("all tokens are gone through")

    __iter__ = values = items = keys


def test_tokens_are_not_gone_through_for_each_that_is_looked_for() -> None:
    """An HMAC that no token has is asked for as often as somebody likes."""
    image = holding(MANY)
    tokens = DelegationTokens("secret", lambda: image, lambda: 0)
    while not tokens.index():
        pass
    known = image.state.delegation_tokens = Held(image.state.delegation_tokens)
    new = token(MANY)
    known[new.token_id] = new
    tokens.on_changed(new.token_id)
    assert tokens.index()
    assert tokens.find(tokens.hmac_of(new.token_id)) == new
    del known["t0"]
    tokens.on_changed("t0")
    assert tokens.index()
    assert tokens.find(tokens.hmac_of("t0")) is None
    assert tokens.find(b"of no token") is None


def test_nor_is_the_loop_held_while_others_tokens_are_taken_out() -> None:
    image = holding(MANY, tuple(f"User:r{number}" for number in range(100)))
    own = token(MANY, owner="User:a")
    image.state.delegation_tokens[own.token_id] = own
    response = run_whole(described(image, None))
    assert len(response.tokens) == MANY + 1
    peer: Any = SimpleNamespace(principal="User:a", host="10.0.0.1")
    body = DescribeDelegationTokenRequest(owners=None)
    request = Request(peer, body.API_KEY, VERSION, 1, "c", body, 100, 0)
    broker: Any = SimpleNamespace(image=image)
    check = Check(Authorizer(lambda: image), broker, request)
    amend: Any = RIGHTS[ApiKey.DESCRIBE_DELEGATION_TOKEN](check, request)
    response = assert_slices_are_short(amended(amend, response))
    assert [row.token_id for row in response.tokens] == [own.token_id]
