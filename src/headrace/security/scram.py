"""SCRAM of a server, over `headrace.sasl.scram`: credentials from the metadata log. Pure.

With `tokenauth=true` name and password are a delegation token's id and HMAC (KIP-48); the client is
then the token's owner, for as long as the token is valid.

A name that has no credential gets a challenge like any other (`made_up`), and its proof is compared
with a key that fits none.
"""

import hmac
from collections.abc import Callable
from typing import NamedTuple

from headrace.sasl import scram
from headrace.sasl.errors import SaslError
from headrace.security.authentication import AuthenticationFailed, Progress
from headrace.security.made_up import Shapes, make_up, make_up_token
from headrace.security.principals import user

Lookup = Callable[[str], scram.Credential | None]


class TokenLogin(NamedTuple):
    """What a login with a delegation token is checked against, and whose it is."""

    credential: scram.Credential
    owner: str
    """The principal."""
    expires_ms: int


TokenLookup = Callable[[str], TokenLogin | None]


def no_tokens(token_id: str) -> None:
    """Return None: there are no delegation tokens."""


class ScramExchange:
    """One login: name and nonce, challenge, proof, signature."""

    def __init__(
        self,
        mechanism: scram.Mechanism,
        find: Lookup,
        nonce: str,
        salt_secret: bytes,
        principal_of: Callable[[str], str] = user,
        *,
        shapes: Shapes = lambda number: None,
        find_token: TokenLookup = no_tokens,
    ) -> None:
        """`nonce` is random and used once; `salt_secret` makes the salts of unknown names.

        `shapes` has what credentials look like.
        """
        self._shapes = shapes
        self._find_token = find_token
        self._token: TokenLogin | None = None
        self._principal_of = principal_of
        self._mechanism = mechanism
        self._find = find
        self._nonce = nonce
        self._salt_secret = salt_secret
        self._first: scram.ClientFirst | None = None
        self._challenge: scram.ServerFirst | None = None
        self._credential: scram.Credential | None = None
        self._is_known = False

    def __repr__(self) -> str:
        return f"ScramExchange({self._mechanism.name})"

    @property
    def claimed(self) -> str:
        return "" if self._first is None else self._first.username

    def step(self, token: bytes, now_ms: int) -> Progress:
        """Take the client's first or final message."""
        return self._begin(token) if self._challenge is None else self._end(token, now_ms)

    def _begin(self, token: bytes) -> Progress:
        first = self._first = scram.ClientFirst.decode(token)
        if first.authorization_id not in ("", first.username):
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
        # Made up in any case: it takes as long.
        if first.is_token:
            self._token = self._find_token(first.username)
            found = None if self._token is None else self._token.credential
            made_up = make_up_token(self._mechanism, first.username, self._salt_secret)
        else:
            found = self._find(first.username)
            made_up = make_up(self._mechanism, first.username, self._salt_secret, self._shapes)
        self._is_known = found is not None
        self._credential = found or made_up
        self._challenge = scram.ServerFirst(
            first.nonce + self._nonce, self._credential.salt, self._credential.iterations
        )
        return Progress(self._challenge.encode())

    def _end(self, token: bytes, now_ms: int) -> Progress:
        first, challenge, credential = self._first, self._challenge, self._credential
        assert first is not None
        assert challenge is not None
        assert credential is not None
        try:
            final = scram.ClientFinal.decode(token)
        except SaslError:
            raise self._refusal() from None
        if not hmac.compare_digest(final.nonce.encode(), challenge.nonce.encode()):
            raise self._refusal()
        if final.channel_binding != first.gs2_header:
            raise self._refusal()
        text = scram.auth_message(first, challenge, final)
        is_valid = scram.is_proof_valid(self._mechanism, credential.stored_key, text, final.proof)
        if not is_valid or not self._is_known:
            raise self._refusal()
        signature = scram.server_signature(self._mechanism, credential.server_key, text)
        reply, login = scram.ServerFinal(signature).encode(), self._token
        if login is None:
            return Progress(reply, self._principal_of(first.username))
        if login.expires_ms <= now_ms:
            raise self._refusal()
        return Progress(reply, login.owner, login.expires_ms, is_token=True)

    def _refusal(self) -> AuthenticationFailed:
        return AuthenticationFailed(
            "Authentication failed during authentication due to invalid credentials with SASL "
            f"mechanism {self._mechanism.name}"
        )
