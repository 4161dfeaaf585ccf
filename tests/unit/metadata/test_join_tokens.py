import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.metadata.join_tokens import (
    InvalidJoinToken,
    JoinClaim,
    TokenFault,
    bundle_mac,
    check_bundle,
    issue_token,
    token_hash,
    verify_token,
)

SECRET = b"\x11" * 32
EXPIRY = 2_000_000_000
TOKEN = (
    "2a000000000000000094357700000000"
    "f1e1cb5007eb508346cae2ecd14d69c503a89b2bd0a55a304ff2c8bd36768685"
)
HASH = bytes.fromhex("7cabe1e80dbf18d0989c7e1575151dd897976413c786d28843d432a9127859a2")
MAC = bytes.fromhex("391385bc1d2f7adfd0f06b45d9201dce07b449dec0a336cd0c14ad21b46a4a86")


def test_a_token_is_that_of_the_seed() -> None:
    assert issue_token(SECRET, 42, EXPIRY) == TOKEN
    assert verify_token(TOKEN, SECRET, EXPIRY) == JoinClaim(42, EXPIRY, HASH)


def test_a_tokens_identity_is_of_its_bytes_whatever_their_case() -> None:
    assert token_hash(TOKEN) == token_hash(TOKEN.upper()) == HASH


@pytest.mark.parametrize(
    ("text", "secret", "now_s", "fault"),
    [
        (TOKEN[:-1], SECRET, 0, TokenFault.WRONG_LENGTH),
        (TOKEN + "00", SECRET, 0, TokenFault.WRONG_LENGTH),
        ("g" + TOKEN[1:], SECRET, 0, TokenFault.INVALID_HEX),
        (TOKEN[:-2] + "  ", SECRET, 0, TokenFault.INVALID_HEX),
        ("\u0661" + TOKEN[1:], SECRET, 0, TokenFault.INVALID_HEX),
        ("0" + TOKEN[1:], SECRET, 0, TokenFault.INVALID_MAC),
        (TOKEN, b"\x12" * 32, 0, TokenFault.INVALID_MAC),
        (TOKEN, b"\x12" * 32, EXPIRY + 1, TokenFault.INVALID_MAC),
        (TOKEN, SECRET, EXPIRY + 1, TokenFault.EXPIRED),
        (TOKEN, SECRET[1:], 0, TokenFault.HMAC_KEY_LENGTH),
    ],
)
def test_a_token_that_is_not_good_says_why(
    text: str, secret: bytes, now_s: int, fault: TokenFault
) -> None:
    with pytest.raises(InvalidJoinToken) as error:
        verify_token(text, secret, now_s)
    assert error.value.fault is fault
    assert text[-20:] not in str(error.value)


def test_a_bundle_is_signed_for_one_token() -> None:
    assert bundle_mac(SECRET, HASH, b"bundle") == MAC
    check_bundle(SECRET, HASH, b"bundle", version=2, mac=MAC)
    for bundle, version, mac in ((b"other", 2, MAC), (b"bundle", 1, MAC), (b"bundle", 2, MAC[1:])):
        with pytest.raises(InvalidJoinToken):
            check_bundle(SECRET, HASH, bundle, version=version, mac=mac)
    with pytest.raises(InvalidJoinToken):
        bundle_mac(SECRET, HASH[1:], b"bundle")


@given(
    st.binary(min_size=32, max_size=32),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**64 - 1),
    st.integers(0, 95),
)
def test_any_changed_digit_is_noticed(secret: bytes, node_id: int, expiry: int, at: int) -> None:
    token = issue_token(secret, node_id, expiry)
    assert verify_token(token, secret, expiry).node_id == node_id
    changed = token[:at] + ("0" if token[at] != "0" else "1") + token[at + 1 :]
    with pytest.raises(InvalidJoinToken):
        verify_token(changed, secret, 0)
