"""Tokens that ended long ago are forgotten, by one entry of the controller."""

from headrace.cluster.expiry import is_any_token_over, is_anything_over
from headrace.metadata.state import DelegationToken, JoinTokenState, TokenStatus
from headrace.metadata.token_states import KEPT_AFTER_EXPIRY_MS
from tests.unit.metadata.clusters import Cluster

KEY = b"k" * 32


def test_an_image_without_anything_has_nothing_to_forget() -> None:
    assert not is_anything_over(Cluster().image, 10**15)


def test_a_join_token_is_over_a_day_after_its_expiry() -> None:
    image = Cluster().image
    image.state.join_tokens[KEY] = JoinTokenState(TokenStatus.ISSUED, 1000)
    assert not is_anything_over(image, 1000 + KEPT_AFTER_EXPIRY_MS - 1)
    assert is_anything_over(image, 1000 + KEPT_AFTER_EXPIRY_MS)


def test_a_delegation_token_is_over_when_it_expires_and_looked_at_by_itself() -> None:
    image = Cluster().image
    token = DelegationToken("t1", "User:ada", "User:ada", (), 0, 9000, 1000, b"")
    image.state.delegation_tokens["t1"] = token
    assert not is_any_token_over(image, 999)
    assert is_any_token_over(image, 1000)
    assert not is_anything_over(image, 1000)
