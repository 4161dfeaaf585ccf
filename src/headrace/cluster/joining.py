"""How a node without a cluster comes to one: it asks its seeds, and founds one or joins theirs."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final, Protocol

import msgspec

from headrace.cluster import forming, words
from headrace.cluster.address_book import parse_address
from headrace.cluster.transport.calls import CallError
from headrace.cluster.transport.links import Links
from headrace.cluster.transport.refusals import Reason, Refused
from headrace.errors import ErrorCode, HeadraceError
from headrace.ids import BrokerId

ASK_TIMEOUT_MS: Final = 2000
REGISTER_TIMEOUT_MS: Final = 10_000
PAUSE_SECONDS_MIN: Final = 0.05
PAUSE_SECONDS_MAX: Final = 2.0
REDIRECTS_MAX: Final = 5

_TAKEN: Final = (Reason.DUPLICATE_NODE_ID, Reason.TAKEN_NODE_ID)

logger = logging.getLogger(__name__)


class CannotJoin(HeadraceError):
    """A cluster that does not take this node."""


class AsksForCertificate(Protocol):
    """How a node gets its certificate, where nodes need one (`encryption.enrolment`)."""

    @property
    def is_needed(self) -> bool: ...

    async def obtain(self, addresses: Iterable[str]) -> str:
        """Return why there is no certificate yet, nothing if there is one."""


class Joining:
    """The first steps of a new node."""

    def __init__(
        self,
        links: Links,
        seeds: tuple[str, ...],
        address: str,
        on_found: Callable[[], None],
        enrolment: AsksForCertificate | None = None,
    ) -> None:
        """`on_found` is called before this node decides to found a cluster."""
        self._enrolment = enrolment
        self._links = links
        self._seeds = seeds
        self._address = address
        self._on_found = on_found
        self._told = ""
        self.waiting = f"asking {', '.join(seeds)}"
        """What this node waits for, for people."""
        self._problems: dict[str, str] = {}

    async def run(self, register: words.Register) -> words.Registered | None:
        """Return the place in a cluster that this node got, None if it is to found one.

        CannotJoin if the cluster refuses this node for good. Waits as long as it takes.
        """
        pause = PAUSE_SECONDS_MIN
        while True:
            match await self._decide():
                case forming.Bootstrap():
                    self._on_found()
                    return None
                case forming.Join(addresses):
                    registered = await self._join(addresses, register)
                    if registered is not None:
                        return registered
                case forming.Wait(reason, remedy):
                    self._tell(f"{reason}; {remedy}" if remedy else reason)
            await asyncio.sleep(pause * self._links.random.uniform(0.5, 1.0))
            pause = min(2 * pause, PAUSE_SECONDS_MAX)

    async def _decide(self) -> forming.Decision:
        answers = await asyncio.gather(*map(self._ask, self._seeds))
        own = self._links.identity
        blank = forming.Blank(own.node, own.folder_id, frozenset(self._seeds))
        return forming.decide(blank, dict(zip(self._seeds, answers, strict=True)))

    async def _ask(self, seed: str) -> forming.Answer | None:
        self._problems.pop(seed, None)
        question = words.encode(words.Ask(self._address))
        try:
            peer, payload = await self._links.call_address(
                parse_address(seed), question, ASK_TIMEOUT_MS, kind=words.ASK
            )
            response = words.decode_response(payload)
        except CallError as error:
            own, refused = self._links.identity, error.refused
            if refused is not None and refused.reason is Reason.SELF_CONNECTION:
                return forming.Blank(own.node, own.folder_id, frozenset(self._seeds))
            if refused is not None and refused.is_proven and refused.reason in _TAKEN:
                raise CannotJoin(
                    f"{seed} does not take this node: {refused}. If the data folder of node "
                    f"{own.node} is lost, remove it with `headrace cluster remove {own.node}` at "
                    "any other node, then start this one again"
                ) from None
            self._problems[seed] = str(error.refused or error.reason)
            return None
        except msgspec.MsgspecError as error:
            self._problems[seed] = f"a response that cannot be read: {error}"
            return None
        match response:
            case words.Blank(seeds):
                return forming.Blank(peer.node, peer.folder_id, frozenset(seeds))
            case words.Member(cluster_id):
                return forming.Member(cluster_id)
            case _:
                return None

    async def _join(
        self, addresses: Iterable[str], register: words.Register
    ) -> words.Registered | None:
        addresses = tuple(addresses)
        if self._enrolment is not None and self._enrolment.is_needed:
            problem = await self._enrolment.obtain(addresses)
            if problem:
                self._tell(f"the cluster gives this node no certificate yet: {problem}")
                return None
        for address in addresses:
            response = await self._register_at(address, register)
            match response:
                case words.Registered():
                    return response
                case words.Failed(message=message, may_retry=False):
                    raise CannotJoin(f"the cluster does not take this node: {message}")
                case words.Failed(message=message):
                    self._tell(f"the cluster cannot take this node yet: {message}")
        return None

    async def _register_at(self, address: str, register: words.Register) -> words.Response:
        response: words.Response = words.Failed(ErrorCode.NOT_CONTROLLER, "", may_retry=True)
        for _ in range(REDIRECTS_MAX):
            try:
                _, payload = await self._links.call_address(
                    parse_address(address),
                    words.encode(register),
                    REGISTER_TIMEOUT_MS,
                    kind=words.REGISTER,
                )
                response = words.decode_response(payload)
            except (CallError, msgspec.MsgspecError, ValueError) as error:
                return words.Failed(ErrorCode.NOT_CONTROLLER, f"{address}: {error}", may_retry=True)
            if not isinstance(response, words.Redirected):
                break
            address = response.address
        return response

    def _tell(self, text: str) -> None:
        """Log what this node waits for, once."""
        problems = "".join(f"; {seed}: {why}" for seed, why in sorted(self._problems.items()))
        if text + problems != self._told:
            self._told = self.waiting = text + problems
            logger.warning("this node has no cluster yet: %s%s", text, problems)


async def ask_for_peers(
    links: Links,
    addresses: Iterable[str],
    own_address: str,
    on_answer: Callable[[BrokerId, str, words.Response], None],
    on_refused: Callable[[Refused], None] = lambda refused: None,
) -> None:
    """Ask who is at each address, and say where this node is; answers go to `on_answer`.

    `on_refused` gets the refusals of nodes that do not even let this one ask.

    The leader is asked too if another node says where it is. It may be a node that came after this
    one went: this node gets what it sends, but cannot respond before it knows the address.
    """
    asked = set(addresses)

    async def ask(address: str) -> None:
        question = words.encode(words.Ask(own_address))
        try:
            peer, payload = await links.call_address(
                parse_address(address), question, ASK_TIMEOUT_MS, kind=words.ASK
            )
            response = words.decode_response(payload)
        except CallError as error:
            if error.refused is not None and error.refused.is_by_peer:
                on_refused(error.refused)
            return
        except ValueError:  # msgspec's are ValueErrors
            return
        on_answer(peer.node, address, response)
        if isinstance(response, words.Member) and response.leader not in {"", own_address, *asked}:
            asked.add(response.leader)
            await ask(response.leader)

    await asyncio.gather(*map(ask, sorted(asked)))
