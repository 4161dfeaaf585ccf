"""Our own administrator on Headrace and on Apache Kafka: configs, nodes, moves, transactions."""

import pytest

from headrace.client import (
    Admin,
    ErrorCode,
    KafkaError,
    Producer,
    ProducerFenced,
    QuotaEntity,
    Reassignment,
    Resource,
    ResourceType,
    TopicPartition,
    values_of,
)
from tests.clients.awaiting import code_of, eventually, run


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        (ResourceType.GROUP, "consumer.session.timeout.ms", "50000"),
        (ResourceType.CLIENT_METRICS, "interval.ms", "12000"),
        (ResourceType.TOPIC, "retention.ms", "123456789"),
    ],
)
def test_configs_of_every_kind_are_described_and_altered(
    any_bootstrap: str, new_name: str, kind: ResourceType, name: str, value: str
) -> None:
    async def work() -> None:
        async with Admin(any_bootstrap) as admin:
            if kind is ResourceType.TOPIC:
                await admin.create_topic(new_name, 1, 1)
            resource = Resource(kind, new_name)
            await admin.alter_configs(resource, set={name: value})

            async def found() -> dict[str, str | None]:
                outcomes = await admin.describe_configs([resource], names=[name])
                configs = values_of(outcomes)[resource]
                return {row.name: row.value for row in configs if not row.is_default}

            await eventually(found, {name: value})
            assert resource in await admin.list_resources(kind)
            await admin.alter_configs(resource, unset=[name])
            await eventually(found, {})

    run(work())


def test_quotas_are_altered_and_described(any_bootstrap: str, new_name: str) -> None:
    async def work() -> None:
        async with Admin(any_bootstrap) as admin:
            user = QuotaEntity.of(user=new_name)
            both = QuotaEntity.of({"user": new_name, "client-id": None})
            assert str(both) == f"default client-id, user {new_name}"

            async def found() -> dict[QuotaEntity, dict[str, float]]:
                return await admin.describe_quotas({"user": new_name})

            await admin.alter_quotas(user, set={"producer_byte_rate": 1e9}, validate_only=True)
            assert await found() == {}
            await admin.alter_quotas(user, set={"producer_byte_rate": 1e9})
            await admin.alter_quotas(both, set={"request_percentage": 400.5})
            expected = {user: {"producer_byte_rate": 1e9}, both: {"request_percentage": 400.5}}
            await eventually(found, expected)
            strictly = await admin.describe_quotas({"user": new_name}, is_strict=True)
            assert list(strictly) == [user]
            of_both = await admin.describe_quotas({"user": new_name}, types=["client-id"])
            assert list(of_both) == [both]
            with pytest.raises(KafkaError) as error:
                await admin.alter_quotas(user, set={"producer_byte_rate": 0})
            assert error.value.code == ErrorCode.INVALID_REQUEST
            await admin.alter_quotas(user, remove=["producer_byte_rate"])
            await admin.alter_quotas(both, remove=["request_percentage"])
            await eventually(found, {})

    run(work())


def test_resources_are_named_by_what_they_are() -> None:
    assert Resource.topic("t") == Resource(ResourceType.TOPIC, "t")
    assert Resource.broker(3) == Resource(ResourceType.BROKER, "3")
    assert Resource.broker() == Resource(ResourceType.BROKER, "")
    assert Resource.group("g") == Resource(ResourceType.GROUP, "g")
    assert Resource.client_metrics("m") == Resource(ResourceType.CLIENT_METRICS, "m")


def test_features_have_levels(any_bootstrap: str) -> None:
    async def work() -> None:
        async with Admin(any_bootstrap) as admin:
            found = await admin.describe_features()
            level = found["transaction.version"]
            assert level.supported_min <= level.finalized <= level.supported_max == 2
            finalized = {name: row.finalized for name, row in found.items() if row.finalized}
            assert finalized == (await admin.describe_cluster()).features
            await admin.update_features(
                {"transaction.version": 1}, may_downgrade=True, validate_only=True
            )
            with pytest.raises(KafkaError):
                await admin.update_features({"transaction.version": 99})
            with pytest.raises(KafkaError):
                await admin.update_features({"no.such.feature": 1})

    run(work())


def test_partitions_of_one_node_are_where_they_should_be(any_bootstrap: str, new_name: str) -> None:
    async def work() -> None:
        async with Admin(any_bootstrap) as admin:
            await admin.create_topic(new_name, 2, 1)
            (node,) = (await admin.describe_cluster()).nodes
            one, two, none = (TopicPartition(new_name, index) for index in (0, 1, 9))
            moved = await admin.alter_reassignments({one: [node.node_id], none: [node.node_id]})
            assert moved[one] is None
            assert code_of(moved[none]) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            refused = await admin.alter_reassignments({two: [node.node_id + 77]})
            assert code_of(refused[two]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
            cancelled = await admin.cancel_reassignments([one])
            assert code_of(cancelled[one]) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
            assert await admin.list_reassignments([one, two]) == {}
            assert await admin.list_reassignments() == {}
            elected = await admin.elect_leaders([one, none])
            assert code_of(elected[one]) == ErrorCode.ELECTION_NOT_NEEDED
            assert code_of(elected[none]) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert isinstance(await admin.elect_leaders(), dict)
            unclean = await admin.elect_leaders([two], is_unclean=True)
            assert code_of(unclean[two]) == ErrorCode.ELECTION_NOT_NEEDED

    run(work())


def test_a_move_is_told_by_who_comes_and_who_goes() -> None:
    assert Reassignment((1, 2), (2,), (1,)).adding == (2,)


def test_transactions_are_listed_described_and_aborted(any_bootstrap: str, new_name: str) -> None:
    async def work() -> None:
        partition = TopicPartition(new_name, 0)
        async with Admin(any_bootstrap) as admin:
            await admin.create_topic(new_name, 1, 1)
            producer = Producer(any_bootstrap, transactional_id=new_name)
            with pytest.raises(ProducerFenced):  # noqa: PT012  the end of the block raises
                async with producer.transaction():
                    await producer.deliver(new_name, b"x")
                    listed = {row.transactional_id: row for row in await admin.list_transactions()}
                    assert listed[new_name].state == "Ongoing"
                    ongoing = await admin.list_transactions(["Ongoing"])
                    assert new_name in [row.transactional_id for row in ongoing]
                    long_ones = await admin.list_transactions(duration_ms=3_600_000)
                    assert new_name not in [row.transactional_id for row in long_ones]
                    described = await admin.describe_transaction(new_name)
                    assert described.partitions == (partition,)
                    (known,) = values_of(await admin.describe_producers([partition]))[partition]
                    assert known.producer_id == described.producer_id
                    assert known.transaction_start_offset == 0
                    await admin.abort_transaction(new_name)
            await producer.close()
            both = await admin.describe_transactions([new_name, f"{new_name}-not"])
            assert not isinstance(both[new_name], KafkaError)
            assert code_of(both[f"{new_name}-not"]) == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            with pytest.raises(KafkaError) as missing:
                await admin.abort_transaction(f"{new_name}-not")
            assert missing.value.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            with pytest.raises(KafkaError, match="no open transaction"):
                await admin.abort_hanging_transaction(partition, 12345)

    run(work())


def test_fenced_producers_are_shut_out(any_bootstrap: str, new_name: str) -> None:
    async def work() -> None:
        async with Admin(any_bootstrap) as admin:
            await admin.create_topic(new_name, 1, 1)
            producer = Producer(any_bootstrap, transactional_id=new_name)
            async with producer.transaction():
                await producer.send(new_name, b"x")
            outcomes = await admin.fence_producers([new_name, f"{new_name}-new"])
            assert outcomes == {new_name: None, f"{new_name}-new": None}
            with pytest.raises(ProducerFenced):
                async with producer.transaction():
                    await producer.send(new_name, b"y")
            await producer.close()

    run(work())
