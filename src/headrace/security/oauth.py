"""OAUTHBEARER of a server (KIP-255, KIP-768): tokens that are signed with keys that we have.

    keys = TokenKeys(settings, now_ms)
    begin = keys.exchanges("SASL_SSL")      # reads the keys; InvalidSetting if there are none
    keys.start()                            # reads them again every now and then

A token is taken if one of the keys signed it with an algorithm that has a public key, it has not
expired, and its issuer and audience are as the settings say. A token without a signature, or with
one that anybody could make with a key that everybody has, is refused, and without keys a node does
not start. Keys are read in a thread, from the one URL of the settings, without following it
anywhere else.
"""

import asyncio
import http.client
import importlib.util
import json
import logging
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeGuard
from urllib.parse import urlsplit

from headrace import config
from headrace.config import InvalidSetting, Settings
from headrace.config.security_checks import is_loopback
from headrace.sasl.errors import InvalidSaslMessage
from headrace.security.authentication import AuthenticationFailed, Exchange, Progress
from headrace.security.principals import user

ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
"""Those with a public key. No HS256, and never none."""
JWKS_BYTES_MAX: Final = 1024 * 1024
KEYS_MAX: Final = 1000
TOKEN_BYTES_MAX: Final = 64 * 1024
FETCH_SECONDS: Final = 10
REASON_CHARACTERS_MAX: Final = 200
READ_BYTES: Final = 64 * 1024
SECONDS_MAX: Final = 253_402_300_800
"""The year 10000: what names a later time is in milliseconds, or made up."""
AGAIN_MS_MIN: Final = 10_000
"""How soon keys are read again for a token whose key is not among them."""
_MESSAGE: Final = re.compile(
    r"n,(?:a=(?P<authzid>[^,]*))?,\x01(?P<pairs>(?:[A-Za-z]+=[^\x01]*\x01)+)\x01"
)
_INVALID: Final = b'{"status":"invalid_token"}'
_WRONG: Final = "Authentication failed: the token is not accepted"

logger = logging.getLogger(__name__)


class Accepted(NamedTuple):
    """What a listener demands of tokens."""

    url: str
    audience: tuple[str, ...]
    issuer: str | None
    subject_claim: str
    scope_claim: str
    skew_seconds: int


class TokenKeys:
    """The keys that sign tokens, by the URL that they are from."""

    def __init__(self, settings: Settings, now_ms: Callable[[], int]) -> None:
        self._settings = settings
        self._now_ms = now_ms
        self._keys: dict[str, Mapping[str, Any]] = {}
        """By URL and key id; a key without an id has the empty one."""
        self._refresh_ms: dict[str, int] = {}
        self._asked_ms = 0
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def exchanges(self, listener: str) -> Callable[[], Exchange]:
        """Read the keys of a listener and return what begins an exchange; or InvalidSetting."""
        settings = self._settings

        def value(setting: config.AnySetting) -> Any:
            return settings.for_listener(listener, setting, "OAUTHBEARER")

        if importlib.util.find_spec("jwt") is None:
            raise InvalidSetting(
                f"listener {listener}: OAUTHBEARER needs PyJWT: pip install 'headrace[oauth]'"
            )
        url = value(config.SASL_OAUTHBEARER_JWKS_ENDPOINT_URL)
        name = config.SASL_OAUTHBEARER_JWKS_ENDPOINT_URL.name
        if not url:
            raise InvalidSetting(
                f"listener {listener}: OAUTHBEARER needs {name}: without keys no token can be "
                "verified, and none is taken unverified"
            )
        _check_url(url, name)
        keys = read_keys(url, name)
        if not keys:
            raise InvalidSetting(_no_keys(url, name))
        self._keys[url] = keys
        self._refresh_ms[url] = value(config.SASL_OAUTHBEARER_JWKS_ENDPOINT_REFRESH_MS)
        accepted = Accepted(
            url,
            value(config.SASL_OAUTHBEARER_EXPECTED_AUDIENCE),
            value(config.SASL_OAUTHBEARER_EXPECTED_ISSUER),
            value(config.SASL_OAUTHBEARER_SUB_CLAIM_NAME),
            value(config.SASL_OAUTHBEARER_SCOPE_CLAIM_NAME),
            value(config.SASL_OAUTHBEARER_CLOCK_SKEW_SECONDS),
        )
        return lambda: TokenExchange(self, accepted)

    def start(self) -> None:
        """Read the keys again every now and then, until `stop`."""
        if self._keys:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def find(self, url: str, key_id: str) -> Any:
        """Return a key, None if there is none; one that is unknown is soon looked for."""
        keys = self._keys[url]
        key = keys.get(key_id)
        if key is None and not key_id and len(keys) == 1:
            return next(iter(keys.values()))
        if key is None and self._now_ms() - self._asked_ms >= AGAIN_MS_MIN:
            self._asked_ms = self._now_ms()
            self._wake.set()
        return key

    async def refresh(self) -> None:
        """Read all keys again; where that fails, the former ones stay in use.

        A list that can be read and has none is no failure: they were revoked.
        """
        loop = asyncio.get_running_loop()
        name = config.SASL_OAUTHBEARER_JWKS_ENDPOINT_URL.name
        for url in tuple(self._keys):
            try:
                keys = await loop.run_in_executor(None, read_keys, url, name)
                if not keys and self._keys[url]:
                    logger.error("no token is accepted any more: %s", _no_keys(url, name))
                self._keys[url] = keys
            except InvalidSetting as error:
                logger.error("the former keys of tokens stay in use: %s", error)
            except Exception:  # nobody awaits this, and keys that were revoked must go some day
                logger.exception("the former keys of tokens stay in use: %s", url[:100])

    async def _run(self) -> None:
        while True:
            seconds = max(1, min(self._refresh_ms.values()) / 1000)
            try:
                async with asyncio.timeout(seconds):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            await self.refresh()


class TokenExchange:
    """One login: a message with a token; after a refusal the client has the last word."""

    claimed: Final = ""
    """What a token says that proves nothing is not read."""

    def __init__(self, keys: TokenKeys, accepted: Accepted) -> None:
        self._keys = keys
        self._accepted = accepted
        self._failure = ""

    def __repr__(self) -> str:
        return "TokenExchange()"

    def step(self, token: bytes, now_ms: int) -> Progress:
        """Take the message with the token."""
        if self._failure:
            raise AuthenticationFailed(self._failure)
        text, authorization_id = _parse(token)
        try:
            name, expires_ms = self._verify(text, now_ms)
        except AuthenticationFailed as error:
            self._failure = str(error)
            return Progress(_INVALID)
        if authorization_id not in ("", name):
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different "
                "from the token's principal name"
            )
        return Progress(b"", user(name), expires_ms)

    def _verify(self, text: str, now_ms: int) -> tuple[str, int]:
        """Return the user's name and when the token expires; AuthenticationFailed otherwise."""
        import jwt  # noqa: PLC0415  an extra, see `TokenKeys.exchanges`

        accepted = self._accepted
        try:
            header = jwt.get_unverified_header(text)
            key_id = header.get("kid")
            key = self._keys.find(accepted.url, key_id if isinstance(key_id, str) else "")
            is_strange = header.get("alg") not in ALGORITHMS or "crit" in header
            if key is None or is_strange:
                raise AuthenticationFailed(_WRONG)
            claims = jwt.decode(
                text,
                key,
                algorithms=list(ALGORITHMS),
                audience=list(accepted.audience) or None,
                issuer=accepted.issuer,
                options={
                    "require": ["exp"],
                    "verify_aud": bool(accepted.audience),
                    "verify_exp": False,  # by the node's clock, below
                    "verify_nbf": False,
                    "verify_iat": False,
                },
            )
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError):
            raise AuthenticationFailed(_WRONG) from None
        return self._check(claims, now_ms)

    def _check(self, claims: Mapping[str, Any], now_ms: int) -> tuple[str, int]:
        accepted, skew_ms = self._accepted, self._accepted.skew_seconds * 1000
        name, expires = claims.get(accepted.subject_claim), claims.get("exp")
        begins = claims.get("nbf", 0)
        scope = claims.get(accepted.scope_claim, "")
        if not isinstance(name, str) or not name.strip() or not isinstance(scope, str | list):
            raise AuthenticationFailed(_WRONG)
        if not _is_time(expires) or not _is_time(begins):
            raise AuthenticationFailed(_WRONG)
        if now_ms >= expires * 1000 + skew_ms:
            raise AuthenticationFailed("Authentication failed: the token has expired")
        if now_ms < begins * 1000 - skew_ms:
            raise AuthenticationFailed("Authentication failed: the token is not valid yet")
        return name, int(expires * 1000) + skew_ms


def _is_time(value: Any) -> TypeGuard[int | float]:
    """Return whether a claim is a time in seconds; JSON of Python's has NaN and infinities, too."""
    return isinstance(value, int | float) and -SECONDS_MAX < value < SECONDS_MAX


def _parse(message: bytes) -> tuple[str, str]:
    """Return the token and the authorization id of a client's message."""
    if len(message) > TOKEN_BYTES_MAX:
        raise InvalidSaslMessage(
            f"a message of OAUTHBEARER has {len(message)} bytes, {TOKEN_BYTES_MAX} are allowed"
        )
    try:
        found = _MESSAGE.fullmatch(message.decode())
    except UnicodeDecodeError:
        found = None
    if found is None:
        raise InvalidSaslMessage("these bytes are not the message of OAUTHBEARER")
    pairs = dict(pair.split("=", 1) for pair in found["pairs"].split("\x01") if pair)
    scheme, _, token = pairs.get("auth", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise InvalidSaslMessage("a message of OAUTHBEARER has no bearer token")
    return token.strip(), found["authzid"] or ""


def _check_url(url: str, name: str) -> None:
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path:
        return
    is_local = parts.scheme == "http" and is_loopback(parts.hostname or "")
    if not parts.hostname or not (parts.scheme == "https" or is_local):
        raise InvalidSetting(f"{name}={url[:100]}: must begin with https:// or file:///")


def read_keys(url: str, name: str) -> Mapping[str, Any]:
    """Return the public keys of a JWKS by their ids; InvalidSetting if it cannot be read."""
    import jwt  # noqa: PLC0415  an extra, see `TokenKeys.exchanges`

    try:
        opener = urllib.request.build_opener(_NoRedirects, urllib.request.ProxyHandler({}))
        with opener.open(url, timeout=FETCH_SECONDS) as response:  # the scheme is checked
            data = _read(response)
        rows = json.loads(data)["keys"][:KEYS_MAX]
    except (
        *(OSError, http.client.HTTPException),
        *(ValueError, KeyError, TypeError, RecursionError),
    ) as error:
        reason = " ".join(str(error).split())[:REASON_CHARACTERS_MAX]  # a server may have its say
        raise InvalidSetting(
            f"{name}={url[:100]}: has no keys that can be read ({reason})"
        ) from None
    keys = {}
    for row in rows:
        try:
            if row.get("kty") != "oct" and row.get("use", "sig") == "sig":
                keys[str(row.get("kid", ""))] = jwt.PyJWK.from_dict(row)
        except Exception:  # whatever the library makes of it
            continue  # of a kind that we do not know
    return keys


def _no_keys(url: str, name: str) -> str:
    return f"{name}={url[:100]}: has no public key that signs tokens"


def _read(response: Any) -> bytes:
    """Return a body that is neither too long nor too slow."""
    data, ends = b"", time.monotonic() + FETCH_SECONDS
    read = getattr(response, "read1", response.read)
    while some := read(READ_BYTES):
        data += some
        if len(data) > JWKS_BYTES_MAX:
            raise ValueError(f"more than {JWKS_BYTES_MAX} bytes")
        if time.monotonic() > ends:
            raise TimeoutError(f"not read within {FETCH_SECONDS} s")
    return data


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirection: the keys are where the settings say."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None
