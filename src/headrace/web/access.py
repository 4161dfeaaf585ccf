"""Who may read the pages: by which host name, with which login, with which rights.

    access = Access(node)
    protocol.app = access.guard(application, visitor)    # of one connection

Without a login, pages are for programs and browsers of this machine. A browser asks for whatever a
page of somebody else's tells it to, under a name that it was told has this machine's address (DNS
rebinding), so requests must name a host that is known. With a login that cannot happen: a browser
sends a password only to the name that it was given for.

/healthz and /readyz need no login, as load balancers have none. With an authorizer, the other pages
need DESCRIBE on the cluster, and the one with metadata entries DESCRIBE_CONFIGS on it, too.
"""

import asyncio
import logging
import secrets
import socket
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, Protocol

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response

from headrace import config
from headrace.client.node_inspection import METADATA_PATH
from headrace.cluster.transport.crowd import network_of
from headrace.config.pages import ANY_HOST, LOGIN_NONE, LOGIN_PASSWORD
from headrace.config.security_checks import has_authorizer, pages_listener
from headrace.metadata.credential_shapes import Shape
from headrace.sasl import scram
from headrace.security.acls import CLUSTER_NAME, Operation, Resource
from headrace.security.audit import AUTHENTICATION, DENIED, FAILED, SUCCEEDED, host_of
from headrace.security.passwords import Credentials, Login, Passwords, read_basic
from headrace.security.principals import user
from headrace.server.listeners import parse_listener

if TYPE_CHECKING:
    from headrace.node.node import Node

Scope = MutableMapping[str, Any]
Application = Callable[[Scope, Any, Any], Awaitable[None]]

OPEN_PATHS: Final = ("/healthz", "/readyz")
KNOWN: Final = "headrace.is_known"
"""The key in a request's scope that says whether the response has reasons."""
REMEMBERED_MAX: Final = 256
"""How many logins need no second computation."""
PROVING_MAX: Final = 32
"""How many passwords wait to be computed; more are sent away."""
PROVING_PER_HOST_MAX: Final = 4
"""How many of one host do, so that one that guesses keeps out itself."""
NAME_CHARACTERS_SHOWN: Final = 100
UNKNOWN_HOST: Final = "this node has no pages by that name; headrace.http.hosts can have it"
BUSY: Final = "too many passwords are being checked: try again in a moment"
UNAUTHORIZED: Final = {"WWW-Authenticate": 'Basic realm="headrace", charset="UTF-8"'}

logger = logging.getLogger(__name__)


class Visitor(Protocol):
    """A connection, as the rules see it."""

    principal: str
    """Whom its certificate names."""
    address: str
    is_proving: bool
    """Whether it waits for its password to be checked: such are closed first if there are many."""

    @property
    def is_gone(self) -> bool: ...


class TooManyProving(Exception):
    """A login that cannot be checked now."""


class Access:
    """The rules of one node's pages."""

    def __init__(self, node: "Node") -> None:
        """Learn the node's names, which may ask the system: in a thread."""
        settings = node.settings
        listener = pages_listener(settings)
        assert listener is not None, "there are no pages"
        self._node = node
        self._login: str = settings[config.HTTP_LOGIN]
        self._has_authorizer = has_authorizer(settings)
        advertised = settings[config.ADVERTISED_LISTENERS] or ()
        named = (
            *(listener.host, socket.gethostname(), socket.getfqdn()),
            *(parse_listener(each).host for each in advertised),
            *settings[config.HTTP_HOSTS],
        )
        self._hosts = frozenset(each.lower().strip("[]") for each in named if each)
        self._passwords = Passwords(self._credential, secrets.token_bytes(32), self._shape)
        self._remembered: OrderedDict[bytes, tuple[object, ...]] = OrderedDict()
        self._turn = asyncio.Semaphore()
        """One password is computed at a time: guessing keeps one thread busy, not all of them."""
        self._proving: Counter[str] = Counter()
        """By host: how many wait for that."""

    def guard(self, application: Application, visitor: Visitor) -> Application:
        """Return the application as a connection sees it."""

        async def guarded(scope: Scope, receive: Any, send: Any) -> None:
            response = await self._look(scope, visitor)
            await (application if response is None else response)(scope, receive, send)

        return guarded

    async def _look(self, scope: Scope, visitor: Visitor) -> Response | None:
        """Return why a request is refused, or None."""
        path: str = scope["path"]
        if not path.isprintable():  # a route takes a newline behind its name for nothing
            return _text(404, "no page has such a name")
        scope[KNOWN] = True
        if self._login == LOGIN_NONE:
            host = Headers(scope=scope).get("host", "")
            return None if self._is_host(host) else _text(421, UNKNOWN_HOST)
        principal: str | None = visitor.principal
        if self._login == LOGIN_PASSWORD:
            header = Headers(scope=scope).get("authorization", "")
            if path in OPEN_PATHS and not header:
                scope[KNOWN] = False
                return None
            try:
                principal = await self._log_in(header, visitor, path)
            except TooManyProving:
                return _text(503, BUSY, {"Retry-After": "1"})
        if principal is None:
            return _text(401, "log in with the name and password of a SCRAM user", UNAUTHORIZED)
        return None if path in OPEN_PATHS else self._judge(path, principal, visitor.address)

    def _is_host(self, header: str) -> bool:
        """Return whether a Host header has an address or a name that is known."""
        if ANY_HOST in self._hosts:
            return True
        name = header.rpartition("]")[0] if header.startswith("[") else header.partition(":")[0]
        name = name.strip("[]").lower()
        if name in self._hosts or name == "localhost":
            return True
        try:
            ip_address(name)
        except ValueError:
            return False
        return True

    async def _log_in(self, header: str, visitor: Visitor, path: str) -> str | None:
        """Return the principal of a login, or None; raise TooManyProving."""
        login = read_basic(header)
        if login is None:
            return None
        credentials = self._passwords.credentials_of(login.name)
        digest = self._passwords.digest(login)
        if self._remembered.get(digest) == credentials:
            self._remembered.move_to_end(digest)
            return user(login.name)
        host = network_of(host_of(visitor.address))
        if self._proving.total() >= PROVING_MAX or self._proving[host] >= PROVING_PER_HOST_MAX:
            raise TooManyProving
        self._proving[host] += 1
        visitor.is_proving = True
        try:
            is_right = await self._is_right(login, credentials, visitor, path)
        finally:
            visitor.is_proving = False
            self._proving[host] -= 1
            self._proving += Counter()  # without those that are zero
        if not is_right:
            return None
        self._remembered[digest] = credentials
        if len(self._remembered) > REMEMBERED_MAX:
            self._remembered.popitem(last=False)
        return user(login.name)

    async def _is_right(
        self, login: Login, credentials: Credentials, visitor: Visitor, path: str
    ) -> bool:
        loop = asyncio.get_running_loop()
        # From here, so that the time does not tell which names there are.
        delay_ms = self._node.settings[config.CONNECTION_FAILED_AUTHENTICATION_DELAY_MS]
        told = loop.time() + delay_ms / 1000
        async with self._turn:
            is_right = not visitor.is_gone and await loop.run_in_executor(
                None, self._passwords.is_right, login.password, credentials
            )
        counters, address = self._node.counters, visitor.address
        if is_right:
            counters.authentications_succeeded += 1
            self._tell(AUTHENTICATION, SUCCEEDED, user(login.name), address, path)
            return True
        counters.authentications_failed += 1
        self._tell(AUTHENTICATION, FAILED, user(login.name), address, path)
        logger.info("HTTP login of %.*r from %s failed", NAME_CHARACTERS_SHOWN, login.name, address)
        await asyncio.sleep(max(0.0, told - loop.time()))
        return False

    def _credential(self, name: str, mechanism: scram.Mechanism) -> scram.Credential | None:
        if self._node.explain_waiting() is not None:
            return None
        row = self._node.broker.image.scram_credential(name, mechanism.type_id)
        if row is None:
            return None
        return scram.Credential(row.iterations, row.salt, row.stored_key, row.server_key)

    def _shape(self, mechanism: scram.Mechanism, number: int) -> Shape | None:
        if self._node.explain_waiting() is not None:
            return None
        return self._node.broker.image.credential_shapes.pick(mechanism.type_id, number)

    def _judge(self, path: str, principal: str, address: str) -> Response | None:
        """Return why somebody may not read a page, or None."""
        if not self._has_authorizer:
            return None
        if (reason := self._node.explain_waiting()) is not None:
            return _text(503, reason)  # nobody's rights are known yet
        authorizer = self._node.broker.authorizer
        assert authorizer is not None
        needed, host = [Operation.DESCRIBE], host_of(address)
        if path == METADATA_PATH:
            needed.append(Operation.DESCRIBE_CONFIGS)
        for each in needed:
            if not authorizer.allows(principal, host, each, Resource.CLUSTER, CLUSTER_NAME):
                self._node.counters.requests_denied += 1
                self._tell(DENIED, DENIED, principal, address, path)
                return _text(403, f"{principal} needs {each.name} on the cluster for this page")
        return None

    def _tell(self, kind: str, outcome: str, principal: str, address: str, path: str) -> None:
        audit = self._node.traffic.audit
        if audit is not None:
            audit.visited(kind, outcome, principal, address=address, page=path)


def _text(status: int, words: str, headers: dict[str, str] | None = None) -> Response:
    return PlainTextResponse(f"{words}\n", status_code=status, headers=headers)
