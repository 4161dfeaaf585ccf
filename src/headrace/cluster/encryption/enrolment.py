"""How a node gets a certificate: what it asks, and who may have one.

    asker = Enrolment(links, tls, "10.0.0.4:9093", token)
    problem = await asker.obtain(addresses)             # "" if the node has one now

    enroller = Enroller(quorum, admission, tls, days=90)
    response = await enroller.enrol(sender, wanted, authority, is_certified=False)

Three ways lead to a certificate. A node that has one gets the next. A node that is new gets its
first one at an address that is among the seeds, because it has proven the secret, or with a token.
A node that is known and has lost its certificate, or let it expire, needs a token that the metadata
log lists, and must be down. Tokens follow from the secret, so whoever has that can have any of
this, but not unseen: the token is in the list, and the node that it stands in for was fenced.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import msgspec

from headrace.cluster import words
from headrace.cluster.address_book import parse_address
from headrace.cluster.encryption.node_tls import NodeTls
from headrace.cluster.joining import CannotJoin
from headrace.cluster.plans import propose_all
from headrace.cluster.registrar import Admission, wiped
from headrace.cluster.tokens import begin_join, check_token, denied_by, finish_join
from headrace.cluster.transport.calls import CallError
from headrace.cluster.transport.hello import Identity
from headrace.cluster.transport.links import Links
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import BrokerId
from headrace.metadata.entries import Entry
from headrace.metadata.errors import Refused, refuse
from headrace.metadata.image import Image
from headrace.metadata.join_tokens import JoinClaim
from headrace.metadata.quorum import MetadataQuorum
from headrace.metadata.token_states import TokenRefused
from headrace.metadata.topology import is_address
from headrace.raft.errors import RaftError
from headrace.security.node_certificates import (
    Authority,
    BadCertificate,
    is_readable,
    sign,
    valid_for,
)
from headrace.security.node_names import NodeName

ENROL_TIMEOUT_MS: Final = 10_000
REDIRECTS_MAX: Final = 5

Ask = Callable[[bytes], Awaitable[words.Response]]

logger = logging.getLogger(__name__)


class Enrolment:
    """The side of the node that wants a certificate."""

    def __init__(self, links: Links, tls: NodeTls, own_address: str, token: str) -> None:
        self._links = links
        self._tls = tls
        self._own_address = own_address
        self._token = token

    @property
    def is_needed(self) -> bool:
        return not self._tls.is_certified

    @property
    def has_token(self) -> bool:
        return bool(self._token)

    async def obtain(self, addresses: Iterable[str]) -> str:
        """Ask the nodes at addresses; return why there is no certificate yet, "" if there is one.

        CannotJoin if the cluster gives none to this node.
        """
        problem = "nobody can be asked for a certificate"
        for address in addresses:
            response = await self._ask_at(address)
            match response:
                case words.Enrolled(certificate, authorities):
                    await self.take(certificate, authorities)
                    return ""
                case words.Failed(message=message, may_retry=False):
                    raise CannotJoin(f"the cluster gives this node no certificate: {message}")
                case words.Failed(message=message):
                    problem = message
        return problem

    def wanted(self) -> words.Enrol:
        """Return what to ask; the key that belongs to it stays here."""
        return words.Enrol(self._own_address, self._tls.request(), self._token)

    async def take(self, certificate: bytes, authorities: Iterable[bytes]) -> None:
        """Use a certificate once it is stored; CannotJoin if it is not what was asked for."""
        try:
            change = self._tls.installing(certificate, authorities)
        except BadCertificate as error:
            raise CannotJoin(f"the cluster gives this node {error}") from None
        await self._tls.adopt(change)
        validity = self._tls.validity
        assert validity is not None
        logger.info("this node has a certificate of the cluster until %s", validity.ends.date())

    async def _ask_at(self, address: str) -> words.Response:
        question = words.encode(self.wanted())
        response: words.Response = words.Failed(ErrorCode.NOT_CONTROLLER, "", may_retry=True)
        for _ in range(REDIRECTS_MAX):
            try:
                _, payload = await self._links.call_address(
                    parse_address(address), question, ENROL_TIMEOUT_MS, kind=words.ENROL
                )
                response = words.decode_response(payload)
            except CallError as error:
                why = str(error.refused or error.reason)
                return words.Failed(ErrorCode.NOT_CONTROLLER, f"{address}: {why}", may_retry=True)
            except (msgspec.MsgspecError, ValueError) as error:
                return words.Failed(ErrorCode.NOT_CONTROLLER, f"{address}: {error}", may_retry=True)
            if not isinstance(response, words.Redirected):
                break
            address = response.address
        return response


class Enroller:
    """The side of the controller."""

    def __init__(
        self, quorum: MetadataQuorum, admission: Admission, tls: NodeTls, *, days: int
    ) -> None:
        self._quorum = quorum
        self._admission = admission
        self._tls = tls
        self._days = days

    async def enrol(
        self, sender: Identity, wanted: words.Enrol, authority: Authority, *, is_certified: bool
    ) -> words.Enrolled | words.Failed:
        """Return a certificate for a node whose connection proved the secret, or why it has none.

        `is_certified` says that a certificate proved who the node is.
        """
        try:
            if is_certified:
                _check_member(self._quorum.image, sender)
            else:
                await self._admit(sender, wanted)
            name = NodeName(sender.node, sender.folder_id)
            signed = sign(wanted.request, name, authority, valid_for(self._days, self._tls.now()))
        except (RaftError, Refused) as error:
            return words.Failed(error.code, error.message, may_retry=True)
        except KafkaError as error:
            return words.Failed(error.code, error.message)
        except BadCertificate as error:
            return words.Failed(ErrorCode.INVALID_REQUEST, str(error))
        logger.info(
            "node %d has a certificate until %s%s",
            *(sender.node, valid_for(self._days, self._tls.now()).ends.date()),
            "" if is_certified else f", its first one, for {wanted.address}",
        )
        trusted = self._quorum.image.state.ca_certificates.values()
        return words.Enrolled(signed, tuple(filter(is_readable, trusted)))

    async def _admit(self, sender: Identity, wanted: words.Enrol) -> None:
        """Issue a certificate to a node without one; KafkaError if it is not entitled to it."""
        image, node = self._quorum.image, sender.node
        if not is_address(wanted.address):
            raise _denied(f"node {node} cannot be reached at {wanted.address[:256]!r}")
        broker = image.broker(node)
        if broker is not None and broker.log_dirs and sender.folder_id not in broker.log_dirs:
            raise wiped(node)
        is_known = broker is not None or image.node(node) is not None
        is_invited = wanted.address in self._admission.invited and not _is_taken(image, wanted)
        if is_invited and not is_known:
            return
        secret = self._admission.token_secret
        if secret is None or not wanted.token:
            raise _denied(_needs_token(node, wanted.address, is_known=is_known))
        now_ms = self._admission.now_ms()
        claim = check_token(wanted.token, secret, node, now_ms)
        if is_known:
            _check_may_return(image, node, claim)
        steps: list[Entry] = [*begin_join(image, claim, wanted.address, now_ms)]
        if is_known:  # it will not register as a new node, which uses up a token
            steps.append(finish_join(claim, wanted.address, now_ms))
        try:
            await propose_all(self._quorum, steps)
        except TokenRefused as refused:
            raise denied_by(refused, self._quorum.image.join_token(claim.token_hash)) from None


def _check_may_return(image: Image, node: BrokerId, claim: JoinClaim) -> None:
    """Raise KafkaError unless a known node is down and its token was made at the cluster."""
    if image.join_token(claim.token_hash) is None:
        raise _denied(
            f"node {node} is of this cluster, and the metadata log does not list its join token: "
            f"make one with `headrace cluster token create --node-id {node}` at a node of the "
            "cluster"
        )
    broker = image.broker(node)
    if broker is not None and not broker.is_fenced:
        raise refuse(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"node {node} is up, with a certificate: its process must stop first, or be silent for "
            "broker.session.timeout.ms",
        )


def _check_member(image: Image, sender: Identity) -> None:
    """Raise KafkaError if a node has left the cluster, or its folder is another one."""
    broker = image.broker(BrokerId(sender.node))
    if broker is None or sender.folder_id not in broker.log_dirs:
        raise _denied(f"node {sender.node} is not of this cluster any more")


def _is_taken(image: Image, wanted: words.Enrol) -> bool:
    return any(row.addr == wanted.address for row in image.state.nodes.values())


def _needs_token(node: int, address: str, *, is_known: bool) -> str:
    why = (
        f"node {node} is of this cluster and has no certificate that is valid"
        if is_known
        else f"node {node} at {address} is new and not one of headrace.seeds, or the node of that "
        "seed is there already"
    )
    return (
        f"{why}, so it needs a join token: `headrace cluster token create --node-id {node}` prints "
        "one, which goes into the file that headrace.join.token.file names"
    )


def _denied(message: str) -> KafkaError:
    return KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, message)
