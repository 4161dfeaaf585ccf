"""A connection of a listener with TLS or SASL: who is at the other end, and since when.

Until a client has authenticated, its requests go to a `Gate`, its frames are bounded by
sasl.server.max.receive.size and its time by headrace.authentication.timeout.ms. All such clients
share a budget of time per turn of the loop: whoever has not shown who it is cannot hold up others.
Then requests go to the dispatcher, as those of a PLAINTEXT listener do from the start.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from headrace.security.authentication import Authentication, Mechanism
from headrace.security.certificate_names import NoRuleApplies, Rule, principal_of
from headrace.server.connection import DIRECT_MAX, Connection
from headrace.server.dispatch import Dispatcher
from headrace.server.gate import Gate, SessionGate
from headrace.server.traffic import Traffic

GATED_READ_BYTES: Final = 1024
"""How much is read at once of a client that has not authenticated: a few requests."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ListenerSecurity:
    """How the clients of one listener are protected and known."""

    name: str
    protocol: str
    timeout_ms: int
    """How long the handshake of TLS, and the exchange of SASL, may take."""
    now_ms: Callable[[], int]
    """The wall clock, which tokens expire by."""
    mechanisms: Mapping[str, Mechanism] = field(default_factory=dict, repr=False)
    """Those of SASL, if the listener has it."""
    receive_bytes_max: int = 0
    failure_delay_ms: int = 0
    rules: Sequence[Rule] = ()
    """From a client's certificate to its name, if that is how it is known."""
    context: Callable[[], ssl.SSLContext] | None = None
    """Returns the TLS context for a new connection, if the listener has TLS."""
    identify: Callable[[bytes], str] | None = None
    """Returns the principal of a certificate in place of `rules`, ValueError if it has none."""


class SecuredConnection(Connection):
    """One connection of a listener with TLS or SASL."""

    def __init__(
        self,
        security: ListenerSecurity,
        dispatcher: Dispatcher,
        traffic: Traffic,
    ) -> None:
        self._security = security
        self._behind = dispatcher
        self.release: Callable[[], None] = lambda: None
        """Gives back what was reserved for the connection when it was accepted."""
        self._timer: asyncio.TimerHandle | None = None
        self.node_certificate = b""
        """What another node has shown, on the listener for nodes."""
        self._is_new = True
        """Whether it has not begun: others that have connected before it have their turn first."""
        self._is_gated = bool(security.mechanisms)
        if security.mechanisms:
            super().__init__(
                security.name,
                Gate(dispatcher, traffic.audit),
                traffic,
                frame_bytes_max=security.receive_bytes_max,
            )
            self.authentication = Authentication(security.mechanisms)
            self._direct_max = 0
        else:
            super().__init__(security.name, dispatcher, traffic)

    @property
    def failure_delay_ms(self) -> int:
        """How long a client waits to hear that it failed to authenticate."""
        return self._security.failure_delay_ms

    @property
    def is_expired(self) -> bool:
        """Whether its session has ended."""
        authentication = self.authentication
        return authentication is not None and authentication.is_expired(self._security.now_ms())

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.release()
        super().connection_made(transport)
        if not self.is_closed and not self._is_muted:
            self._begin()

    def unmute(self) -> None:
        """Go on with requests; a new connection begins now that it is its turn."""
        if self._is_new and not self.is_closed:
            self._begin()
        super().unmute()

    def _begin(self) -> None:
        """Begin to wait for the client to authenticate, or take who it is from its certificate."""
        self._is_new = False
        if self.authentication is not None:
            self._traffic.begin_handshake(self)
            seconds = self._security.timeout_ms / 1000
            self._timer = asyncio.get_running_loop().call_later(seconds, self._on_timeout)
        elif self._security.rules or self._security.identify is not None:
            self._identify(self._transport)

    def is_of_unknown_node(self) -> bool:
        """Return whether the certificate of another node would not be let in any more."""
        identify = self._security.identify
        if identify is None or not self.node_certificate:
            return False
        try:
            identify(self.node_certificate)
        except ValueError:
            return True
        return False

    def get_buffer(self, sizehint: int) -> memoryview:
        room = self._reader.buffer()
        return room[:GATED_READ_BYTES] if self._is_gated else room

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._traffic.end_handshake(self)
        super().connection_lost(exc)

    def on_authenticated(self) -> None:
        """Admit the client: its authentication has a principal, or has one again."""
        authentication = self.authentication
        assert authentication is not None
        assert authentication.principal is not None
        self._stop_timer()
        self._traffic.end_handshake(self)
        self.principal = authentication.principal
        self._is_gated, self._direct_max = False, DIRECT_MAX
        expires_ms = authentication.expires_ms
        if expires_ms is None:
            self.pass_to(self._behind)
            return
        self.pass_to(SessionGate(self._behind, self._traffic.audit))
        seconds = max(0, expires_ms - self._security.now_ms()) / 1000
        self._timer = asyncio.get_running_loop().call_later(seconds, self._on_session_over)

    def _turn_ends_ns(self) -> int:
        return self._traffic.gated_turn_ends_ns() if self._is_gated else super()._turn_ends_ns()

    def _identify(self, transport: asyncio.BaseTransport) -> None:
        """Take the principal from the client's certificate; without one it is anonymous."""
        tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        certificate = None if tls is None else tls.getpeercert(binary_form=True)
        identify = self._security.identify
        if certificate is None and identify is None:
            return
        audit = self._traffic.audit
        try:
            if identify is not None:
                self.node_certificate = certificate or b""
                self.principal = identify(self.node_certificate)
            else:
                self.principal = principal_of(certificate or b"", self._security.rules)
            if audit is not None:
                audit.authenticated(self, self._security.protocol)
        except (NoRuleApplies, ValueError) as error:
            if audit is not None:
                audit.not_authenticated(self, self._security.protocol, "", str(error))
            self.close(f"its certificate names no user: {error}")

    def _on_timeout(self) -> None:
        self._timer = None
        self._traffic.counters.authentications_failed += 1
        if self._traffic.audit is not None:
            self._traffic.audit.not_authenticated(self, "", "", "not in time")
        self.close(
            f"not authenticated within {self._security.timeout_ms} ms "
            "(headrace.authentication.timeout.ms)"
        )

    def _on_session_over(self) -> None:
        """End a session that was not renewed; what waits for records must not wait longer."""
        self._timer = None
        if self.is_expired:
            self.close(f"the session of {self.principal} has ended and was not renewed")
        elif self.authentication is not None and self.authentication.expires_ms is not None:
            # The wall clock was moved back, or the loop's runs a little faster.
            self._timer = asyncio.get_running_loop().call_later(0.1, self._on_session_over)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
