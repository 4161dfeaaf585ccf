"""Join tokens as text, and the bundle that a node gets for one (seed 004).

    token = issue_token(secret, node_id, expires_at_s)      # 96 characters for an operator to carry
    claim = verify_token(token, secret, now_s)              # InvalidJoinToken says what is wrong

A token is the node's id and the expiry, eight little-endian bytes each, and the HMAC-SHA256 of
these. Its identity is the SHA-256 of its 48 bytes. What became of one is in `token_states`.
"""

import hashlib
import hmac
import string
import struct
from enum import Enum
from typing import Final, NamedTuple

from headrace.errors import ErrorCode, KafkaError

SECRET_BYTES: Final = 32
TOKEN_BYTES: Final = 48
BUNDLE_VERSION: Final = 2


class TokenFault(Enum):
    """What is wrong with a token."""

    WRONG_LENGTH = "WrongLength"
    INVALID_HEX = "InvalidHex"
    INVALID_MAC = "InvalidMac"
    EXPIRED = "Expired"
    HMAC_KEY_LENGTH = "HmacKeyLength"


class InvalidJoinToken(KafkaError):
    """A token, or a bundle, that is not to be trusted. The token itself is never in the message."""

    def __init__(self, fault: TokenFault, message: str) -> None:
        super().__init__(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, message)
        self.fault = fault


class JoinClaim(NamedTuple):
    """What a genuine token says."""

    node_id: int
    expires_at_s: int
    token_hash: bytes


def issue_token(secret: bytes, node_id: int, expires_at_s: int) -> str:
    """Make the token with which one node may join until a time."""
    body = _BODY.pack(node_id, expires_at_s)
    return (body + _mac(secret, body)).hex()


def verify_token(text: str, secret: bytes, now_s: int) -> JoinClaim:
    """Return a token's contents if it is genuine and has not expired, else raise InvalidJoinToken.

    The signature is compared in constant time and before the expiry: only a genuine token learns
    that it has expired. It is valid through the second of its expiry.
    """
    raw = _parse(text)
    body = raw[: _BODY.size]
    if not hmac.compare_digest(raw[_BODY.size :], _mac(secret, body)):
        raise InvalidJoinToken(
            TokenFault.INVALID_MAC, "the join token was not issued by this cluster, or is damaged"
        )
    node_id, expires_at_s = _BODY.unpack(body)
    if now_s > expires_at_s:
        raise InvalidJoinToken(
            TokenFault.EXPIRED,
            f"the join token for node {node_id} expired {now_s - expires_at_s} s ago: "
            "issue another",
        )
    return JoinClaim(node_id, expires_at_s, hashlib.sha256(raw).digest())


def token_hash(text: str) -> bytes:
    """Return the identity of a token: the hash of its bytes, whatever the case of its digits."""
    return hashlib.sha256(_parse(text)).digest()


def bundle_mac(secret: bytes, token_hash: bytes, bundle: bytes) -> bytes:
    """Sign the bundle for the node that came with a token."""
    if len(secret) != SECRET_BYTES or len(token_hash) != SECRET_BYTES:
        raise InvalidJoinToken(
            TokenFault.HMAC_KEY_LENGTH, f"secret and token hash have {SECRET_BYTES} bytes each"
        )
    key = bytes(left ^ right for left, right in zip(secret, token_hash, strict=True))
    return hmac.digest(key, bundle, "sha256")


def check_bundle(
    secret: bytes, token_hash: bytes, bundle: bytes, *, version: int, mac: bytes
) -> None:
    """InvalidJoinToken unless a bundle is of the known version and signed for this token."""
    if version != BUNDLE_VERSION:
        raise InvalidJoinToken(
            TokenFault.INVALID_MAC, f"a bundle of version {version}, not {BUNDLE_VERSION}"
        )
    if not hmac.compare_digest(mac, bundle_mac(secret, token_hash, bundle)):
        raise InvalidJoinToken(TokenFault.INVALID_MAC, "the bundle is not for this join token")


def _parse(text: str) -> bytes:
    if len(text) != 2 * TOKEN_BYTES:
        raise InvalidJoinToken(
            TokenFault.WRONG_LENGTH,
            f"a join token has {2 * TOKEN_BYTES} characters, this one {len(text)}",
        )
    # bytes.fromhex() skips blanks.
    if not _HEX_DIGITS.issuperset(text):
        raise InvalidJoinToken(TokenFault.INVALID_HEX, "a join token has hexadecimal digits only")
    return bytes.fromhex(text)


def _mac(secret: bytes, body: bytes) -> bytes:
    if len(secret) != SECRET_BYTES:
        raise InvalidJoinToken(
            TokenFault.HMAC_KEY_LENGTH,
            f"the cluster secret has {len(secret)} bytes, not {SECRET_BYTES}",
        )
    return hmac.digest(secret, body, "sha256")


_BODY: Final = struct.Struct("<QQ")
_HEX_DIGITS: Final = frozenset(string.hexdigits)
