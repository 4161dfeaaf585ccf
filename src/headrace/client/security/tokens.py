"""OAuth tokens for OAUTHBEARER: a fixed one, a file, a function, or a token endpoint.

A token from an endpoint is kept until four fifths of its life are over, for all connections of the
process with the same settings. The others are asked for at each authentication.
"""

import asyncio
import base64
import ssl
import time
import urllib.parse
from collections import OrderedDict
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from inspect import isawaitable, iscoroutinefunction
from pathlib import Path
from threading import Lock
from typing import Final

import msgspec

from headrace.client.errors import AuthenticationFailed, InvalidSecurity, NotReachable
from headrace.client.security.settings import SaslSettings, TokenEndpoint
from headrace.errors import ErrorCode
from headrace.sasl.secret import Secret

TOKEN_BYTES_MAX: Final = 256 * 1024
ENDPOINTS_MAX: Final = 32
"""How many endpoints a process keeps a token of."""
RENEWAL_SHARE: Final = 0.8

_kept: "OrderedDict[TokenEndpoint, tuple[float, Secret]]" = OrderedDict()
_lock: Final = Lock()


async def token_for(settings: SaslSettings) -> Secret:
    """Return a token; raise AuthenticationFailed or NotReachable, without the token in it."""
    if settings.token is not None:
        return settings.token
    if settings.token_callback is not None:
        return await _called(settings)
    loop = asyncio.get_running_loop()
    if settings.token_path is not None:
        return await loop.run_in_executor(None, _read_token, settings.token_path)
    assert settings.token_endpoint is not None, "a token comes from somewhere"
    return await loop.run_in_executor(None, _ask_or_keep, settings.token_endpoint)


async def _called(settings: SaslSettings) -> Secret:
    callback = settings.token_callback
    assert callback is not None
    try:
        if iscoroutinefunction(callback):
            token = await callback()
        else:
            token = await asyncio.get_running_loop().run_in_executor(None, callback)
            if isawaitable(token):
                token = await token
    except Exception as error:
        raise _failed(f"the function for tokens failed: {type(error).__name__}") from error
    if not isinstance(token, str):
        raise _failed(f"the function for tokens returned {type(token).__name__} and not text")
    return Secret(token)


def _read_token(path: str) -> Secret:
    try:
        with Path(path).open("rb") as file:
            data = file.read(TOKEN_BYTES_MAX + 1)
    except OSError as error:
        raise InvalidSecurity(f"{path}: cannot be read: {error.strerror}") from None
    if len(data) > TOKEN_BYTES_MAX:
        raise InvalidSecurity(f"{path}: is larger than {TOKEN_BYTES_MAX} bytes")
    try:
        return Secret(data.decode("ascii").strip())
    except UnicodeDecodeError:
        raise InvalidSecurity(f"{path}: does not hold a token") from None


class _Granted(msgspec.Struct):
    """What an endpoint responds (RFC 6749, 5.1)."""

    access_token: str
    expires_in: float = 0

    def __repr__(self) -> str:
        return "_Granted()"


def _ask_or_keep(endpoint: TokenEndpoint) -> Secret:
    with _lock:
        kept = _kept.get(endpoint)
        if kept is not None and time.monotonic() < kept[0]:
            return kept[1]
    asked_at = time.monotonic()
    granted = _ask(endpoint)
    token = Secret(granted.access_token)
    with _lock:
        _kept[endpoint] = asked_at + granted.expires_in * RENEWAL_SHARE, token
        while len(_kept) > ENDPOINTS_MAX:
            _kept.popitem(last=False)
    return token


def _ask(endpoint: TokenEndpoint) -> _Granted:
    """Ask for a token (RFC 6749, 4.4.2). Blocks, runs on a thread, and follows no redirect."""
    parts = urllib.parse.urlsplit(endpoint.url)
    connection = _connection(endpoint, parts)
    try:
        connection.connect()
        connection.sock.settimeout(endpoint.read_timeout_ms / 1000)
        form = {"grant_type": "client_credentials"}
        if endpoint.scope:
            form["scope"] = endpoint.scope
        connection.request(
            "POST",
            urllib.parse.urlunsplit(("", "", parts.path or "/", parts.query, "")),
            urllib.parse.urlencode(form),
            {
                "Accept": "application/json",
                "Authorization": f"Basic {_basic(endpoint)}",
                "Content-Type": "application/x-www-form-urlencoded",
            },
        )
        with connection.getresponse() as response:
            status, data = response.status, response.read(TOKEN_BYTES_MAX + 1)
    except ssl.SSLError as error:
        raise _failed(f"the token endpoint {parts.netloc} is not trusted: {error.reason}") from None
    except (OSError, HTTPException) as error:
        raise NotReachable(
            f"the token endpoint {parts.netloc}: {str(error) or type(error).__name__}"
        ) from None
    finally:
        connection.close()
    return _granted(status, data, parts.netloc)


def _connection(endpoint: TokenEndpoint, parts: urllib.parse.SplitResult) -> HTTPConnection:
    host, timeout_s = parts.hostname or "", endpoint.connect_timeout_ms / 1000
    if parts.scheme == "http":
        return HTTPConnection(host, parts.port, timeout=timeout_s)
    try:
        context = ssl.create_default_context(cafile=endpoint.trusted_path)
    except OSError:
        raise InvalidSecurity(
            f"https.ca.location={endpoint.trusted_path}: holds no certificate that can be read"
        ) from None
    return HTTPSConnection(host, parts.port, timeout=timeout_s, context=context)


def _basic(endpoint: TokenEndpoint) -> str:
    pair = f"{endpoint.client_id}:{endpoint.client_secret.reveal()}"
    return base64.b64encode(pair.encode()).decode("ascii")


def _granted(status: int, data: bytes, where: str) -> _Granted:
    if status >= 500:
        raise NotReachable(f"the token endpoint {where} responded with status {status}")
    if status != 200:
        raise _failed(
            f"the token endpoint {where} responded with status {status}; are the client's id, "
            "secret and scope right?"
        )
    try:
        if len(data) > TOKEN_BYTES_MAX:
            raise msgspec.DecodeError
        return msgspec.json.decode(data, type=_Granted)
    except msgspec.DecodeError:
        raise _failed(f"the token endpoint {where} sent no token that can be read") from None


def _failed(message: str) -> AuthenticationFailed:
    return AuthenticationFailed(ErrorCode.SASL_AUTHENTICATION_FAILED, message)
