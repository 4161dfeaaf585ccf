"""Proposals from a node that does not lead to the one that does: entries are sent, not requests."""

import asyncio
from collections.abc import Callable

import msgspec

from headrace.cluster import words
from headrace.cluster.transport.calls import CallError, IncomingCall, InvalidPayload
from headrace.cluster.transport.hello import Identity
from headrace.cluster.transport.links import Links
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import BrokerId
from headrace.loop.tasks import Tasks
from headrace.metadata.applier import check_entry
from headrace.metadata.entries import CaTrustChange
from headrace.metadata.errors import InvalidEntry
from headrace.metadata.quorum import MetadataQuorum
from headrace.raft.errors import (
    ForwardUncertain,
    NotLeader,
    ProposalLost,
    ProposalUncertain,
    RaftError,
    TransferInProgress,
)


class Forwarding:
    """Sends entries to the leader (`metadata.quorum.Forward`), and takes those of others."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._tasks = Tasks()
        # The others wait: a leader that is asked too much at once would not hear heartbeats.
        self._room = asyncio.Semaphore(max(1, links.settings.calls_in_flight_max // 2))
        self._may_propose: Callable[[Identity], bool] = lambda peer: True
        self.sent = 0
        """Proposals that were sent to a leader."""
        self.failed = 0
        """How many of these the leader did not apply, as far as is known."""
        self.served = 0
        """Proposals of other nodes."""

    async def __call__(self, leader: BrokerId, term: int, data: bytes, timeout_ms: int) -> int:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        try:
            async with asyncio.timeout_at(deadline):
                await self._room.acquire()
        except TimeoutError:
            raise NotLeader(self._links.identity.node, None) from None  # it was not sent
        self.sent += 1
        try:
            left_ms = max(1, int((deadline - loop.time()) * 1000))
            return await self._send(leader, term, data, left_ms)
        except RaftError:
            self.failed += 1
            raise
        finally:
            self._room.release()

    async def _send(self, leader: BrokerId, term: int, data: bytes, timeout_ms: int) -> int:
        node = self._links.identity.node
        try:
            request = words.pack_proposal(term, data)
            payload = await self._links.call(leader, request, timeout_ms, kind=words.PROPOSE)
            response = words.decode_response(payload)
        except CallError as error:
            if error.is_uncertain:
                raise ForwardUncertain(leader, str(error)) from None
            raise NotLeader(node, None) from None
        except msgspec.MsgspecError as error:
            raise ForwardUncertain(leader, f"a response that cannot be read: {error}") from None
        match response:
            case words.Proposed(index):
                return index
            case words.Failed(is_uncertain=True, message=message):
                raise ForwardUncertain(leader, message)
            case words.Failed(may_retry=True):
                raise NotLeader(node, None)
            case words.Failed(code, message):
                is_known = code in ErrorCode._value2member_map_  # a newer node may know others
                raise RaftError(
                    ErrorCode(code) if is_known else ErrorCode.UNKNOWN_SERVER_ERROR, message
                )
            case _:
                raise ForwardUncertain(leader, f"an unexpected {type(response).__name__}")

    def serve(
        self, quorum: MetadataQuorum, may_propose: Callable[[Identity], bool] = lambda peer: True
    ) -> None:
        """Take the proposals of other nodes from now on, if they are of the cluster."""
        self._may_propose = may_propose
        self._links.serve(words.PROPOSE, lambda call: self._take(quorum, call))

    def close(self) -> None:
        self._tasks.cancel()

    def _take(self, quorum: MetadataQuorum, call: IncomingCall) -> None:
        self.served += 1
        try:
            term, data = words.unpack_proposal(call.payload)
        except ValueError as error:
            raise InvalidPayload(str(error)) from None
        if term != quorum.driver.state.term:
            reason = f"term {term} is not the current one"
            call.answer(
                words.encode(words.Failed(ErrorCode.NOT_CONTROLLER, reason, may_retry=True))
            )
            return
        if not self._may_propose(call.sender):
            reason = f"node {call.sender.node} is not registered"
            call.answer(
                words.encode(words.Failed(ErrorCode.NOT_CONTROLLER, reason, may_retry=True))
            )
            return
        try:
            steps = check_entry(data)
        except InvalidEntry as error:
            reason = f"an entry that this node cannot read: {error}"
            failed = words.Failed(ErrorCode.UNSUPPORTED_VERSION, reason)
            call.answer(words.encode(failed))
            return
        if any(isinstance(step, CaTrustChange) for step in steps):
            # Whom all nodes trust is for the controller alone to change, which knows why.
            reason = "only the controller itself proposes whom nodes trust"
            failed = words.Failed(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, reason)
            call.answer(words.encode(failed))
            return
        self._tasks.start(_propose(quorum, data, call))


async def _propose(quorum: MetadataQuorum, data: bytes, call: IncomingCall) -> None:
    """Propose here; this node does not send it on, so that proposals cannot go round in circles."""
    response: words.Response
    try:
        response = words.Proposed(await quorum.driver.propose(data))
    except (NotLeader, TransferInProgress, ProposalLost) as error:
        response = words.Failed(error.code, error.message, may_retry=True)
    except ProposalUncertain as error:
        response = words.Failed(error.code, error.message, is_uncertain=True)
    except KafkaError as error:
        response = words.Failed(error.code, error.message)
    except asyncio.CancelledError:
        call.answer(words.encode(words.Failed(ErrorCode.NOT_CONTROLLER, "", is_uncertain=True)))
        raise
    call.answer(words.encode(response))
