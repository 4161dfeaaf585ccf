"""Calls of operators to a node: how it sees the cluster, join tokens, moves, nodes that leave.

    operator = Operator(links, addresses, now_ms=clock.now_ms, explain_waiting=..., has_secret=True)
    operator.serve()                            # from the start: a node that waits says why
    operator.attach(quorum, controller, members)    # once there is a metadata log
    operator.swim = shell

A view is this node's own: it asks nobody, so it is there however broken the cluster is. All else
goes through the metadata log, on whichever node it is asked for.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol

from headrace import __version__
from headrace.cluster import operator_words as words
from headrace.cluster.address_book import AddressBook
from headrace.cluster.controller import Controller
from headrace.cluster.departures import Departures
from headrace.cluster.encryption.care import CertificateCare
from headrace.cluster.operator_moves import abort_moves, list_moves
from headrace.cluster.placement_lease import PlacementLease
from headrace.cluster.quorum_members import QuorumMembers
from headrace.cluster.swim.shell import SwimShell
from headrace.cluster.tokens import register_token, revoke
from headrace.cluster.transport.calls import IncomingCall, InvalidPayload
from headrace.cluster.transport.hello import Purpose
from headrace.cluster.transport.links import Links
from headrace.cluster.words import OPERATE
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import BrokerId
from headrace.loop.tasks import Tasks
from headrace.metadata.entries import Batch
from headrace.metadata.image import Image
from headrace.metadata.join_tokens import JoinClaim
from headrace.metadata.quorum import MetadataQuorum
from headrace.raft.errors import NotLeader, ReadDropped
from headrace.raft.state import Role
from headrace.replication.replicas import Replicas

logger = logging.getLogger(__name__)

WAIT_SECONDS_MAX: Final = 5.0
"""How long a call waits for a leader of the metadata log."""
BACKUP_SECONDS_MAX: Final = 280.0
"""How long a backup or a restore may take."""
VOTER_MS_MAX: Final = 4000
"""How long a call waits for a change of voters; whoever calls may call again."""
RETRY_SECONDS: Final = 0.05
TOKENS_MAX: Final = 10_000
"""The most tokens that are listed, those that expire last."""


class Backups(Protocol):
    """Backups of the metadata, in gzip (`headrace.node.backups`)."""

    async def take(self) -> bytes: ...

    async def restore(
        self, data: bytes, is_dry_run: bool, without_configs: tuple[str, ...]
    ) -> words.BackupRestored: ...


class Operator:
    """The operator's side of a node."""

    def __init__(
        self,
        links: Links,
        addresses: AddressBook,
        *,
        has_secret: bool,
        now_ms: Callable[[], int],
        explain_waiting: Callable[[], str],
    ) -> None:
        """`now_ms` is the wall clock; `explain_waiting` returns nothing once the node serves."""
        self._links = links
        self._addresses = addresses
        self._has_secret = has_secret
        self._now_ms = now_ms
        self._explain_waiting = explain_waiting
        self.address = ""
        """The address of this node's node port."""
        self.swim: SwimShell | None = None
        self.replicas: Replicas | None = None
        """The partitions of this node, once it has opened them."""
        self.backups: Backups | None = None
        self.on_command: Callable[[words.Request, KafkaError | None], None] = (
            lambda request, error: None
        )
        """Hears what was commanded, and whether it was refused."""
        """Backups of the metadata, once this node serves clients."""
        self._quorum: MetadataQuorum | None = None
        self._controller: Controller | None = None
        self._departures: Departures | None = None
        self._placement: PlacementLease | None = None
        self._certificates: CertificateCare | None = None
        self._tasks = Tasks()

    def serve(self) -> None:
        self._links.serve(OPERATE, self._on_call, for_operators=True)

    def attach(
        self,
        quorum: MetadataQuorum,
        controller: Controller,
        members: QuorumMembers,
        certificates: CertificateCare | None = None,
    ) -> None:
        """Take part in the metadata log from now on."""
        self._certificates = certificates
        self._quorum, self._controller = quorum, controller
        self._departures = Departures(quorum, members)
        self._placement = PlacementLease(quorum, self._now_ms)

    def close(self) -> None:
        self._tasks.cancel()

    def view(self) -> words.NodeView:
        """Return how this node sees itself and the others, now."""
        identity, controller = self._links.identity, self._controller
        sessions = () if controller is None else controller.describe_sessions()
        return words.NodeView(
            node=identity.node,
            address=self.address,
            version=__version__,
            cluster_id=identity.cluster_id,
            waiting=self._explain_waiting(),
            is_controller=controller is not None and controller.is_active,
            quorum=None if self._quorum is None else _view_quorum(self._quorum),
            nodes=self._nodes(),
            links=tuple(
                words.LinkRow(
                    each.node, each.state, "" if each.peer is not None else each.last_problem
                )
                for each in self._links.describe()
                if each.purpose is Purpose.CONTROL
            ),
            probes=self._probes(),
            sessions=tuple(
                words.SessionView(
                    each.broker,
                    words.UNKNOWN_MS if each.heard_ms_ago is None else each.heard_ms_ago,
                    each.ends_in_ms,
                    each.is_suspect,
                )
                for each in sessions
            ),
        )

    # Calls

    def _on_call(self, call: IncomingCall) -> None:
        try:
            request = words.decode_request(call.payload)
        except ValueError as error:  # msgspec's
            raise InvalidPayload(str(error)) from None
        if isinstance(request, words.ViewNode):
            call.answer(words.encode(self.view()))
        elif isinstance(request, words.ListMoves) and self._quorum is not None:
            node, image = self._links.identity.node, self._quorum.image
            call.answer(words.encode(list_moves(node, image, self.replicas)))
        else:
            self._tasks.start(self._answer(call, request))

    async def _answer(self, call: IncomingCall, request: words.Request) -> None:
        response: words.Response
        try:
            is_long = isinstance(request, words.TakeBackup | words.RestoreBackup)
            async with asyncio.timeout(BACKUP_SECONDS_MAX if is_long else WAIT_SECONDS_MAX):
                response = await self._handle(request)
            self.on_command(request, None)
        except TimeoutError:
            why = " ".join(self._quorum.explain()) if self._quorum is not None else ""
            response = words.Refused(
                ErrorCode.REQUEST_TIMED_OUT, f"the metadata log does not respond: {why}"
            )
        except KafkaError as error:
            response = words.Refused(error.code, error.message)
            self.on_command(request, error)
        except asyncio.CancelledError:
            call.fail("the node is stopping")
            raise
        except Exception as error:  # whoever asked would wait for nothing
            logger.exception("%s of an operator has failed", type(request).__name__)
            response = words.Refused(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"{type(request).__name__} has failed: {type(error).__name__}: {error}; the log of "
                f"node {self._links.identity.node} says more",
            )
        call.answer(words.encode(response))

    async def _handle(self, request: words.Request) -> words.Response:  # noqa: PLR0911  a table
        quorum = self._quorum
        if quorum is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, self._explain_waiting() or "not ready yet")
        image = await _read(quorum)
        if isinstance(request, words.StartLeaving | words.KeepNode | words.FinishLeaving):
            return await self._change_node(image, request)
        if isinstance(request, words.HoldPlacement | words.ReleasePlacement):
            return await self._lease(image, request)
        if isinstance(request, words.ShowCa | words.RotateCa):
            return await self._show_ca(request)
        match request:
            case words.RegisterToken(token_hash, expires_at_s):
                self._check_secret()
                claim = JoinClaim(words.NOBODY, expires_at_s, token_hash)
                await quorum.propose(register_token(claim, self._now_ms()))
                pins = () if self._certificates is None else self._certificates.pins()
                return words.Done(token_hash, pins)
            case words.RevokeToken(prefix, expires_at_s):
                self._check_secret()
                claim = _find(image, prefix, expires_at_s)
                if steps := revoke(image, claim, self._now_ms()):
                    await quorum.propose(Batch(tuple(steps)))
                return words.Done(claim.token_hash)
            case words.AbortMoves():
                return await abort_moves(quorum, image, request)
            case words.TakeBackup():
                return words.BackupTaken(await self._find_backups().take())
            case words.RestoreBackup(data, is_dry_run, without_configs):
                return await self._find_backups().restore(data, is_dry_run, without_configs)
            case _:
                return words.Tokens(_list_tokens(image))

    def _find_backups(self) -> Backups:
        if self.backups is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, self._explain_waiting() or "not ready yet")
        return self.backups

    async def _change_node(
        self, image: Image, request: words.StartLeaving | words.KeepNode | words.FinishLeaving
    ) -> words.Response:
        assert self._departures is not None
        node = BrokerId(request.node)
        match request:
            case words.StartLeaving(is_dead=is_dead):
                await self._departures.start(image, node, is_dead=is_dead)
            case words.KeepNode():
                await self._departures.cancel(image, node)
            case words.FinishLeaving():
                await self._departures.finish(image, node, VOTER_MS_MAX)
        return words.Accepted()

    async def _show_ca(self, request: words.ShowCa | words.RotateCa) -> words.Response:
        if self._certificates is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "the nodes of this cluster speak in plain text to each other (headrace.node.tls), "
                "so there is no CA",
            )
        if isinstance(request, words.RotateCa):
            return await self._certificates.rotate()
        return await self._certificates.show()

    async def _lease(
        self, image: Image, request: words.HoldPlacement | words.ReleasePlacement
    ) -> words.Response:
        assert self._placement is not None
        if isinstance(request, words.ReleasePlacement):
            await self._placement.release(image, request.version)
            return words.Accepted()
        held = await self._placement.hold(image, request.version, takes_over=request.takes_over)
        return words.Held(held.version, held.lease_ms)

    def _check_secret(self) -> None:
        if not self._has_secret:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "this cluster has no secret, so nodes join on this machine without a token; set "
                "headrace.cluster.secret.file on every node to let in nodes of other machines",
            )

    # What is seen

    def _nodes(self) -> tuple[words.NodeRow, ...]:
        """Return the nodes of the metadata log, and those whose addresses alone are known."""
        rows = {}
        for node in self._addresses.nodes:
            address = self._addresses.text(node)
            rows[int(node)] = words.NodeRow(node, address, "", False, False, False)
        image = None if self._quorum is None else self._quorum.image
        for row in image.state.nodes.values() if image is not None else ():
            broker = image.broker(BrokerId(row.node_id)) if image is not None else None
            rows[row.node_id] = words.NodeRow(
                row.node_id,
                row.addr,
                row.state.name,
                broker is not None,
                broker is not None and broker.is_fenced,
                broker is not None and broker.is_shutting_down,
                0 if image is None else image.replica_count(BrokerId(row.node_id)),
            )
        return tuple(row for _, row in sorted(rows.items()))

    def _probes(self) -> tuple[words.ProbeRow, ...]:
        if self.swim is None:
            return ()
        return tuple(
            words.ProbeRow(each.node, each.standing.name, each.is_heard)
            for each in self.swim.swim.view()
        )


def _view_quorum(quorum: MetadataQuorum) -> words.QuorumView:
    driver = quorum.driver
    state = driver.state
    now_ms = int(asyncio.get_running_loop().time() * 1000)
    followers = [
        words.FollowerRow(
            node,
            max(state.log.last_index - each.match_index, 0),
            max(now_ms - each.contact_ms, 0) if each.has_answered else words.UNKNOWN_MS,
        )
        for node, each in sorted(state.progress.items())
    ]
    return words.QuorumView(
        role=state.role.name,
        term=state.term,
        leader=words.NOBODY if state.leader is None else state.leader,
        commit=state.log.commit,
        last_index=state.log.last_index,
        applied=driver.applied_index,
        voters=state.membership.voters,
        learners=state.membership.learners,
        failure=driver.failure or "",
        full_disk=driver.full_disk.reason or "",
        followers=tuple(followers) if state.role is Role.LEADER else (),
        explanation=tuple(quorum.explain()),
    )


async def _read(quorum: MetadataQuorum) -> Image:
    """Return the image with all that was committed before."""
    while True:
        try:
            return await quorum.read()
        except (NotLeader, ReadDropped):
            await asyncio.sleep(RETRY_SECONDS)


def _find(image: Image, prefix: bytes, expires_at_s: int) -> JoinClaim:
    """Return a token by how its hash begins; KafkaError if it is not the only one."""
    tokens = image.state.join_tokens
    if len(prefix) == words.HASH_BYTES and (prefix in tokens or expires_at_s):
        state = tokens.get(prefix)
        known_s = expires_at_s if state is None else state.expires_at_ms // 1000
        return JoinClaim(words.NOBODY, known_s, prefix)
    found = [key for key in tokens if key.startswith(prefix)]
    if len(found) != 1:
        which = "no join token has" if not found else f"{len(found)} join tokens have"
        raise KafkaError(
            ErrorCode.RESOURCE_NOT_FOUND,
            f"{which} a hash that begins with {prefix.hex()}: `headrace cluster token list` shows "
            "them",
        )
    return JoinClaim(words.NOBODY, tokens[found[0]].expires_at_ms // 1000, found[0])


def _list_tokens(image: Image) -> tuple[words.TokenRow, ...]:
    nodes = {row.addr: row.node_id for row in image.state.nodes.values()}
    rows = [
        words.TokenRow(
            key,
            token.status.name,
            token.expires_at_ms,
            token.node_addr or "",
            nodes.get(token.node_addr or "", words.NOBODY),
        )
        for key, token in image.state.join_tokens.items()
    ]
    rows.sort(key=lambda row: row.expires_at_ms, reverse=True)
    return tuple(rows[:TOKENS_MAX])
