"""SASL on a connection: the exchange at its start, and again before the session ends (KIP-368).

A broker that limits sessions says in SaslAuthenticate for how long this one lasts, and closes the
connection of a client that goes on without authenticating again. `authenticate` does that when 85
to 95 percent of the time are over: new requests wait, those in flight are answered first, because a
broker answers in order, and the same exchange runs again.
"""

import asyncio
import secrets
from typing import TYPE_CHECKING, Final

from headrace.client.errors import AuthenticationFailed, NotReachable, UnsupportedApi
from headrace.client.security.settings import SaslSettings
from headrace.client.security.tokens import token_for
from headrace.errors import ErrorCode, HeadraceError
from headrace.sasl import oauthbearer, plain, scram
from headrace.sasl.client import SaslClient
from headrace.sasl.errors import SaslError
from headrace.sasl.oauthbearer import OAuthBearerClient
from headrace.sasl.plain import PlainClient
from headrace.sasl.scram_client import ScramClient
from headrace.surroundings import new_random
from headrace.wire import ApiKey
from headrace.wire.messages.sasl_authenticate_request import SaslAuthenticateRequest
from headrace.wire.messages.sasl_authenticate_response import SaslAuthenticateResponse
from headrace.wire.messages.sasl_handshake_request import SaslHandshakeRequest
from headrace.wire.messages.sasl_handshake_response import SaslHandshakeResponse

if TYPE_CHECKING:
    from headrace.client.connection import Connection

RENEWAL_SHARE_MIN: Final = 0.85
RENEWAL_SHARE_MAX: Final = 0.95
"""When a session is renewed, as a share of its life: by chance, so that clients are not in step."""
NONCE_BYTES: Final = 24
STEPS_MAX: Final = 5
"""More messages than any mechanism has."""
_REFUSAL_CHARS_MAX: Final = 500


async def authenticate(connection: "Connection", settings: SaslSettings) -> None:
    """Authenticate, and keep the session alive for as long as the connection lives.

    Raise AuthenticationFailed if credentials are refused, or if the broker cannot prove itself.
    """
    lifetime_ms = await _exchange(connection, settings)
    _Renewal(connection, settings).plan(lifetime_ms)


class _Renewal:
    """Renews the session of one connection before it ends."""

    def __init__(self, connection: "Connection", settings: SaslSettings) -> None:
        self._connection = connection
        self._settings = settings
        self._random = new_random()
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        connection.when_ended(self._end)

    def plan(self, lifetime_ms: int) -> None:
        """Set the timer for a session that lasts this long; 0 is for ever."""
        if lifetime_ms <= 0:
            return
        share = self._random.uniform(RENEWAL_SHARE_MIN, RENEWAL_SHARE_MAX)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(lifetime_ms * share / 1000, self._begin)

    def _begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._renew())

    async def _renew(self) -> None:
        connection = self._connection
        connection.hold()
        try:
            lifetime_ms = await _exchange(connection, self._settings)
        except (AuthenticationFailed, NotReachable) as error:
            connection.fail(error)
        except HeadraceError as error:
            connection.fail(_failed(connection, self._settings, str(error)))
        else:
            connection.release()
            self.plan(lifetime_ms)

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()


async def _exchange(connection: "Connection", settings: SaslSettings) -> int:
    """Run the exchange; return for how many ms the session lasts, 0 for ever."""
    await _choose_mechanism(connection, settings)
    machine = await _machine(settings)
    try:
        return await _converse(connection, settings, machine)
    except SaslError as error:
        raise _failed(connection, settings, str(error)) from None


async def _choose_mechanism(connection: "Connection", settings: SaslSettings) -> None:
    if connection.version_of(ApiKey.SASL_HANDSHAKE) < 1:
        raise UnsupportedApi(f"{connection.address} is too old: it knows no SaslAuthenticate")
    answer = await connection.converse(
        lambda: SaslHandshakeRequest(mechanism=settings.mechanism),
        ApiKey.SASL_HANDSHAKE,
        SaslHandshakeResponse,
    )
    if answer.error_code == ErrorCode.NONE:
        return
    if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        enabled = ", ".join(answer.mechanisms) or "none"
        raise AuthenticationFailed(
            ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            f"{connection.address} does not have sasl.mechanism={settings.mechanism} enabled; "
            f"it has {enabled}",
        )
    if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise AuthenticationFailed(
            ErrorCode.ILLEGAL_SASL_STATE,
            f"{connection.address} does not expect SASL now; if its listener has none, "
            "set security.protocol=SSL or PLAINTEXT",
        )
    raise _refused(connection, settings, answer.error_code, None)


async def _machine(settings: SaslSettings) -> SaslClient:
    extensions = dict(settings.extensions)
    if settings.mechanism == plain.MECHANISM:
        return PlainClient(settings.username, settings.password)
    if settings.mechanism == oauthbearer.MECHANISM:
        return OAuthBearerClient(await token_for(settings), extensions)
    return ScramClient(
        scram.MECHANISMS[settings.mechanism],
        settings.username,
        settings.password,
        secrets.token_urlsafe(NONCE_BYTES),
        extensions,
    )


async def _converse(connection: "Connection", settings: SaslSettings, machine: SaslClient) -> int:
    challenge, lifetime_ms = b"", 0
    outbox = _Outbox()
    for _ in range(STEPS_MAX):
        if isinstance(machine, ScramClient):
            # Thousands of hashes, off the loop.
            await asyncio.get_running_loop().run_in_executor(None, outbox.fill, machine, challenge)
        else:
            outbox.fill(machine, challenge)
        if outbox.is_empty:
            return lifetime_ms
        answer = await connection.converse(
            outbox.take, ApiKey.SASL_AUTHENTICATE, SaslAuthenticateResponse
        )
        if answer.error_code != ErrorCode.NONE:
            refusal = machine.refusal if isinstance(machine, OAuthBearerClient) else None
            said = refusal or answer.error_message
            raise _refused(connection, settings, answer.error_code, said)
        challenge, lifetime_ms = bytes(answer.auth_bytes), answer.session_lifetime_ms
    raise SaslError("the broker sent more messages than the mechanism has")


class _Outbox:
    """The next message to send: not in a local variable, which a traceback with locals shows."""

    def __init__(self) -> None:
        self._message: bytes | None = None

    @property
    def is_empty(self) -> bool:
        return self._message is None

    def fill(self, machine: SaslClient, challenge: bytes) -> None:
        self._message = machine.step(challenge)

    def take(self) -> SaslAuthenticateRequest:
        message, self._message = self._message, None
        return SaslAuthenticateRequest(auth_bytes=message or b"")


def _refused(
    connection: "Connection", settings: SaslSettings, code: int, said: str | None
) -> AuthenticationFailed:
    words = (said or "").rstrip(".")[:_REFUSAL_CHARS_MAX]
    try:
        known = ErrorCode(code)
    except ValueError:
        known = ErrorCode.SASL_AUTHENTICATION_FAILED
        words = f"error code {code} {words}".rstrip()
    return AuthenticationFailed(known, _about(connection, settings, words or "no reason given"))


def _failed(connection: "Connection", settings: SaslSettings, words: str) -> AuthenticationFailed:
    return AuthenticationFailed(
        ErrorCode.SASL_AUTHENTICATION_FAILED, _about(connection, settings, words)
    )


def _about(connection: "Connection", settings: SaslSettings, words: str) -> str:
    if settings.mechanism == oauthbearer.MECHANISM:
        who, hint = "", "is the token valid, and does the broker trust its issuer?"
    else:
        who, hint = f" for user {settings.username!r}", "check sasl.username and sasl.password"
    return f"{settings.mechanism}{who} failed at {connection.address}: {words}; {hint}"
