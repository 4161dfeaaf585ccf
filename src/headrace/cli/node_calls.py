"""Calls of commands to node ports: what Kafka's protocol has no request for.

    async with NodeCalls(read_secret_file(path)) as calls:
        view = await calls.ask("127.0.0.1:9093", ViewNode())
        views = await ask_all(calls, ["127.0.0.1:9093"])

A command is no peer of the nodes. It has the node id of operators, and they take nothing else from
it than what is meant for operators.
"""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Self

import click

from headrace.cli.options import FilePath
from headrace.client.errors import InvalidAddress, NotReachable
from headrace.cluster import operator_words as words
from headrace.cluster.address_book import parse_address
from headrace.cluster.transport.calls import CallError, CallFailed
from headrace.cluster.transport.hello import OPERATOR, Identity
from headrace.cluster.transport.links import Links
from headrace.cluster.transport.refusals import Reason
from headrace.cluster.words import OPERATE
from headrace.errors import ErrorCode, HeadraceError, KafkaError
from headrace.surroundings import new_uuid

DEFAULT_NODE: Final = "127.0.0.1:9093"
TIMEOUT_MS: Final = 10_000
VIEW_TIMEOUT_MS: Final = 2000
"""How long a node has to say how it is; others are asked at the same time."""
NODES_MAX: Final = 1000

node_option: Final = click.option(
    "--node",
    metavar="HOST:PORT",
    default=DEFAULT_NODE,
    envvar="HEADRACE_NODE",
    show_envvar=True,
    help="The node port of a node; comma-separated for several.",
)
secret_option: Final = click.option(
    "--secret-file",
    type=FilePath(),
    envvar="HEADRACE_CLUSTER_SECRET_FILE",
    show_envvar=True,
    help="The file with the secret of the cluster, if it has one.",
)


class CannotRead(HeadraceError):
    """A file that a command needs."""


def read_secret_file(path: Path | None) -> bytes | None:
    """Return the secret in a file, None without a file."""
    if path is None:
        return None
    try:
        return path.read_bytes().strip()
    except OSError as error:
        raise CannotRead(f"--secret-file {path}: {error.strerror}") from None


def parse_nodes(text: str) -> list[str]:
    """Return the addresses of a list; InvalidAddress if one is none."""
    addresses = [each.strip() for each in text.split(",") if each.strip()]
    try:
        for each in addresses:
            parse_address(each)
    except ValueError as error:
        raise InvalidAddress(f"--node: {error}") from None
    if not addresses:
        raise InvalidAddress("--node: must be HOST:PORT")
    return addresses


class NodeCalls:
    """Connections to node ports, one for each call."""

    def __init__(self, secret: bytes | None) -> None:
        self._secret = secret
        self._identity = Identity(OPERATOR, new_uuid().bytes, 1)
        self._links = Links(self._identity, secret=secret, address_of=lambda node: None)
        self._under_tls: Links | None = None
        """For nodes that speak TLS, once one has said so."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._links.close()
        if self._under_tls is not None:
            await self._under_tls.close()

    async def ask(
        self, address: str, request: words.Request, timeout_ms: int = TIMEOUT_MS
    ) -> words.Response:
        """Return what the node at an address responds; NotReachable without, or KafkaError."""
        try:
            payload = await self._call(address, words.encode(request), timeout_ms)
            response = words.decode_response(payload)
        except CallFailed as error:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{address}: {error.reason}") from None
        except CallError as error:
            reason = str(error.refused) if error.refused is not None else error.reason
            raise NotReachable(f"{address}: {reason}") from None
        except ValueError as error:  # msgspec's
            raise NotReachable(f"{address}: a response that cannot be read: {error}") from None
        if isinstance(response, words.Refused):
            raise KafkaError(ErrorCode(response.code), response.message)
        return response

    async def _call(self, address: str, payload: bytes, timeout_ms: int) -> bytes:
        """Return a response, in plain text or under TLS, as the node speaks.

        Nobody in between can choose for both: what each side proves says how it hears the other.
        """
        place = parse_address(address)
        if self._under_tls is None:
            try:
                _, response = await self._links.call_address(
                    place, payload, timeout_ms, kind=OPERATE
                )
                return response
            except CallError as error:
                if error.refused is None or error.refused.reason is not Reason.TLS_EXPECTED:
                    raise
            from headrace.cluster.encryption.node_tls import OperatorTls  # noqa: PLC0415  50 ms

            self._under_tls = Links(
                self._identity,
                secret=self._secret,
                address_of=lambda node: None,
                tls=OperatorTls(),
            )
        _, response = await self._under_tls.call_address(place, payload, timeout_ms, kind=OPERATE)
        return response

    async def ask_any(
        self, addresses: Iterable[str], request: words.Request, timeout_ms: int = TIMEOUT_MS
    ) -> words.Response:
        """Return the response of the first node of a list that can be reached."""
        failed: NotReachable | None = None
        for address in addresses:
            try:
                return await self.ask(address, request, timeout_ms)
            except NotReachable as error:
                failed = failed or error
        assert failed is not None, "there is at least one address"
        raise failed


class Views:
    """What the nodes of a cluster see, and why some could not be asked."""

    def __init__(self) -> None:
        self.seen: dict[int, words.NodeView] = {}
        """By node id."""
        self.failed: dict[str, str] = {}
        """Why an address gave no view."""


async def ask_all(calls: NodeCalls, addresses: Iterable[str]) -> Views:
    """Ask the nodes at addresses, and all nodes that these know of, all at once.

    NotReachable if no node can be asked.
    """
    views, asked = Views(), set[str]()
    todo = set(addresses)
    first: Exception | None = None

    async def ask(address: str) -> None:
        nonlocal first
        try:
            view = await calls.ask(address, words.ViewNode(), VIEW_TIMEOUT_MS)
        except (NotReachable, KafkaError) as error:
            first = first or error
            views.failed[address] = str(error).removeprefix(f"{address}: ")
            return
        if isinstance(view, words.NodeView):
            views.seen[view.node] = view
            known.update(row.address for row in view.nodes if row.address)
            asked.add(view.address)

    known: set[str] = set()
    while todo and len(asked) < NODES_MAX:
        asked |= todo
        await asyncio.gather(*map(ask, sorted(todo)))
        todo = known - asked
    if not views.seen:
        assert first is not None, "an address without a view has a reason"
        raise first
    return views
