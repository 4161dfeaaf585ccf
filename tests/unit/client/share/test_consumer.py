"""The share consumer against brokers that move, forget and refuse."""

import asyncio

import pytest

from headrace.client import Acknowledged, AcknowledgeType, ShareConsumer, TopicPartition
from headrace.client.errors import AuthenticationFailed
from headrace.client.settings import ConsumerSettings
from headrace.client.share.terms import ShareSettings
from headrace.errors import ErrorCode, KafkaError
from headrace.wire import ApiKey
from headrace.wire.messages.share_acknowledge_request import ShareAcknowledgeRequest
from headrace.wire.messages.share_acknowledge_response import ShareAcknowledgeResponse
from headrace.wire.messages.share_fetch_request import ShareFetchRequest
from headrace.wire.messages.share_fetch_response import ShareFetchResponse
from headrace.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from headrace.wire.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse
from headrace.wire.schema import Message
from headrace.wire.share_types import AcquireMode
from tests.unit.client.share.brokers import (
    INTERVAL_MS,
    Brokers,
    Log,
    acquired,
    batch,
    confirmed,
    consumer,
    on_brokers,
    refused,
    said,
    until,
)

P0 = TopicPartition("orders", 0)
P1 = TopicPartition("orders", 1)
ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType


# Routes and leaders


@on_brokers(2)
async def test_each_partition_is_fetched_from_its_leader_with_one_session_a_node(
    brokers: Brokers,
) -> None:
    brokers.leaders = {P0: 1, P1: 2}
    brokers.then(1, ShareFetchRequest, acquired("orders", 0, batch(0, b"a"), (0, 0, 1)))
    brokers.then(2, ShareFetchRequest, acquired("orders", 1, batch(0, b"b"), (0, 0, 1)))
    async with consumer(brokers) as member:
        values = {record.value for record in await member.poll(1000)}
        values |= {record.value for record in await member.poll(1000)}
        assert values == {b"a", b"b"}
    for node_id, index in ((1, 0), (2, 1)):
        first, *others = brokers.asked(ShareFetchRequest, node_id)
        rows = [row.partition_index for topic in first.topics for row in topic.partitions]
        assert (first.share_session_epoch, rows) == (0, [index])
        assert all(body.share_session_epoch > 0 for body in others)
        assert [each for body in others for each in said(body)] == [(index, 0, 0, [ACCEPT])]


@on_brokers(2)
async def test_a_moved_partition_is_fetched_from_the_leader_that_the_answer_names(
    brokers: Brokers,
) -> None:
    brokers.leaders = {P0: 1}
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    brokers.then(1, ShareFetchRequest, refused("orders", 0, code, (2, 5), [2]))
    brokers.then(2, ShareFetchRequest, acquired("orders", 0, batch(7, b"a"), (7, 7, 2)))
    async with consumer(brokers) as member:
        (record,) = await member.poll(5000)
        assert (record.offset, record.delivery_count) == (7, 2)
        await member.poll(1000)
    (forgetting,) = brokers.asked(ShareFetchRequest, 1)[1:]
    assert [row.partitions for row in forgetting.forgotten_topics_data] == [[0]]


@on_brokers(2)
async def test_a_moved_partition_is_looked_up_where_the_answer_names_nobody(
    brokers: Brokers,
) -> None:
    brokers.leaders = {P0: 1}

    def move(_: ShareFetchRequest) -> ShareFetchResponse:
        brokers.leaders = {P0: 2}
        return refused("orders", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    brokers.then(1, ShareFetchRequest, move)
    brokers.then(2, ShareFetchRequest, acquired("orders", 0, batch(0, b"a"), (0, 0, 1)))
    async with consumer(brokers) as member:
        assert len(await member.poll(5000)) == 1


@on_brokers(2)
async def test_acknowledgements_go_to_the_node_that_gave_the_records_and_fail_if_it_lost_them(
    brokers: Brokers,
) -> None:
    brokers.leaders = {P0: 1}
    brokers.then(1, ShareFetchRequest, acquired("orders", 0, batch(0, b"a"), (0, 0, 1)))
    brokers.then(
        1,
        ShareAcknowledgeRequest,
        lambda body: confirmed(body, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    )
    async with consumer(brokers, mode="explicit") as member:
        (record,) = await member.poll(1000)
        brokers.leaders = {P0: 2}
        member.acknowledge(record)
        outcomes = await member.commit()
        assert _codes(outcomes) == {P0: ErrorCode.NOT_LEADER_OR_FOLLOWER}
        await member.poll(2000)
    assert [said(body) for body in brokers.asked(ShareAcknowledgeRequest, 2)] == [[]]
    assert not any(said(body) for body in brokers.asked(ShareFetchRequest, 2))


@on_brokers()
async def test_a_topic_that_is_assigned_before_metadata_knows_it_is_resolved(
    brokers: Brokers,
) -> None:
    brokers.assigned = [("orders", 0)]
    async with consumer(brokers) as member:
        assert await member.poll(500) == []
        brokers.leaders = {P0: 1}
        brokers.then(1, ShareFetchRequest, acquired("orders", 0, batch(0, b"a"), (0, 0, 1)))
        assert [record.topic for record in await member.poll(5000)] == ["orders"]
        assert member.assignment == {P0}


@on_brokers()
async def test_a_partition_that_is_assigned_later_joins_the_session(brokers: Brokers) -> None:
    brokers.leaders = {P0: 1, P1: 1}
    brokers.assigned = [P0]
    async with consumer(brokers) as member:
        await member.poll(500)
        brokers.assigned = [P1]
        await asyncio.sleep(2 * INTERVAL_MS / 1000)
        await member.poll(500)
    change = next(body for body in brokers.asked(ShareFetchRequest) if body.forgotten_topics_data)
    assert [row.partition_index for topic in change.topics for row in topic.partitions] == [1]
    assert [row.partitions for row in change.forgotten_topics_data] == [[0]]


# Sessions


@pytest.mark.parametrize(
    "code", [ErrorCode.INVALID_SHARE_SESSION_EPOCH, ErrorCode.SHARE_SESSION_NOT_FOUND]
)
def test_a_session_that_the_broker_lost_is_opened_again_and_its_acknowledgements_fail(
    code: ErrorCode,
) -> None:
    @on_brokers()
    async def check(brokers: Brokers) -> None:
        brokers.leaders = {P0: 1}
        first = acquired("orders", 0, batch(0, b"a"), (0, 0, 1))
        second = acquired("orders", 0, batch(1, b"b"), (1, 1, 1))
        brokers.then(1, ShareFetchRequest, first, ShareFetchResponse(error_code=code), second)
        told: list[Acknowledged] = []
        async with consumer(brokers) as member:
            member.on_acknowledged = told.append
            assert [record.offset for record in await member.poll(1000)] == [0]
            assert [record.offset for record in await member.poll(1000)] == [1]
            ((partition, ranges, error),) = [(a.partition, a.ranges, a.error) for a in told]
            assert (partition, list(ranges)) == (P0, [(0, 0)])
            assert error is not None
            assert error.code == code
        epochs = [body.share_session_epoch for body in brokers.asked(ShareFetchRequest)]
        assert epochs[:3] == [0, 1, 0]
        reopening = brokers.asked(ShareFetchRequest)[2]
        assert said(reopening) == []
        assert [row.partition_index for t in reopening.topics for row in t.partitions] == [0]

    check()


@on_brokers()
async def test_a_broker_without_room_for_sessions_is_asked_again_after_growing_pauses(
    brokers: Brokers,
) -> None:
    brokers.leaders = {P0: 1}
    full = ShareFetchResponse(error_code=ErrorCode.SHARE_SESSION_LIMIT_REACHED)
    brokers.then(1, ShareFetchRequest, *[full] * 5)
    brokers.then(1, ShareFetchRequest, acquired("orders", 0, batch(0, b"a"), (0, 0, 1)))
    loop = asyncio.get_running_loop()
    async with consumer(brokers) as member:
        begin = loop.time()
        assert len(await member.poll(60_000)) == 1
        assert loop.time() - begin > 1  # 100, 200, 400, 800 ms and more, give or take a fifth
    epochs = [body.share_session_epoch for body in brokers.asked(ShareFetchRequest)]
    assert epochs == [0] * 6


@on_brokers()
async def test_a_lost_connection_fails_what_was_acknowledged_and_fetches_on_another(
    brokers: Brokers,
) -> None:
    brokers.leaders = {P0: 1}
    brokers.then(1, ShareFetchRequest, acquired("orders", 0, batch(0, b"a", b"b"), (0, 1, 1)))
    async with consumer(brokers, mode="explicit") as member:
        for record in await member.poll(1000):
            member.acknowledge(record)
        brokers.hang_up(1)
        outcomes = await member.commit()
        assert _codes(outcomes) == {P0: ErrorCode.INVALID_SHARE_SESSION_EPOCH}
        again = acquired("orders", 0, batch(0, b"a", b"b"), (0, 1, 2))
        brokers.then(1, ShareFetchRequest, again)
        assert [record.delivery_count for record in await member.poll(5000)] == [2, 2]
    assert brokers.asked(ShareFetchRequest)[-1].share_session_epoch == 0


@on_brokers()
async def test_records_that_waited_here_when_the_connection_broke_are_not_given(
    brokers: Brokers,
) -> None:
    brokers.leaders = {P0: 1}
    brokers.then(1, ShareFetchRequest, acquired("orders", 0, batch(0, b"a", b"b"), (0, 1, 1)))
    async with consumer(brokers, max_poll_records=1) as member:
        assert [record.offset for record in await member.poll(1000)] == [0]
        brokers.hang_up(1)
        brokers.then(1, ShareFetchRequest, acquired("orders", 0, batch(0, b"a"), (0, 0, 2)))
        (record,) = await member.poll(5000)
        assert (record.offset, record.delivery_count) == (0, 2)


@on_brokers()
async def test_records_whose_lock_ended_while_they_waited_here_are_not_given(
    brokers: Brokers,
) -> None:
    brokers.leaders = {P0: 1}
    brokers.then(1, ShareFetchRequest, acquired("orders", 0, batch(0, b"a", b"b"), (0, 1, 1)))
    async with consumer(brokers, max_poll_records=1) as member:
        assert [record.offset for record in await member.poll(1000)] == [0]
        await asyncio.sleep(60)
        assert await member.poll(1000) == []


# Acknowledgements


@on_brokers()
async def test_a_poll_accepts_what_the_poll_before_gave(brokers: Brokers) -> None:
    brokers.leaders = {P0: 1}
    brokers.then(1, ShareFetchRequest, acquired("orders", 0, batch(0, *[b"x"] * 100), (0, 99, 1)))
    async with consumer(brokers) as member:
        assert len(await member.poll(1000)) == 100
        assert not any(said(body) for body in brokers.asked(ShareFetchRequest))
        await member.poll(100)
        assert said(brokers.asked(ShareFetchRequest)[1]) == [(0, 0, 99, [ACCEPT])]


@on_brokers()
async def test_what_the_user_does_to_a_polled_list_is_their_own_affair(brokers: Brokers) -> None:
    brokers.leaders = {P0: 1}
    brokers.then(1, ShareFetchRequest, acquired("orders", 0, batch(0, b"a", b"b"), (0, 1, 1)))
    async with consumer(brokers) as member:
        (await member.poll(1000)).clear()
        assert await member.commit() == {P0: None}
    assert said(brokers.asked(ShareAcknowledgeRequest)[0]) == [(0, 0, 1, [ACCEPT])]


@on_brokers()
async def test_records_beyond_a_polls_number_are_accepted_only_when_they_were_given(
    brokers: Brokers,
) -> None:
    brokers.leaders = {P0: 1}
    brokers.then(1, ShareFetchRequest, acquired("orders", 0, batch(0, *[b"x"] * 5), (0, 4, 1)))
    async with consumer(brokers, max_poll_records=3) as member:
        assert [record.offset for record in await member.poll(1000)] == [0, 1, 2]
        assert [record.offset for record in await member.poll(1000)] == [3, 4]
        await until(lambda: len(brokers.asked(ShareFetchRequest)) == 2)
        assert said(brokers.asked(ShareFetchRequest)[1]) == [(0, 0, 2, [ACCEPT])]


@on_brokers()
async def test_a_consumer_that_wants_no_more_than_it_asks_for_fetches_nothing_ahead(
    brokers: Brokers,
) -> None:
    brokers.leaders = {P0: 1}
    brokers.then(1, ShareFetchRequest, acquired("orders", 0, batch(0, *[b"x"] * 5), (0, 4, 1)))
    exactly = AcquireMode.RECORD_LIMIT
    async with consumer(brokers, max_poll_records=3, acquire_mode=exactly) as member:
        assert [record.offset for record in await member.poll(1000)] == [0, 1, 2]
        assert [record.offset for record in await member.poll(1000)] == [3, 4]
        await until(lambda: len(brokers.asked(ShareAcknowledgeRequest)) == 1)
        assert said(brokers.asked(ShareAcknowledgeRequest)[0]) == [(0, 0, 2, [ACCEPT])]
        assert len(brokers.asked(ShareFetchRequest)) == 1


@on_brokers()
async def test_nothing_is_fetched_ahead_of_records_that_were_delivered_before(
    brokers: Brokers,
) -> None:
    brokers.leaders = {P0: 1}
    brokers.then(1, ShareFetchRequest, acquired("orders", 0, batch(0, *[b"x"] * 5), (0, 4, 2)))
    async with consumer(brokers, max_poll_records=3) as member:
        assert [record.offset for record in await member.poll(1000)] == [0, 1, 2]
        assert [record.offset for record in await member.poll(1000)] == [3, 4]
        await until(lambda: len(brokers.asked(ShareAcknowledgeRequest)) == 1)
        assert len(brokers.asked(ShareFetchRequest)) == 1


@on_brokers()
async def test_offsets_without_a_record_are_acknowledged_as_gaps(brokers: Brokers) -> None:
    brokers.leaders = {P0: 1}
    records = batch(0, b"a") + batch(5, b"b")
    brokers.then(1, ShareFetchRequest, acquired("orders", 0, records, (0, 6, 1)))
    async with consumer(brokers, mode="explicit") as member:
        for record in await member.poll(1000):
            member.acknowledge(record)
        assert await member.commit() == {P0: None}
    everything = [each for b in brokers.asked(ShareAcknowledgeRequest) for each in said(b)]
    by_offset = {
        offset: types[0]
        for _, first, last, types in everything
        for offset in range(first, last + 1)
    }
    assert by_offset == {0: ACCEPT, 1: 0, 2: 0, 3: 0, 4: 0, 5: ACCEPT, 6: 0}


@on_brokers()
async def test_a_batch_that_cannot_be_read_is_rejected_and_the_next_one_given(
    brokers: Brokers,
) -> None:
    brokers.leaders = {P0: 1}
    damaged = bytearray(batch(0, b"a", b"b"))
    damaged[-1] ^= 1
    records = bytes(damaged) + batch(2, b"c")
    brokers.then(1, ShareFetchRequest, acquired("orders", 0, records, (0, 2, 1)))
    async with consumer(brokers) as member:
        assert [record.value for record in await member.poll(1000)] == [b"c"]
        await member.commit()
    everything = [each for b in brokers.asked(ShareAcknowledgeRequest) for each in said(b)]
    assert sorted(everything) == [(0, 0, 1, [REJECT]), (0, 2, 2, [ACCEPT])]


@on_brokers()
async def test_acknowledgements_that_failed_for_now_are_kept_and_sent_again(
    brokers: Brokers,
) -> None:
    brokers.leaders = {P0: 1}
    brokers.then(1, ShareFetchRequest, acquired("orders", 0, batch(0, b"a", b"b"), (0, 1, 1)))
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    brokers.then(1, ShareAcknowledgeRequest, *[lambda body: confirmed(body, code)] * 2)
    async with consumer(brokers) as member:
        await member.poll(1000)
        assert await member.commit() == {P0: None}
    attempts = [said(body) for body in brokers.asked(ShareAcknowledgeRequest)]
    assert attempts == [[(0, 0, 1, [ACCEPT])]] * 3 + [[]]


@on_brokers()
async def test_acknowledgements_that_fail_until_the_lock_is_over_are_reported(
    brokers: Brokers,
) -> None:
    brokers.leaders = {P0: 1}
    brokers.then(1, ShareFetchRequest, acquired("orders", 0, batch(0, b"a"), (0, 0, 1)))
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    brokers.then(1, ShareAcknowledgeRequest, *[lambda body: confirmed(body, code)] * 1000)
    async with consumer(brokers) as member:
        await member.poll(1000)
        assert _codes(await member.commit()) == {P0: code}


@on_brokers()
async def test_an_answer_that_is_silent_about_an_acknowledgement_is_not_taken_for_a_yes(
    brokers: Brokers,
) -> None:
    brokers.leaders = {P0: 1}
    brokers.then(1, ShareFetchRequest, acquired("orders", 0, batch(0, b"a"), (0, 0, 1)))
    brokers.then(1, ShareAcknowledgeRequest, ShareAcknowledgeResponse())
    async with consumer(brokers) as member:
        await member.poll(1000)
        assert _codes(await member.commit()) == {P0: ErrorCode.UNKNOWN_SERVER_ERROR}


@on_brokers()
async def test_a_commit_that_takes_too_long_says_so(brokers: Brokers) -> None:
    brokers.leaders = {P0: 1}
    brokers.then(1, ShareFetchRequest, acquired("orders", 0, batch(0, b"a"), (0, 0, 1)))
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    brokers.then(1, ShareAcknowledgeRequest, *[lambda body: confirmed(body, code)] * 10)
    async with consumer(brokers) as member:
        await member.poll(1000)
        assert _codes(await member.commit(500)) == {P0: ErrorCode.REQUEST_TIMED_OUT}


@on_brokers()
async def test_an_explicit_poll_names_the_records_that_nothing_was_said_of(
    brokers: Brokers,
) -> None:
    brokers.leaders = {P0: 1}
    brokers.then(1, ShareFetchRequest, acquired("orders", 0, batch(4, b"a", b"b"), (4, 5, 1)))
    async with consumer(brokers, mode="explicit") as member:
        first, second = await member.poll(1000)
        member.acknowledge(first)
        with pytest.raises(RuntimeError, match="orders-0 offset 5"):
            await member.poll(1000)
        member.acknowledge_offset("orders", 0, 5, REJECT)
        await member.poll(100)
        with pytest.raises(ValueError, match="offset 5 of orders-0"):
            member.acknowledge(second)
    assert said(brokers.asked(ShareFetchRequest)[1]) == [(0, 4, 5, [ACCEPT, REJECT])]


@on_brokers()
async def test_a_renewed_record_comes_again_and_is_acknowledged_again(brokers: Brokers) -> None:
    brokers.leaders = {P0: 1}
    brokers.then(1, ShareFetchRequest, acquired("orders", 0, batch(0, b"a", b"b"), (0, 1, 1)))
    async with consumer(brokers, mode="explicit") as member:
        first, second = await member.poll(1000)
        member.acknowledge(first)
        member.acknowledge(second, RENEW)
        assert await member.poll(1000) == [second]
        final, renewal = brokers.asked(ShareAcknowledgeRequest)
        assert (final.is_renew_ack, said(final)) == (False, [(0, 0, 0, [ACCEPT])])
        assert (renewal.is_renew_ack, said(renewal)) == (True, [(0, 1, 1, [RENEW])])
        with pytest.raises(RuntimeError, match="offset 1"):
            await member.poll(1000)
        member.acknowledge(second, RELEASE)
        assert await member.commit() == {P0: None}


@on_brokers()
async def test_a_record_whose_renewal_was_refused_does_not_come_again(brokers: Brokers) -> None:
    brokers.leaders = {P0: 1}
    brokers.then(1, ShareFetchRequest, acquired("orders", 0, batch(0, b"a"), (0, 0, 1)))
    code = ErrorCode.INVALID_RECORD_STATE
    brokers.then(1, ShareAcknowledgeRequest, lambda body: confirmed(body, code))
    async with consumer(brokers, mode="explicit") as member:
        (record,) = await member.poll(1000)
        member.acknowledge(record, RENEW)
        assert _codes(await member.commit()) == {P0: code}
        assert await member.poll(500) == []


@on_brokers()
async def test_a_refused_renewal_does_not_take_other_acknowledgements_with_it(
    brokers: Brokers,
) -> None:
    brokers.leaders = {P0: 1}
    brokers.then(1, ShareFetchRequest, acquired("orders", 0, batch(0, b"a", b"b"), (0, 1, 1)))

    def refuse_renewals(body: ShareAcknowledgeRequest) -> Message:
        return confirmed(body, ErrorCode.INVALID_RECORD_STATE if body.is_renew_ack else 0)

    brokers.then(1, ShareAcknowledgeRequest, *[refuse_renewals] * 2)
    told: list[Acknowledged] = []
    async with consumer(brokers, mode="explicit") as member:
        member.on_acknowledged = told.append
        first, second = await member.poll(1000)
        member.acknowledge(first)
        member.acknowledge(second, RENEW)
        await member.commit()
        errors = {offset: done.error for done in told for offset in done.offsets}
        assert errors[0] is None
        assert errors[1] is not None


@on_brokers()
async def test_a_broker_that_cannot_renew_is_not_asked_to(brokers: Brokers) -> None:
    brokers.leaders = {P0: 1}
    brokers.versions[ApiKey.SHARE_ACKNOWLEDGE] = (1, 1)
    brokers.then(1, ShareFetchRequest, acquired("orders", 0, batch(0, b"a"), (0, 0, 1)))
    async with consumer(brokers, mode="explicit") as member:
        (record,) = await member.poll(1000)
        member.acknowledge(record, RENEW)
        assert _codes(await member.commit()) == {P0: ErrorCode.UNSUPPORTED_VERSION}


@on_brokers()
async def test_implicit_mode_takes_no_acknowledgements(brokers: Brokers) -> None:
    brokers.leaders = {P0: 1}
    brokers.then(1, ShareFetchRequest, acquired("orders", 0, batch(0, b"a"), (0, 0, 1)))
    async with consumer(brokers) as member:
        (record,) = await member.poll(1000)
        with pytest.raises(RuntimeError, match="explicit"):
            member.acknowledge(record)


# Iteration and the end


@on_brokers(2)
async def test_leaving_looks_for_a_coordinator_that_has_just_gone(brokers: Brokers) -> None:
    brokers.leaders = {P0: 2}
    member = consumer(brokers)
    await member.start()
    beats = len(brokers.asked(ShareGroupHeartbeatRequest))
    brokers.then(1, ShareGroupHeartbeatRequest, None)
    brokers.coordinator_id = 2
    await until(lambda: len(brokers.asked(ShareGroupHeartbeatRequest)) > beats)
    await asyncio.sleep(0.01)
    await member.close(0)
    (goodbye,) = brokers.asked(ShareGroupHeartbeatRequest, 2)
    assert goodbye.member_epoch == -1


@on_brokers()
async def test_a_member_whose_join_had_no_answer_leaves_though_the_next_is_refused(
    brokers: Brokers,
) -> None:
    brokers.leaders = {P0: 1}
    busy = ShareGroupHeartbeatResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    brokers.then(1, ShareGroupHeartbeatRequest, None, *[busy] * 100)
    starting = asyncio.create_task(consumer(brokers).start())
    await until(lambda: len(brokers.asked(ShareGroupHeartbeatRequest)) > 2)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert brokers.asked(ShareGroupHeartbeatRequest)[-1].member_epoch == -1


@on_brokers()
async def test_closing_accepts_what_was_given_with_the_final_epoch_and_leaves(
    brokers: Brokers,
) -> None:
    brokers.leaders = {P0: 1}
    brokers.then(1, ShareFetchRequest, acquired("orders", 0, batch(0, *[b"x"] * 4), (0, 3, 1)))
    async with consumer(brokers) as member:
        async for record in member:
            if record.offset == 1:
                break
    (final,) = brokers.asked(ShareAcknowledgeRequest)
    assert (final.share_session_epoch, said(final)) == (-1, [(0, 0, 1, [ACCEPT])])
    assert brokers.asked(ShareGroupHeartbeatRequest)[-1].member_epoch == -1


@on_brokers()
async def test_closing_in_time_reports_what_no_broker_confirmed(brokers: Brokers) -> None:
    brokers.leaders = {P0: 1}
    brokers.then(1, ShareFetchRequest, acquired("orders", 0, batch(0, b"a"), (0, 0, 1)))
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    brokers.then(1, ShareAcknowledgeRequest, *[lambda body: confirmed(body, code)] * 1000)
    told: list[Acknowledged] = []
    async with consumer(brokers) as member:
        member.on_acknowledged = told.append
        await member.poll(1000)
        member.commit_async()
        await member.close(timeout_ms=3000)
    ((offsets, error),) = [(list(done.offsets), done.error) for done in told]
    assert offsets == [0]
    assert error is not None


@on_brokers(2)
async def test_closing_ends_the_session_with_every_node(brokers: Brokers) -> None:
    brokers.leaders = {P0: 1, P1: 2}
    async with consumer(brokers) as member:
        await member.poll(100)
    for node_id in (1, 2):
        (final,) = brokers.asked(ShareAcknowledgeRequest, node_id)
        assert final.share_session_epoch == -1


@on_brokers(2)
async def test_a_node_that_fails_at_the_end_keeps_no_other_from_being_told(
    brokers: Brokers,
) -> None:
    brokers.leaders = {P0: 1, P1: 2}
    brokers.then(1, ShareFetchRequest, acquired("orders", 0, batch(0, b"a"), (0, 0, 1)))
    brokers.then(2, ShareFetchRequest, acquired("orders", 1, batch(0, b"b"), (0, 0, 1)))
    told: list[Acknowledged] = []

    def refuse(body: ShareAcknowledgeRequest) -> Message:
        expired = AuthenticationFailed(ErrorCode.SASL_AUTHENTICATION_FAILED, "its token expired")
        asyncio.get_running_loop().call_soon(brokers.fail, 2, expired)
        return confirmed(body)

    brokers.then(2, ShareAcknowledgeRequest, refuse)
    member = consumer(brokers, settings=ShareSettings(limits=ConsumerSettings(max_wait_ms=1000)))
    await member.start()
    member.on_acknowledged = told.append
    given = 0
    while given < 2:
        given += len(await member.poll(1000))
    brokers.late = {1}
    for node_id in brokers.nodes:
        brokers.then(node_id, ShareFetchRequest, acquired("orders", node_id - 1, b""))
    await member.poll(100)
    await member.close()
    assert brokers.asked(ShareAcknowledgeRequest, 1)[-1].share_session_epoch == -1
    assert brokers.asked(ShareGroupHeartbeatRequest)[-1].member_epoch == -1
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert [done.error for done in told if done.partition == P0] == [None]


@on_brokers()
async def test_an_exception_releases_what_was_given_in_implicit_mode(brokers: Brokers) -> None:
    brokers.leaders = {P0: 1}
    brokers.then(1, ShareFetchRequest, acquired("orders", 0, batch(0, b"a"), (0, 0, 1)))

    async def fail() -> None:
        async with consumer(brokers) as member:
            async for _ in member:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    (final,) = brokers.asked(ShareAcknowledgeRequest)
    assert (final.share_session_epoch, said(final)) == (-1, [])


@on_brokers()
async def test_leaving_a_loop_in_the_middle_loses_nothing(brokers: Brokers) -> None:
    brokers.leaders = {P0: 1}
    brokers.then(1, ShareFetchRequest, acquired("orders", 0, batch(0, *[b"x"] * 3), (0, 2, 1)))
    async with consumer(brokers) as member:
        async for _ in member:
            break
        assert await member.commit() == {P0: None}
        assert said(brokers.asked(ShareAcknowledgeRequest)[0]) == [(0, 0, 0, [ACCEPT])]
        assert [record.offset for record in await member.poll(1000)] == [1, 2]
        assert await member.commit() == {P0: None}
        assert said(brokers.asked(ShareAcknowledgeRequest)[1]) == [(0, 1, 2, [ACCEPT])]


# Membership


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_a_member_that_was_put_out_joins_again_under_its_id(code: ErrorCode) -> None:
    @on_brokers()
    async def check(brokers: Brokers) -> None:
        brokers.leaders = {P0: 1}
        put_out = ShareGroupHeartbeatResponse(error_code=code)
        brokers.then(1, ShareGroupHeartbeatRequest, brokers.placed, put_out)
        async with consumer(brokers):
            await until(lambda: len(brokers.asked(ShareGroupHeartbeatRequest)) >= 3)
        join, beat, again = brokers.asked(ShareGroupHeartbeatRequest)[:3]
        assert [join.member_epoch, beat.member_epoch, again.member_epoch] == [0, 1, 0]
        assert again.member_id == join.member_id
        assert again.subscribed_topic_names == ["orders"]
        assert beat.subscribed_topic_names is None

    check()


@on_brokers(2)
async def test_a_coordinator_that_moved_is_found_again(brokers: Brokers) -> None:
    brokers.leaders = {P0: 1}

    def move(_: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
        brokers.coordinator_id = 2
        return ShareGroupHeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR)

    brokers.then(1, ShareGroupHeartbeatRequest, brokers.placed, move)
    async with consumer(brokers):
        await until(lambda: len(brokers.asked(ShareGroupHeartbeatRequest, 2)) >= 2)


@on_brokers(2)
async def test_a_coordinator_that_is_gone_is_found_again(brokers: Brokers) -> None:
    brokers.leaders = {P0: 2}
    async with consumer(brokers):
        brokers.nodes, brokers.coordinator_id = [2], 2
        brokers.hang_up(1)
        await until(lambda: len(brokers.asked(ShareGroupHeartbeatRequest, 2)) >= 2)


@on_brokers()
async def test_heartbeats_go_on_while_records_are_worked_on(brokers: Brokers) -> None:
    brokers.leaders = {P0: 1}
    async with consumer(brokers) as member:
        await member.poll(100)
        before = len(brokers.asked(ShareGroupHeartbeatRequest))
        await asyncio.sleep(10 * INTERVAL_MS / 1000)
        assert len(brokers.asked(ShareGroupHeartbeatRequest)) - before >= 9


@on_brokers()
async def test_a_member_that_has_nothing_yet_does_not_wait_for_a_whole_interval(
    brokers: Brokers,
) -> None:
    brokers.leaders, brokers.assigned = {P0: 1}, []
    async with consumer(brokers) as member:
        brokers.assigned = [P0]
        await asyncio.sleep(INTERVAL_MS / 1000 / 2)
        assert member.assignment == {P0}


@on_brokers()
async def test_what_ends_the_membership_is_raised_by_poll(brokers: Brokers) -> None:
    brokers.leaders = {P0: 1}
    refusal = ShareGroupHeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    brokers.then(1, ShareGroupHeartbeatRequest, brokers.placed, refusal)
    async with consumer(brokers) as member:
        await asyncio.sleep(2 * INTERVAL_MS / 1000)
        for _ in range(2):
            with pytest.raises(KafkaError) as raised:
                await member.poll(1000)
            assert raised.value.code == ErrorCode.GROUP_AUTHORIZATION_FAILED


@on_brokers()
async def test_a_cluster_without_share_groups_is_named_at_once(brokers: Brokers) -> None:
    refusal = ShareGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    brokers.then(1, ShareGroupHeartbeatRequest, refusal)
    with pytest.raises(KafkaError, match=r"share\.version"):
        await consumer(brokers).start()


@on_brokers()
async def test_other_topics_are_subscribed_to_at_once(brokers: Brokers) -> None:
    brokers.leaders = {P0: 1, ("bills", 0): 1}
    async with consumer(brokers) as member:
        member.subscribe(["bills"])
        await until(lambda: len(brokers.asked(ShareGroupHeartbeatRequest)) == 2)
    assert brokers.asked(ShareGroupHeartbeatRequest)[1].subscribed_topic_names == ["bills"]


def test_a_consumer_needs_a_group_and_a_topic() -> None:
    with pytest.raises(ValueError, match="group"):
        ShareConsumer("node:1", "", ["orders"])
    with pytest.raises(ValueError, match="topic"):
        ShareConsumer("node:1", "group", [])


def _codes(outcomes: dict[TopicPartition, KafkaError | None]) -> dict[TopicPartition, ErrorCode]:
    return {partition: error.code for partition, error in outcomes.items() if error is not None}


@on_brokers()
async def test_a_topic_that_does_not_exist_is_warned_of_until_it_does(brokers: Brokers) -> None:
    brokers.leaders = {P0: 1}
    with Log() as log:
        async with consumer(brokers, "orders", "ordres") as member:
            await member.poll(20_000)
            assert log.has("group 'group'", "topic 'ordres'", "UNKNOWN_TOPIC_OR_PARTITION")
            assert not log.has("topic 'orders'")
            assert len(log.lines) == 2, "less and less often"
            brokers.leaders[TopicPartition("ordres", 0)] = 1
            await member.poll(60_000)
            assert len(log.lines) == 2


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_close_in_a_hurry_leaves_the_group_and_no_task(is_cancelled: bool) -> None:
    @on_brokers()
    async def check(brokers: Brokers) -> None:
        brokers.leaders = {P0: 1}
        brokers.then(1, ShareFetchRequest, acquired("orders", 0, batch(0, b"a"), (0, 0, 1)))
        member = consumer(brokers, settings=patient)
        await member.start()
        await member.poll(1000)
        await member.poll(0)
        if is_cancelled:
            closing = asyncio.create_task(member.close())
            await asyncio.sleep(0)
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
        else:
            await member.close(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert brokers.asked(ShareGroupHeartbeatRequest)[-1].member_epoch == -1

    patient = ShareSettings(limits=ConsumerSettings(max_wait_ms=100_000))
    check()
