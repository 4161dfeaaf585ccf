"""Delegation tokens (KIP-48, KIP-373): their HMACs, logins, and who may do what. Pure.

    tokens = DelegationTokens(secret, image_of, now_ms)
    tokens.hmac_of(token_id)                     # what a client uses as its password, in Base64
    tokens.login(scram.SCRAM_SHA_256, token_id)  # what that is checked against

The metadata log has tokens without their HMACs, as Kafka's has: these are made of the token's id
and `delegation.token.secret.key`, so whoever reads the log, or a backup, gets no password of it.
"""

import base64
import hmac
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from typing import Final

from headrace.metadata.image import Image
from headrace.metadata.state import DelegationToken
from headrace.sasl import scram
from headrace.security.made_up import TOKENS
from headrace.security.principals import USER
from headrace.security.scram import TokenLogin

LOGINS_MAX: Final = 10_000
"""How many credentials of tokens are kept; one takes milliseconds to compute."""
INDEXED_AT_ONCE: Final = 500
"""How many HMACs are computed in one turn."""
INT64_MAX: Final = 2**63 - 1


class DelegationTokens:
    """The tokens of the image, with what the secret adds to them."""

    def __init__(
        self, secret: str, image_of: Callable[[], Image | None], now_ms: Callable[[], int]
    ) -> None:
        self._secret = secret.encode()
        self._image_of = image_of
        self._now_ms = now_ms
        self._logins: dict[tuple[str, str], scram.Credential] = {}
        self._image: Image | None = None
        """The one that is indexed."""
        self._left: list[str] = []
        """Those of its tokens, as it was found, that are not indexed yet."""
        self._unknown: dict[str, None] = {}
        """The tokens that came since, and are not indexed yet."""
        self._ids: dict[bytes, str] = {}
        """The id of each token by its HMAC."""
        self._known: dict[str, tuple[bytes, str]] = {}
        """HMAC and owner of each token that is indexed."""
        self._counts: dict[str, int] = {}
        """How many of these each owner has."""
        self._making: dict[str, int] = {}
        """How many are being made for each."""

    def __repr__(self) -> str:
        return "DelegationTokens()"

    def hmac_of(self, token_id: str) -> bytes:
        """Return the HMAC of a token."""
        return hmac.digest(self._secret, token_id.encode(), "sha512")

    def login(self, mechanism: scram.Mechanism, token_id: str) -> TokenLogin | None:
        """Return what a login is checked against, None if there is no such token or it is over."""
        token = self._token(token_id)
        if token is None or token.expiry_ms <= self._now_ms():
            return None
        key = mechanism.name, token_id
        credential = self._logins.get(key)
        if credential is None:
            if len(self._logins) >= LOGINS_MAX:
                self._logins.clear()
            credential = self._logins[key] = self._credential(mechanism, token_id)
        return TokenLogin(credential, token.owner, token.expiry_ms)

    def on_changed(self, token_id: str) -> None:
        """Learn that a token was created or changed, or is gone."""
        if self._image is None:  # nobody has asked yet
            return
        is_there = self._token(token_id) is not None
        if is_there and token_id not in self._known:
            self._unknown[token_id] = None
        elif not is_there:
            self._unknown.pop(token_id, None)
            known = self._known.pop(token_id, None)
            if known is not None:
                made, owner = known
                del self._ids[made]
                _count(self._counts, owner, -1)

    def index(self) -> bool:
        """Learn some tokens more; return whether all are known now.

        The first call begins, and so does one after the image was replaced. From then on
        `on_changed` says what there is to learn, so a call costs nothing where nothing changed.
        """
        image = self._image_of()
        if image is not self._image:
            self._begin(image)
        for _ in range(min(len(self._left) + len(self._unknown), INDEXED_AT_ONCE)):
            token_id = self._left.pop() if self._left else self._unknown.popitem()[0]
            token = self._token(token_id)
            if token is not None and token_id not in self._known:
                made = self.hmac_of(token_id)
                self._known[token_id] = made, token.owner
                self._ids[made] = token_id
                _count(self._counts, token.owner, 1)
        return not self._left and not self._unknown

    def is_allowed_another(self, owner: str, tokens_max: int) -> bool:
        """Return whether an owner has fewer tokens than that, given that `index` knows all."""
        return self._counts.get(owner, 0) + self._making.get(owner, 0) < tokens_max

    @contextmanager
    def making(self, owner: str) -> Iterator[None]:
        """Count a token that is being made, so that requests at the same time see each other."""
        _count(self._making, owner, 1)
        try:
            yield
        finally:
            _count(self._making, owner, -1)

    def find(self, made: bytes) -> DelegationToken | None:
        """Return the token that has an HMAC, given that `index` knows all."""
        token_id = self._ids.get(made)
        return None if token_id is None else self._token(token_id)

    def _token(self, token_id: str) -> DelegationToken | None:
        image = self._image_of()
        return None if image is None else image.delegation_token(token_id)

    def _begin(self, image: Image | None) -> None:
        self._image = image
        self._ids, self._known, self._counts = {}, {}, {}
        self._left = [] if image is None else list(image.state.delegation_tokens)
        self._unknown = {}

    def _credential(self, mechanism: scram.Mechanism, token_id: str) -> scram.Credential:
        """Return the credential of a token: the same on every node, as is its salt."""
        salt = hmac.digest(self._secret, b"salt of " + token_id.encode(), "sha256")
        salt = salt[: TOKENS.salt_bytes]
        password = base64.b64encode(self.hmac_of(token_id)).decode("ascii")
        return scram.make_credential(mechanism, password, salt, TOKENS.iterations)


def is_over(token: DelegationToken, now_ms: int) -> bool:
    """Return whether a token can neither be used nor renewed any more."""
    return token.max_ms < now_ms or token.expiry_ms < now_ms


def may_renew(token: DelegationToken, principal: str) -> bool:
    """Return whether somebody may renew and expire a token; its requester as such may not."""
    return principal == token.owner or principal in token.renewers


def is_about(token: DelegationToken, principal: str) -> bool:
    """Return whether a token is shown to somebody without further rights."""
    return principal in (token.owner, token.requester) or principal in token.renewers


def is_one_of(token: DelegationToken, principals: AbstractSet[str]) -> bool:
    """Return whether a token is about one of these, however many they are."""
    if token.owner in principals or token.requester in principals:
        return True
    return any(renewer in principals for renewer in token.renewers)


def is_user(principal_type: str) -> bool:
    """Return whether a principal of that type can own and renew tokens."""
    return principal_type == USER


def lifetime(asked_ms: int, limit_ms: int) -> int:
    """Return how long something lasts: as long as was asked for, if that is within the limit."""
    return min(asked_ms, limit_ms) if asked_ms > 0 else limit_ms


def later(now_ms: int, duration_ms: int) -> int:
    """Return a time that is later by so much, or the last that there is."""
    return min(now_ms + duration_ms, INT64_MAX)


def _count(counts: dict[str, int], owner: str, change: int) -> None:
    left = counts.get(owner, 0) + change
    if left:
        counts[owner] = left
    else:
        del counts[owner]
