"""The controller: what it was asked ends with its term."""

import asyncio
from typing import Any, cast

from headrace.cluster import words
from headrace.cluster.address_book import AddressBook
from headrace.cluster.controller import Controller
from headrace.cluster.registrar import Admission
from headrace.cluster.transport.calls import IncomingCall
from headrace.cluster.transport.hello import Identity
from headrace.cluster.transport.links import Links
from headrace.ids import BrokerId, TopicId
from headrace.metadata.ddl import RegisterBroker, encode_ddl
from headrace.metadata.quorum import MetadataQuorum
from headrace.testing.disk import SimulatedDisk

LEADER, FIRST, SECOND = map(BrokerId, (1, 2, 3))
FOLDER = b"f" * 16


class Handlers:
    """The calls that a controller serves, in place of the links."""

    def __init__(self) -> None:
        self.of: dict[int, Any] = {}

    def serve(self, kind: int, handler: Any) -> None:
        self.of[kind] = handler


class Call:
    """A node's call that asks to be registered."""

    def __init__(self, node: BrokerId) -> None:
        self.sender = Identity(node, TopicId(FOLDER), 1, "")
        broker = RegisterBroker(node, b"i" * 16, (), log_dirs=(FOLDER,))
        self.payload = words.encode(words.Register("here:9", encode_ddl(broker), -1))
        self.answers: list[words.Response] = []

    def answer(self, payload: bytes) -> None:
        self.answers.append(words.decode_response(payload))


def make_controller(quorum: MetadataQuorum, handlers: Handlers) -> Controller:
    return Controller(
        quorum,
        cast(Links, handlers),
        AddressBook(SimulatedDisk(seed=2)),
        session_timeout_ms=9000,
        heartbeat_interval_ms=2000,
        voters_max=3,
        admission=Admission(lambda: 0),
    )


def test_a_registration_ends_with_the_term_of_the_controller_that_took_it() -> None:
    """Sent on to the next leader it may come behind the registration of the node's next life."""

    async def whole() -> None:
        quorum = MetadataQuorum(LEADER, SimulatedDisk(seed=1))
        await quorum.start()
        handlers, calls = Handlers(), [Call(FIRST), Call(SECOND)]
        controller = make_controller(quorum, handlers)
        controller.serve()
        try:
            while not controller.is_active:
                await asyncio.sleep(0)
            for call in calls:
                handlers.of[words.REGISTER](cast(IncomingCall, call))
            await asyncio.sleep(0)  # the second one waits for the first
            controller.close()
            while not all(call.answers for call in calls):
                await asyncio.sleep(0)
            for call in calls:
                (answer,) = call.answers
                assert isinstance(answer, words.Failed)
                assert answer.may_retry
            await quorum.read()
            assert quorum.image.broker(SECOND) is None
        finally:
            await quorum.stop()

    asyncio.run(asyncio.wait_for(whole(), 60))


def test_a_step_that_fails_does_not_end_the_others() -> None:
    async def whole() -> None:
        quorum = MetadataQuorum(LEADER, SimulatedDisk(seed=1))
        await quorum.start()
        controller = make_controller(quorum, Handlers())
        fenced = asyncio.Event()

        async def repair() -> bool:
            raise RuntimeError("a mistake")

        async def fence() -> bool:
            fenced.set()
            return True

        vars(controller).update(_repair=repair, _fence=fence)
        controller.serve()
        try:
            await fenced.wait()
        finally:
            controller.close()
            await quorum.stop()

    asyncio.run(asyncio.wait_for(whole(), 60))
