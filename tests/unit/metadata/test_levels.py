"""What nodes of an older release could not follow is not written while they may be there."""

import asyncio

import pytest

from headrace.errors import ErrorCode, KafkaError
from headrace.ids import BrokerId, PartitionIndex
from headrace.metadata.ddl import (
    AddAcls,
    CancelDecommission,
    ChangePartition,
    ChangeTokenExpiry,
    CreateTopic,
    Ddl,
    RaiseLevel,
    RegisterBroker,
    SetConfigs,
    SetConfigsIf,
    SetDelegationToken,
    SetFeaturesIf,
    SetQuota,
    decode_ddl,
    encode_ddl,
)
from headrace.metadata.descriptors import (
    KAFKA_TENANT,
    DescriptorId,
    DescriptorKind,
    DescriptorLease,
    Hlc,
)
from headrace.metadata.entries import (
    Batch,
    CatalogDdlAudited,
    DescriptorLeaseGrant,
    Entry,
    MigrationAbort,
    StartDecommission,
    TopologyChange,
)
from headrace.metadata.errors import InvalidEntry
from headrace.metadata.features import HEADRACE_VERSION
from headrace.metadata.image import Image
from headrace.metadata.levels import refusal_of
from headrace.metadata.phases import CatchUp
from headrace.metadata.quorum import MetadataQuorum
from headrace.metadata.state import Acl, AclPattern, DelegationToken, ResourceType
from headrace.testing.disk import SimulatedDisk
from tests.unit.metadata.clusters import (
    MIGRATION,
    ORDERS,
    ORDERS_ID,
    Cluster,
    as_entry,
    assign,
    checkpoint,
    create_orders,
    join,
)

PLACEMENT = DescriptorId(KAFKA_TENANT, DescriptorKind.SCHEDULE, "placement")
TOPIC = DescriptorId(KAFKA_TENANT, DescriptorKind.COLLECTION, "orders")
TOKEN = DelegationToken("t", "User:a", "User:a", (), 0, 9, 2, b"")
ACL = Acl(AclPattern(2, 3, "orders"), "User:a", "*", 3, 3)
NEW: tuple[Entry | Ddl, ...] = (
    checkpoint(CatchUp(1, 7)),
    MigrationAbort(MIGRATION, "no", ()),
    TopologyChange(StartDecommission(1)),
    CancelDecommission(1),
    DescriptorLeaseGrant(DescriptorLease(PLACEMENT, 1, 1, Hlc.of_ms(1))),
    AddAcls((ACL,)),
    SetQuota((("user", "a"),), "consumer_byte_rate", 1.0),
    SetDelegationToken(TOKEN),
    ChangeTokenExpiry("t", 7),
    CreateTopic(ORDERS, ORDERS_ID, (assign(1),), {"remote.storage.enable": "True"}),
    SetConfigs(ResourceType.TOPIC, ORDERS, {"remote.storage.enable": "true"}),
    CreateTopic(ORDERS, ORDERS_ID, (assign(1),), {"headrace.mirror.source": "far/topic"}),
    SetConfigs(ResourceType.BROKER, "", {"headrace.voters.max": "5"}),
    SetConfigsIf(ResourceType.TOPIC, ORDERS, {"a": "1"}, {"a": None}),
    SetFeaturesIf({"share.version": 1}, {"share.version": 0}),
)
OLD: tuple[Entry | Ddl, ...] = (
    join(7),
    create_orders(),
    ChangePartition(ORDERS_ID, PartitionIndex(0), leader=2),
    RaiseLevel(1),
    SetConfigs(ResourceType.TOPIC, ORDERS, {"remote.storage.enable": "false", "a": None}),
    DescriptorLeaseGrant(DescriptorLease(TOPIC, 1, 1, Hlc.of_ms(1))),
)


def image_at(level: int) -> Image:
    image = Image()
    if level:
        image.state.features[HEADRACE_VERSION] = level
    return image


@pytest.mark.parametrize("change", NEW, ids=lambda each: type(each).__name__)
def test_what_is_new_waits_for_the_level_that_has_it(change: Entry | Ddl) -> None:
    assert refusal_of(image_at(1), change) is None
    payload = encode_ddl(change) if isinstance(change, Ddl) else b""
    forms = [change, Batch((join(7), as_entry(change)))]
    forms += [CatalogDdlAudited(payload, "", "User:a", "please")] if payload else []
    for form in forms:
        refused = refusal_of(image_at(0), form)
        assert refused is not None
        assert refused.code is ErrorCode.UNSUPPORTED_VERSION
        assert "headrace cluster upgrade" in refused.message


@pytest.mark.parametrize("change", OLD, ids=lambda each: type(each).__name__)
def test_what_every_node_knows_does_not_wait(change: Entry | Ddl) -> None:
    assert refusal_of(image_at(0), change) is None


def test_nothing_new_gets_into_the_log_of_a_cluster_that_is_not_at_its_level() -> None:
    async def whole() -> None:
        quorum = MetadataQuorum(BrokerId(1), SimulatedDisk(seed=1))
        await quorum.start()
        try:
            before = quorum.driver.state.log.last_index
            for propose in (
                quorum.propose,
                quorum.propose_for_outcome,
                quorum.propose_as_leader,
            ):
                with pytest.raises(KafkaError, match="delegation tokens need headrace"):
                    await propose(SetDelegationToken(TOKEN))
            assert quorum.driver.state.log.last_index == before
            await quorum.propose(RaiseLevel(1))
            await quorum.propose(SetDelegationToken(TOKEN))
            assert quorum.image.delegation_token("t") == TOKEN
        finally:
            await quorum.stop()

    asyncio.run(whole())


def test_a_level_is_refused_while_a_broker_is_registered_that_does_not_know_it() -> None:
    cluster = Cluster(Image())
    cluster.propose(RegisterBroker(1, bytes(16), (), features={HEADRACE_VERSION: (0, 1)}))
    cluster.propose(RegisterBroker(2, bytes(16), (), features={"share.version": (0, 1)}))
    cluster.refuses_with(ErrorCode.INVALID_UPDATE_VERSION, RaiseLevel(1))
    cluster.propose(RegisterBroker(2, bytes(16), (), features={HEADRACE_VERSION: (0, 3)}))
    assert len(cluster.propose(RaiseLevel(1)).events) == 1
    assert cluster.image.feature_level(HEADRACE_VERSION) == 1
    assert cluster.propose(RaiseLevel(1)).events == ()


def test_a_level_that_this_software_does_not_know_stops_it() -> None:
    data = encode_ddl(RaiseLevel(1))
    assert data.hex() == "92aa52616973654c6576656c01"  # never changes
    with pytest.raises(InvalidEntry, match="not a DDL that this software knows"):
        decode_ddl(data[:-1] + b"\x02")
