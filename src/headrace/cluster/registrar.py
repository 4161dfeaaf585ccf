"""Registering nodes: who may join or come back, and the entries that say so.

The controller uses it. Registrations are made one after the other, so that what was checked against
the image still holds when the entries are applied.
"""

import asyncio
from collections.abc import Callable, Container, Iterator

import msgspec

from headrace import config
from headrace.cluster import words
from headrace.cluster.plans import ddl_entry, propose_all, propose_plan
from headrace.cluster.tokens import begin_join, check_token, denied_by, finish_join
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import BrokerId
from headrace.metadata.ddl import ChangeBroker, Ddl, RegisterBroker, decode_ddl
from headrace.metadata.entries import Entry, Join, PromoteToVoter, TopologyChange
from headrace.metadata.errors import InvalidEntry, Refused, refuse
from headrace.metadata.features import HEADRACE_VERSION, METADATA_VERSION
from headrace.metadata.image import Image
from headrace.metadata.join_tokens import JoinClaim
from headrace.metadata.quorum import MetadataQuorum
from headrace.metadata.state import Broker, NodeState
from headrace.metadata.token_states import TokenRefused
from headrace.metadata.topology import is_address
from headrace.raft.errors import RaftError
from headrace.raft.state import State
from headrace.replication.elections import (
    AllowsUnclean,
    never,
    plan_registration,
    plan_unfencing,
)


class Admission(msgspec.Struct, frozen=True):
    """What a new node needs to be let in."""

    now_ms: Callable[[], int]
    """The wall clock."""
    token_secret: bytes | None = None
    """What signs join tokens; None if no token is needed."""
    invited: Container[str] = ()
    """The addresses of nodes that need no token."""


class Registrar:
    """Puts nodes that start into the metadata log."""

    def __init__(
        self,
        quorum: MetadataQuorum,
        admission: Admission,
        allows_unclean: AllowsUnclean = never,
    ) -> None:
        self._quorum = quorum
        self._admission = admission
        self._allows_unclean = allows_unclean
        self._lock = asyncio.Lock()
        self.registering: BrokerId | None = None
        """The node whose former life ends now: it must not be unfenced meanwhile."""

    async def register(
        self, node: BrokerId, folder: bytes, wanted: words.Register
    ) -> words.Registered | words.Failed:
        """Register a node whose connection proved its id and its data folder, or say why not."""
        async with self._lock:
            self.registering = node
            try:
                return await self._register(node, folder, wanted)
            except (RaftError, Refused) as error:
                # Refused: the image has changed since it was looked at, and the next look decides.
                return words.Failed(error.code, error.message, may_retry=True)
            except KafkaError as error:
                return words.Failed(error.code, error.message)
            finally:
                self.registering = None

    async def _register(
        self, node: BrokerId, folder: bytes, wanted: words.Register
    ) -> words.Registered | words.Failed:
        quorum = self._quorum
        ddl = _read(wanted, node, folder)
        former = quorum.image.broker(node)
        if former is not None and former.log_dirs and folder not in former.log_dirs:
            raise wiped(node)
        _check_may_join(quorum.image, node, wanted.address)
        _check_room(quorum.image, quorum.driver.state, node)
        _check_version(quorum.image, node, ddl)
        claim = await self._take_token(node, wanted)
        is_own = node == quorum.driver.node
        changes: list[Entry] = [TopologyChange(Join(node, wanted.address))]
        if former is not None and former.incarnation_id != ddl.incarnation_id:
            await self._end_life(former, was_clean=wanted.clean_epoch == former.broker_epoch)
        # A controller has all that is committed, so it need not wait to be unfenced.
        changes.append(ddl_entry(msgspec.structs.replace(ddl, is_fenced=not is_own)))
        if is_own and node in quorum.driver.state.membership.voters:
            changes.append(TopologyChange(PromoteToVoter(node)))
        if claim is not None:
            changes.append(finish_join(claim, wanted.address, self._admission.now_ms()))
        index = await propose_all(quorum, changes)
        if is_own:
            await propose_plan(
                quorum, lambda image: plan_unfencing(image, node, self._allows_unclean)
            )
        image = quorum.image
        broker = image.broker(node)
        if broker is None or broker.incarnation_id != ddl.incarnation_id:
            return words.Failed(
                ErrorCode.DUPLICATE_BROKER_REGISTRATION, "another process has registered since"
            )
        addresses = {row.node_id: row.addr for row in image.state.nodes.values()}
        return words.Registered(image.state.cluster_id, broker.broker_epoch, index, addresses)

    async def _end_life(self, former: Broker, *, was_clean: bool) -> None:
        """Fence the former life of a node and take it out of where it may miss records.

        Fenced first: a leader that hears of it still could put it back into an ISR that was dealt
        with already, and the new life would be there without the records.
        """
        node = former.broker_id

        def plan(image: Image) -> Iterator[Ddl | None]:
            broker = image.broker(node)
            if broker is not None and not broker.is_fenced:
                yield ChangeBroker(node, former.broker_epoch, is_fenced=True)
            yield from plan_registration(
                image, node, was_clean=was_clean, allows_unclean=self._allows_unclean
            )

        if not await propose_plan(self._quorum, plan):
            raise refuse(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"partitions of node {node} change too often to take its former life out of them",
            )

    async def _take_token(self, node: BrokerId, wanted: words.Register) -> JoinClaim | None:
        """Admit a new node by its token: TokenDenied if refused, None if it needs no token."""
        image, secret = self._quorum.image, self._admission.token_secret
        is_known = image.node(node) is not None or node == self._quorum.driver.node
        if secret is None or is_known or wanted.address in self._admission.invited:
            return None
        if not wanted.token:
            raise KafkaError(
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                f"node {node} at {wanted.address} is new and not one of headrace.seeds, so it "
                f"needs a join token: `headrace cluster token create --node-id {node}` prints one, "
                "which goes into the file that headrace.join.token.file names",
            )
        now_ms = self._admission.now_ms()
        claim = check_token(wanted.token, secret, node, now_ms)
        try:
            await propose_all(self._quorum, begin_join(image, claim, wanted.address, now_ms))
        except TokenRefused as refused:
            raise denied_by(refused, self._quorum.image.join_token(claim.token_hash)) from None
        return claim


def is_registered(image: Image, node: BrokerId, folder: bytes) -> bool:
    """Return whether a node is of the cluster, and this is its data folder."""
    broker = image.broker(node)
    return broker is not None and folder in broker.log_dirs


def _check_may_join(image: Image, node: BrokerId, address: str) -> None:
    """Raise KafkaError if a node's Join would be refused: its other entries would be applied."""
    if not is_address(address):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"node {node} cannot be reached at {address[:256]!r}: set headrace.node.advertised to "
            "the HOST:PORT at which other nodes reach it",
        )
    row = image.node(node)
    if row is not None and row.state is NodeState.DECOMMISSIONED:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"node {node} was decommissioned: it must leave the cluster before it joins again, "
            "with an empty data folder",
        )


def _check_room(image: Image, state: State, node: BrokerId) -> None:
    """Refuse a node that the quorum would not take, so that it would wait for ever."""
    known, members_max = {*state.membership.members, *image.state.nodes}, state.settings.members_max
    if node not in known and len(known) >= members_max:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"the cluster has {len(known)} nodes, and {config.RAFT_MEMBERS_MAX.name} of its "
            f"controller is {members_max}: node {node} would be one too many",
        )


def _check_version(image: Image, node: BrokerId, ddl: RegisterBroker) -> None:
    """Refuse software that is too old for what the cluster has agreed on."""
    _, highest = ddl.features.get(METADATA_VERSION, (0, 0))
    if highest < image.state.cluster_version:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"the cluster is at version {image.state.cluster_version}, and the software of node "
            f"{node} knows versions up to {highest}: upgrade it",
        )
    level = image.feature_level(HEADRACE_VERSION)
    _, highest = ddl.features.get(HEADRACE_VERSION, (0, 0))
    if highest < level:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"the cluster is at level {level} of {HEADRACE_VERSION}, and the software of node "
            f"{node} knows levels up to {highest}: upgrade it",
        )


def _read(wanted: words.Register, node: BrokerId, folder: bytes) -> RegisterBroker:
    """Return the entry of a node that says who it is; raise KafkaError if it says otherwise."""
    try:
        ddl = decode_ddl(wanted.broker)
    except InvalidEntry as error:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, str(error)) from None
    if not isinstance(ddl, RegisterBroker) or (ddl.broker_id, ddl.log_dirs) != (node, (folder,)):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"this is no registration of node {node}")
    return ddl


def wiped(node: BrokerId) -> KafkaError:
    """Return the refusal of a node that comes with another data folder than the one it had."""
    return KafkaError(
        ErrorCode.DUPLICATE_BROKER_REGISTRATION,
        f"node {node} is known with another data folder: if that one is lost, remove the node from "
        f"the cluster first (`headrace cluster remove {node}` at any other node), then start this "
        "one again; if it is not, give this one another node.id",
    )
