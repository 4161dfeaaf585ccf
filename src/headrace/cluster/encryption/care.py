"""Certificates while a node runs: signed for others, renewed for itself, a CA replaced.

    care = CertificateCare(quorum, links, tls, keys, enrolment, enroller, leads=..., redirect=...)
    await care.settle()         # the node has a certificate, and the cluster has a CA
    care.start()
    care.note_image()           # CAs, nodes or voters have changed in the image

The controller signs. Nodes that vote keep the key of the CA, so that any of them can lead, and get
it from each other. What is to be done is found out again each time (`rotation`), so that a node or
a controller that ends in the middle costs nothing but time.
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final, TypeVar

from headrace.cluster import operator_words, words
from headrace.cluster.encryption.authority_keys import AuthorityKeys
from headrace.cluster.encryption.enrolment import Enroller, Enrolment
from headrace.cluster.encryption.node_tls import NodeTls
from headrace.cluster.encryption.rotation import (
    Drop,
    NodeCertificates,
    Nothing,
    Reissue,
    Step,
    Wait,
    next_step,
)
from headrace.cluster.joining import CannotJoin
from headrace.cluster.plans import propose_all
from headrace.cluster.registrar import is_registered
from headrace.cluster.transport.calls import CallError, IncomingCall, InvalidPayload
from headrace.cluster.transport.links import Links
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import BrokerId
from headrace.loop.tasks import Tasks
from headrace.metadata.entries import CaTrustChange
from headrace.metadata.quorum import MetadataQuorum
from headrace.metadata.state import NodeState
from headrace.metadata.variants import Octets
from headrace.raft.errors import RaftError
from headrace.security.node_certificates import (
    Authority,
    BadCertificate,
    fingerprint,
    has_key,
    in_order,
    is_readable,
    key_pem,
    make_authority,
    pin_of,
    read_key,
    sign,
    valid_for,
    validity_of,
)

LOOK_SECONDS: Final = 5.0
"""How often it is looked whether something is due."""
STEP_SECONDS: Final = 0.2
"""How soon it is looked again while a CA is replaced or a key is missing."""
CALL_TIMEOUT_MS: Final = 2000
JOIN_SECONDS_MAX: Final = 15.0
"""How long a former CA is kept after it has signed for a new node, which is to register."""
RENEW_PAUSE: Final = timedelta(minutes=1)
"""How soon a renewal is tried again that has failed."""
WARN_EVERY: Final = timedelta(days=1)

logger = logging.getLogger(__name__)


class CertificateCare:
    """One node's part in the certificates of its cluster."""

    def __init__(  # noqa: PLR0913  what a node has
        self,
        quorum: MetadataQuorum,
        links: Links,
        tls: NodeTls,
        *,
        keys: AuthorityKeys,
        enrolment: Enrolment,
        enroller: Enroller,
        days: int,
        is_controller: Callable[[], bool],
        redirect: Callable[[], words.Response],
    ) -> None:
        self._quorum = quorum
        self._driver = quorum.driver
        self._links = links
        self._tls = tls
        self._keys = keys
        self._enrolment = enrolment
        self._enroller = enroller
        self._days = days
        self._is_controller = is_controller
        self._redirect = redirect
        self._tasks = Tasks()
        self._wake = asyncio.Event()
        self._must_renew = False
        self._retry_at: datetime | None = None
        self._warned_at: datetime | None = None
        self._is_settled = False
        """Whether the image has all that was committed before this node started."""
        self._signed_by_old_at: float | None = None
        """When a node that is new got a certificate of a CA that is to go, by the loop's clock."""
        self._rotating = asyncio.Lock()
        """Held while a CA gets into the metadata log: two that begin at once make one."""
        self._making = b""
        """The fingerprint of a CA that is about to get into the metadata log."""
        self._is_spread = False
        """Whether every node trusts the newest CA, as far as this controller knows."""
        self.waiting: tuple[str, ...] = ()
        """What the replacement of a CA waits for."""
        self.renewals = 0
        self.on_trust: Callable[[], None] = lambda: None
        """Called when other CAs are trusted than before."""

    def serve(self) -> None:
        """Take the calls of other nodes."""
        self._links.serve(words.ENROL, self._on_enrol, for_newcomers=True)
        self._links.serve(words.CERTIFICATES, self._on_describe)
        self._links.serve(words.RENEW, self._on_renew)
        self._links.serve(words.CA_KEY, self._on_take_key)

    async def settle(self) -> None:
        """Return when this node has a certificate; a cluster without a CA gets one.

        CannotJoin if it has none and can sign none.
        """
        if not self._authorities():
            authority = self._keys.newest() or make_authority(self._tls.now())
            await self._keys.add(authority)
            change = CaTrustChange(Octets(authority.certificate), None)
            await self._quorum.propose(change)
            logger.info("the cluster has a CA: %s", pin_of(authority.certificate))
        self._is_settled = True
        if self._tls.trust(self._authorities()):
            self._note_trusted()
        if not self._tls.is_certified and not sign_itself(self._tls, self._keys, self._days):
            raise CannotJoin(no_certificate(self._tls.name.node))

    def start(self) -> None:
        self._tasks.start(self._run())

    def close(self) -> None:
        self._tasks.cancel()

    async def stop(self) -> None:
        """Return when nothing is written any more."""
        await self._tasks.stop()

    def note_image(self) -> None:
        """Look soon what to trust and whether something is to be done: here nothing may fail."""
        self._wake.set()

    # What operators ask

    async def show(self) -> operator_words.Ca:
        """Return the CAs, and the certificates of the nodes that can be asked."""
        has = await self._ask_nodes()
        authorities = self._authorities()
        newest = fingerprint(authorities[-1]) if authorities else b""
        rows = []
        for each in authorities:
            validity = validity_of(each)
            times = int(validity.begins.timestamp()), int(validity.ends.timestamp())
            rows.append(operator_words.AuthorityRow(fingerprint(each), pin_of(each), *times))
        nodes = []
        for node, words_of in sorted(has.items()):
            if words_of is None:
                nodes.append(operator_words.CertificateRow(node, b"", 0, False))
                continue
            row = operator_words.CertificateRow(
                node, words_of.signer, words_of.expires_s, newest in words_of.keys
            )
            nodes.append(row)
        step = self._next_step(has)
        waiting = {Nothing: (), Wait: (), Reissue: ("nodes get new certificates",)}.get(
            type(step), ("the former CA is about to be dropped",)
        )
        return operator_words.Ca(
            tuple(rows), tuple(nodes), step.reasons if isinstance(step, Wait) else waiting
        )

    async def rotate(self) -> operator_words.Ca:
        """Begin to replace the CA, on the controller; go on if that has begun."""
        if not self._is_controller():
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "another node leads now: ask again")
        async with self._rotating:
            await self._add_authority()
        self._wake.set()
        return await self.show()

    async def _add_authority(self) -> None:
        """Add a CA beside the signing one, unless there is one with a key."""
        authorities = self._authorities()
        newest = fingerprint(authorities[-1]) if authorities else b""
        if len(authorities) > 1 and await self._find_key(newest):
            return
        authority = make_authority(self._tls.now(), authorities)
        self._making = authority.fingerprint
        try:
            try:
                await self._keys.add(authority)
            except OSError as error:
                reason = f"the key of a new CA cannot be stored: {error}"
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, reason) from None
            await propose_all(self._quorum, [CaTrustChange(Octets(authority.certificate), None)])
        finally:
            self._making = b""
        logger.warning("the CA of the cluster is replaced by %s", pin_of(authority.certificate))

    def pins(self) -> tuple[str, ...]:
        """Return the pins of the cluster's CAs, for those who are to join."""
        return tuple(map(pin_of, self._authorities()))

    # Calls

    def _on_enrol(self, call: IncomingCall) -> None:
        wanted = _decode(call, words.Enrol)
        if not self._is_controller():
            call.answer(words.encode(self._redirect()))
        else:
            self._tasks.start(self._answer_enrol(call, wanted))

    async def _answer_enrol(self, call: IncomingCall, wanted: words.Enrol) -> None:
        response: words.Response = words.Failed(
            ErrorCode.NOT_CONTROLLER, "this node leads no more", may_retry=True
        )
        try:
            authority = await self._signer()
            if authority is None:
                response = words.Failed(
                    ErrorCode.NOT_CONTROLLER,
                    "no node that can be asked has the key of the CA: `headrace cluster ca rotate` "
                    "makes another one",
                    may_retry=True,
                )
            else:
                response = await self._enroller.enrol(
                    call.sender, wanted, authority, is_certified=call.is_certified
                )
                if not call.is_certified and authority.certificate != self._authorities()[-1]:
                    self._signed_by_old_at = asyncio.get_running_loop().time()
        finally:
            call.answer(words.encode(response))

    def _on_describe(self, call: IncomingCall) -> None:
        _decode(call, words.DescribeCertificates)
        call.answer(words.encode(self._own()))

    def _on_renew(self, call: IncomingCall) -> None:
        _decode(call, words.Renew)
        if call.sender.node != self._driver.leader or not self._is_registered(call):
            reason = "only the controller asks nodes to renew their certificates"
            call.answer(words.encode(_denied(reason)))
            return
        self._must_renew = True
        self._retry_at = None
        self._wake.set()
        call.answer(words.encode(words.Renewing()))

    def _on_take_key(self, call: IncomingCall) -> None:
        wanted = _decode(call, words.TakeKey)
        held = self._keys.find(wanted.fingerprint)
        voters = self._driver.state.membership.voters
        if call.sender.node not in voters or not self._is_registered(call):
            call.answer(words.encode(_denied("only nodes that vote get the key of a CA")))
        elif held is None:
            failed = words.Failed(ErrorCode.RESOURCE_NOT_FOUND, "it is not here", may_retry=True)
            call.answer(words.encode(failed))
        else:
            call.answer(words.encode(words.CaKey(key_pem(held.key), held.certificate)))

    def _is_registered(self, call: IncomingCall) -> bool:
        return is_registered(self._quorum.image, call.sender.node, call.sender.folder_id)

    # What is done again and again

    async def _run(self) -> None:
        while self._driver.failure is None:
            self._wake.clear()
            is_busy = False
            try:
                is_busy = await self._look()
            except (RaftError, KafkaError, CallError, CannotJoin) as error:
                logger.info("certificates are looked after later: %s", error)
            except OSError as error:
                logger.warning("keys or certificates cannot be stored, and are later: %s", error)
            except Exception:  # another look may be better, and none at all ends with no node
                logger.exception("certificates are looked after later")
            try:
                async with asyncio.timeout(STEP_SECONDS if is_busy else LOOK_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _look(self) -> bool:
        """Do what is due; return whether there is more to do soon."""
        authorities = self._authorities()
        if not authorities:
            return False
        await self._trust(authorities)
        newest = fingerprint(authorities[-1])
        is_busy = len(authorities) > 1 or self._must_renew
        if self._driver.node in self._driver.state.membership.voters:
            is_here = await self._find_key(newest)
            is_busy = is_busy or not is_here
            if is_here:
                wanted = (self._making, *map(fingerprint, self._authorities()))
                await self._keys.keep_only(wanted)
        await self._renew_if_due()
        if not self._is_controller() or len(authorities) == 1:
            self._is_spread = False
            self.waiting = ()
            return is_busy
        await self._rotate_further()
        return True

    async def _trust(self, authorities: list[bytes]) -> None:
        """Trust the CAs of the image, once that is durable; OSError if it cannot be.

        A node that starts reads of all the CAs that its cluster had: until it is up to date, it
        goes on trusting those that it was told of last, or nobody would bring it up to date.
        """
        change = self._tls.trusting(authorities) if self._is_settled else None
        if change is None:
            return
        await self._tls.adopt(change)
        self._note_trusted()

    def _note_trusted(self) -> None:
        logger.info("nodes are trusted by %s", ", ".join(map(pin_of, self._tls.trusted)))
        self._links.drop_certified(self._tls.distrusts)
        self.on_trust()

    async def _rotate_further(self) -> None:
        """Take the next step of replacing a CA."""
        step = self._next_step(await self._ask_nodes())
        self.waiting = step.reasons if isinstance(step, Wait) else ()
        self._is_spread = isinstance(step, Reissue | Drop)
        match step:
            case Reissue(nodes):
                await asyncio.gather(*map(self._let_renew, nodes))
            case Drop(oldest) if not self._is_anybody_joining():
                logger.warning("the CA %s is not trusted any more", oldest.hex())
                await propose_all(self._quorum, [CaTrustChange(None, Octets(oldest))])

    def _is_anybody_joining(self) -> bool:
        """Return whether a node may have a certificate of a former CA that is not known yet."""
        signed_at = self._signed_by_old_at
        return signed_at is not None and (
            asyncio.get_running_loop().time() - signed_at < JOIN_SECONDS_MAX
        )

    async def _let_renew(self, node: int) -> None:
        if node == self._driver.node:
            self._must_renew = True
            self._retry_at = None
            self._wake.set()
            return
        try:
            await self._call(node, words.Renew(), words.RENEW)
        except (CallError, ValueError) as error:
            logger.info("node %d does not renew its certificate yet: %s", node, error)

    async def _renew_if_due(self) -> None:
        now, validity = self._tls.now(), self._tls.validity
        is_due = self._must_renew or validity is None or now >= validity.renewal_due
        if not is_due or (self._retry_at is not None and now < self._retry_at):
            return
        self._retry_at = now + RENEW_PAUSE
        try:
            problem = await self._renew()
        except OSError as error:
            problem = f"it cannot be stored: {error}"
        if not problem:
            self._must_renew, self._retry_at, self._warned_at = False, None, None
            self.renewals += 1
            return
        if self._warned_at is None or now - self._warned_at >= WARN_EVERY:
            self._warned_at = now
            logger.warning(
                "the certificate of this node, which ends on %s, is not renewed: %s",
                *("no date" if validity is None else validity.ends, problem),
            )

    async def _renew(self) -> str:
        """Return why there is no new certificate, "" if there is one."""
        wanted = self._enrolment.wanted()
        leader = self._driver.leader
        if leader is None:
            return "there is no leader"
        response: words.Response
        if leader == self._driver.node:
            authority = await self._signer()
            if authority is None:
                return "nobody has the key of the CA"
            identity = self._links.identity
            response = await self._enroller.enrol(identity, wanted, authority, is_certified=True)
        else:
            try:
                response = await self._call(leader, wanted, words.ENROL)
            except (CallError, ValueError) as error:
                return str(error)
        if not isinstance(response, words.Enrolled):
            return response.message if isinstance(response, words.Failed) else "ask again"
        try:
            await self._enrolment.take(response.certificate, response.authorities)
        except CannotJoin as error:
            return str(error)
        return ""

    async def _signer(self) -> Authority | None:
        """Return the CA that signs now: the newest once everybody trusts it."""
        authorities = self._authorities()
        held = self._keys.any_of(authorities, newest=self._is_spread)
        if held is None and authorities:
            await self._find_key(fingerprint(authorities[-1]))
            held = self._keys.any_of(authorities, newest=self._is_spread)
        return held

    async def _find_key(self, which: bytes) -> bool:
        """Get the key of a CA from another node that votes; return whether it is here."""
        if self._keys.find(which) is not None:
            return True
        for node in self._driver.state.membership.voters:
            if node == self._driver.node:
                continue
            try:
                response = await self._call(node, words.TakeKey(which), words.CA_KEY)
                if isinstance(response, words.CaKey):
                    authority = Authority(read_key(response.key), response.certificate)
                    if authority.fingerprint == which and has_key(authority):
                        await self._keys.add(authority)
                        return True
            except (CallError, ValueError):  # BadCertificate and msgspec's are ValueErrors
                continue
        return False

    # What nodes have

    def _next_step(self, has: dict[int, words.Certificates | None]) -> Step:
        nodes = {
            node: None
            if each is None
            else NodeCertificates(frozenset(each.trusted), each.signer, frozenset(each.keys))
            for node, each in has.items()
        }
        ordered = [fingerprint(each) for each in self._authorities()]
        return next_step(ordered, nodes, self._driver.state.membership.voters)

    async def _ask_nodes(self) -> dict[int, words.Certificates | None]:
        """Return what each node of the image has, None for one that does not say."""

        async def ask(node: int) -> words.Certificates | None:
            if node == self._driver.node:
                return self._own()
            try:
                response = await self._call(node, words.DescribeCertificates(), words.CERTIFICATES)
            except (CallError, ValueError):
                return None
            return response if isinstance(response, words.Certificates) else None

        rows = self._quorum.image.state.nodes.values()
        nodes = [row.node_id for row in rows if row.state is not NodeState.DECOMMISSIONED]
        return dict(zip(nodes, await asyncio.gather(*map(ask, nodes)), strict=True))

    def _own(self) -> words.Certificates:
        validity = self._tls.validity
        return words.Certificates(
            tuple(map(fingerprint, self._tls.trusted)),
            self._tls.signer or b"",
            0 if validity is None else int(validity.ends.timestamp()),
            self._keys.fingerprints,
        )

    async def _call(self, node: int, request: words.Request, kind: int) -> words.Response:
        payload = await self._links.call(
            BrokerId(node), words.encode(request), CALL_TIMEOUT_MS, kind=kind
        )
        return words.decode_response(payload)

    def _authorities(self) -> list[bytes]:
        """Return the CAs of the image, the newest last; the log takes anything for one."""
        return in_order(filter(is_readable, self._quorum.image.state.ca_certificates.values()))


def sign_itself(tls: NodeTls, keys: AuthorityKeys, days: int) -> bool:
    """Issue a certificate to a node that has the key of a CA; return whether it has that key.

    CannotJoin if the clock of the node makes none that is valid.
    """
    authority = keys.any_of(tls.trusted, newest=False)
    if authority is None:
        return False
    try:
        certificate = sign(tls.request(), tls.name, authority, valid_for(days, tls.now()))
        tls.install(certificate, tls.trusted)
    except BadCertificate as error:
        raise CannotJoin(f"this node cannot sign for itself: {error}") from None
    return True


def no_certificate(node: int) -> str:
    """Return what to do with a node that is of a cluster and has no certificate of it."""
    return (
        f"node {node} is of a cluster of several nodes and has no certificate of it that is valid. "
        "If it had one, or its certificate has expired: `headrace cluster token create "
        f"--node-id {node}` prints a token, which goes into the file that headrace.join.token.file "
        "names. If its nodes have spoken in plain text so far, TLS cannot be turned on for them: "
        "start them with headrace.node.tls=false and headrace.insecure=true as before, or form a "
        "new cluster and mirror the old one into it (docs/cluster.md)"
    )


def _denied(reason: str) -> words.Failed:
    return words.Failed(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, reason)


W = TypeVar("W", words.Enrol, words.DescribeCertificates, words.Renew, words.TakeKey)


def _decode(call: IncomingCall, expected: type[W]) -> W:
    try:
        request = words.decode_request(call.payload)
    except ValueError as error:  # msgspec's
        raise InvalidPayload(str(error)) from None
    if not isinstance(request, expected):
        raise InvalidPayload(f"a {type(request).__name__} in place of a {expected.__name__}")
    return request
