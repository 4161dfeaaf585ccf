"""The controller: what it was asked ends with its term, and nodes that stop hand over first."""

import asyncio
from typing import cast

from headrace.cluster import words
from headrace.cluster.address_book import AddressBook
from headrace.cluster.controller import Controller
from headrace.cluster.plans import ENTRY_CHANGES_MAX
from headrace.cluster.registrar import Admission
from headrace.cluster.transport.calls import IncomingCall
from headrace.cluster.transport.hello import Identity
from headrace.cluster.transport.links import Links
from headrace.ids import BrokerId, TopicId
from headrace.metadata.ddl import ChangeBroker, RegisterBroker, SetFeature, encode_ddl
from headrace.metadata.quorum import MetadataQuorum
from headrace.metadata.state import NO_LEADER
from headrace.testing.disk import SimulatedDisk
from tests.unit.cluster.controlled import Controlled, Handlers, run, until
from tests.unit.metadata.clusters import assign

LEADER, FIRST, SECOND = map(BrokerId, (1, 2, 3))
FOLDER = b"f" * 16


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
        voters_max=lambda: 3,
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


def test_a_node_that_stops_hands_over_first_and_then_may_stop() -> None:
    async def scenario(controlled: Controlled) -> None:
        await controlled.add_brokers(1, 2, 3)
        await controlled.create(assign(2, 3))
        await controlled.lead()
        assert not controlled.beat(2, is_stopping=True).may_stop
        await until(lambda: controlled.row().leader == 3)
        assert controlled.row().isr == (3,)
        broker = controlled.quorum.image.broker(FIRST)
        assert broker is not None
        assert (broker.is_shutting_down, broker.is_fenced) == (True, False)
        assert controlled.beat(2, is_stopping=True).may_stop
        await until(lambda: _is_fenced(controlled, FIRST))

    run(scenario)


def test_a_node_that_stops_is_handed_over_by_the_next_controller_too() -> None:
    async def scenario(controlled: Controlled) -> None:
        await controlled.add_brokers(1, 2, 3)
        await controlled.create(assign(2, 3))
        stopping = ChangeBroker(FIRST, controlled.epoch(2), is_shutting_down=True)
        await controlled.quorum.propose(stopping)
        await controlled.lead()
        await until(lambda: controlled.row().leader == 3)
        assert controlled.beat(2, is_stopping=True).may_stop

    run(scenario)


def test_what_only_the_node_that_stops_can_lead_has_no_leader_then() -> None:
    async def scenario(controlled: Controlled) -> None:
        await controlled.add_brokers(1, 2)
        await controlled.create(assign(2))
        await controlled.lead()
        controlled.beat(2, is_stopping=True)
        await until(lambda: controlled.row().leader == NO_LEADER)
        assert controlled.row().isr == (2,)
        assert controlled.beat(2, is_stopping=True).may_stop

    run(scenario)


def test_a_controller_that_stops_hands_over_to_others() -> None:
    async def scenario(controlled: Controlled) -> None:
        await controlled.add_brokers(1, 2)
        await controlled.create(assign(1, 2))
        await controlled.lead()
        assert not controlled.beat(1, is_stopping=True).may_stop
        await until(lambda: controlled.row().leader == 2)
        assert controlled.beat(1, is_stopping=True).may_stop
        await until(lambda: _is_fenced(controlled, LEADER))
        controlled.controller.note_image()
        await controlled.quorum.read()
        assert _is_fenced(controlled, LEADER)

    run(scenario)


def test_an_eligible_replica_leads_when_it_is_unfenced() -> None:
    async def scenario(controlled: Controlled) -> None:
        await controlled.add_brokers(1, 2)
        await controlled.add_brokers(3, is_fenced=True)
        await controlled.create(assign(2, 3), min_insync_replicas="2")
        await controlled.change(isr=(FIRST,))
        assert controlled.row().elr == (3,)
        await controlled.lead()
        controlled.beat(2, is_stopping=True)
        await until(lambda: controlled.row().leader == NO_LEADER)
        controlled.beat(3)
        await until(lambda: controlled.row().leader == 3)
        assert (controlled.row().isr, controlled.row().elr) == ((3,), (2,))

    run(scenario)


def test_all_that_an_unfenced_node_may_lead_is_led_after_the_log_could_not_take_some() -> None:
    async def scenario(controlled: Controlled) -> None:
        await controlled.add_brokers(1)
        await controlled.add_brokers(2, is_fenced=True)
        await controlled.create(*[assign(2, leader=NO_LEADER)] * 2 * ENTRY_CHANGES_MAX)
        await controlled.lead()
        await controlled.quorum.propose(SetFeature("a.feature", 1))  # the controller is idle then
        controlled.fail(first=1)
        controlled.beat(2)
        await until(lambda: controlled.row(2 * ENTRY_CHANGES_MAX - 1).leader == 2)

    run(scenario)


def _is_fenced(controlled: Controlled, node: BrokerId) -> bool:
    broker = controlled.quorum.image.broker(node)
    return broker is not None and broker.is_fenced


def test_a_guest_is_heard_by_its_own_protocol_and_others_are_not() -> None:
    async def scenario(controlled: Controlled) -> None:
        await controlled.add_brokers(1, 3)
        guest = RegisterBroker(FIRST, b"g" * 16, (), is_fenced=True, node_name="guest")
        await controlled.quorum.propose(guest)
        await controlled.lead()
        before = {
            each.broker: each.heard_ms_ago for each in controlled.controller.describe_sessions()
        }
        assert before == {FIRST: None, SECOND: None}
        for node in (FIRST, SECOND, BrokerId(77)):
            controlled.controller.hear_guest(node)
        after = {
            each.broker: each.heard_ms_ago for each in controlled.controller.describe_sessions()
        }
        assert after[FIRST] is not None
        assert after[SECOND] is None
        await until(lambda: not _is_fenced(controlled, FIRST))

    run(scenario)
