"""Passwords that are shown whole, as in HTTP's Basic login, against SCRAM credentials. Pure.

A credential can check a password: it was made of one. That takes as long as making one did, some
milliseconds, so a caller does it off the loop and remembers who has passed.
"""

import base64
import binascii
import hmac
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from headrace.metadata.credential_shapes import Shape
from headrace.sasl import scram
from headrace.security.made_up import make_up

LOGIN_CHARACTERS_MAX: Final = 1024
"""The longest header of a login that is looked at."""
_SCHEME: Final = "basic "

Credentials = tuple[tuple[scram.Mechanism, scram.Credential], ...]
Lookup = Callable[[str, scram.Mechanism], scram.Credential | None]
Shapes = Callable[[scram.Mechanism, int], Shape | None]


class Login(NamedTuple):
    """A name and a password, as a client gave them."""

    name: str
    password: str

    def __repr__(self) -> str:
        return f"Login({self.name!r})"


def read_basic(header: str) -> Login | None:
    """Return the login of an Authorization header (RFC 7617), or None if it has none."""
    if len(header) > LOGIN_CHARACTERS_MAX or not header.lower().startswith(_SCHEME):
        return None
    try:
        text = base64.b64decode(header[len(_SCHEME) :].strip(), validate=True).decode()
    except (binascii.Error, ValueError):
        return None
    name, colon, password = text.partition(":")
    return Login(name, password) if colon and name and password else None


class Passwords:
    """Whether names and passwords belong together."""

    def __init__(
        self, find: Lookup, secret: bytes, shapes: Shapes = lambda mechanism, number: None
    ) -> None:
        """`secret` is random: it makes the credentials that unknown names are compared with.

        They look like those that `shapes` has, so that comparing takes as long.
        """
        self._shapes = shapes
        self._find = find
        self._secret = secret

    def credentials_of(self, name: str) -> Credentials:
        """Return the credentials of a name, or one that no password fits."""
        found = []
        for mechanism in scram.MECHANISMS.values():
            credential = self._find(name, mechanism)
            if credential is not None:
                found.append((mechanism, credential))
        if found:
            return tuple(found)
        used = [each for each in scram.MECHANISMS.values() if self._shapes(each, 0) is not None]
        return tuple(
            (each, make_up(each, name, self._secret, partial(self._shapes, each)))
            for each in used or scram.MECHANISMS.values()
        )

    def is_right(self, password: str, credentials: Credentials) -> bool:
        """Return whether one of the credentials was made of a password; takes milliseconds."""
        for mechanism, credential in credentials:
            made = scram.make_credential(
                mechanism, password, credential.salt, credential.iterations
            )
            if hmac.compare_digest(made.stored_key, credential.stored_key):
                return True
        return False

    def digest(self, login: Login) -> bytes:
        """Return what a login can be remembered by, which its password does not follow from."""
        return hmac.digest(self._secret, f"{login.name}:{login.password}".encode(), "sha256")
