"""Tokens that ended long ago are forgotten, by one entry of the controller."""

from headrace.cluster.expiry import is_anything_over
from headrace.metadata.state import JoinTokenState, TokenStatus
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
