"""SCRAM credentials of names that have none, which look like those that others have. Pure.

Whoever asks for a challenge must not learn whether there is a user. So iterations, size and kind of
the salt are those of other users, the salt of a name and mechanism is always the same, and all
nodes of a cluster make the same ones: they share the secret.
"""

import hmac
from collections.abc import Callable
from hashlib import sha256
from typing import Final, TypeAlias

from headrace.metadata.credential_shapes import Shape
from headrace.sasl import scram

SALT_BYTES: Final = 24
"""The size of the salts that are made here."""
USUAL: Final = Shape(8192, SALT_BYTES)
"""What our own tools make: the shape where nobody has a credential."""
TOKENS: Final = Shape(scram.ITERATIONS_MIN, SALT_BYTES)
"""The shape of every delegation token's credential: clients know it without asking."""
_NUMBER_BYTES: Final = 8
_TEXT_BITS: Final = 130
"""Kafka's salts are numbers of so many bits, to the base 36."""
_TRIES_MAX: Final = 64
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"

Shapes: TypeAlias = Callable[[int], Shape | None]
"""Returns the shape that a number of 64 bits stands for; None if there is none."""


def make_up(
    mechanism: scram.Mechanism, name: str, secret: bytes, shapes: Shapes = lambda number: None
) -> scram.Credential:
    """Return a credential that nobody has, the same whenever somebody asks for it."""
    seed = hmac.digest(secret, f"{mechanism.name} {name}".encode(), "sha256")
    number = int.from_bytes(_derive(seed, "shape", _NUMBER_BYTES))
    shape = shapes(number) or USUAL
    salt = _text(seed, shape.salt_bytes) if shape.is_text else _derive(seed, "", shape.salt_bytes)
    key = hmac.digest(seed, b"key", mechanism.hash_name)
    return scram.Credential(shape.iterations, salt, key, key)


def make_up_token(mechanism: scram.Mechanism, token_id: str, secret: bytes) -> scram.Credential:
    """Return the credential of a delegation token that there is not.

    Its salt is another one than a user of that name would have: both the same would show that
    there is no such user.
    """
    of_tokens = hmac.digest(secret, b"salts of unknown tokens", "sha256")
    return make_up(mechanism, token_id, of_tokens, lambda number: TOKENS)


def salt_secret_of(secret: bytes) -> bytes:
    """Return what the salts of unknown names are made with, given a secret of the node's."""
    return hmac.digest(sha256(secret).digest(), b"salts of unknown users", "sha256")


def _derive(seed: bytes, purpose: str, count: int) -> bytes:
    """Return bytes that look random."""
    data = b""
    while len(data) < count:
        data += hmac.digest(seed, f"{purpose} {len(data)}".encode(), "sha256")
    return data[:count]


def _text(seed: bytes, count: int) -> bytes:
    """Return a number as Kafka would have made it, with that many digits if any has so many."""
    text = ""
    for attempt in range(_TRIES_MAX):
        data = _derive(seed, f"text {attempt}", 32)
        text = _to_base_36(int.from_bytes(data) >> (8 * len(data) - _TEXT_BITS))
        if len(text) == count:
            return text.encode()
    return "".join(_DIGITS[byte % 36] for byte in _derive(seed, "digits", count)).encode()


def _to_base_36(number: int) -> str:
    text = ""
    while number:
        number, digit = divmod(number, 36)
        text = _DIGITS[digit] + text
    return text
