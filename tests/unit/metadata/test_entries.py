import struct
from typing import Any, get_args

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw, msgpack

from headrace.metadata import entries, phases
from headrace.metadata.descriptors import (
    DescriptorId,
    DescriptorKind,
    DescriptorLease,
    Hlc,
    topic_descriptor,
)
from headrace.metadata.entries import (
    Batch,
    BeginInFlight,
    CatalogDdl,
    CatalogDdlAudited,
    CaTrustChange,
    ClusterVersionBump,
    DescriptorDrainEnd,
    DescriptorDrainStart,
    DescriptorLeaseGrant,
    DescriptorLeaseRelease,
    Entry,
    FinishDecommission,
    Join,
    JoinTokenTransition,
    LeadershipTransfer,
    Leave,
    MarkAborted,
    MarkConsumed,
    MarkExpired,
    MigrationAbort,
    MigrationCheckpoint,
    PromoteToVoter,
    ReassignVShard,
    Register,
    RemoveMember,
    RevertInFlight,
    RoutingChange,
    StartDecommission,
    SurrogateAlloc,
    TopologyChange,
    decode_entry,
    encode_entry,
)
from headrace.metadata.errors import InvalidEntry
from headrace.metadata.phases import (
    AddLearner,
    CatchUp,
    Complete,
    Cutover,
    Phase,
    PromoteLearner,
    RemoveGhostStub,
    RemoveLearner,
    RemoveVoter,
    RestoreLeaderHint,
    TransferLeadership,
)
from headrace.metadata.variants import DEPTH_MAX, Octets
from tests.unit.metadata.clusters import MIGRATION, ORDERS, checkpoint

DESCRIPTOR = topic_descriptor(ORDERS)
HASH = Octets(bytes(range(32)))
STEPS = (
    AddLearner(3, 1, 4, 4, 50_000, Hlc(5, 1)),
    CatchUp(3, 17),
    PromoteLearner(3, 4, 4),
    TransferLeadership(3, True, 4, 4),
    Cutover(3, 4, 4),
    Complete(3, 900, True),
)
COMPENSATIONS = (
    RemoveLearner(4, 4),
    RemoveVoter(4, 4),
    RestoreLeaderHint(4, 1),
    RemoveGhostStub(3),
)
EXAMPLES: tuple[Entry, ...] = (
    CatalogDdl(b"\x01\x02\x03"),
    CatalogDdlAudited(b"\x00", "7", "ada", "CREATE TOPIC orders"),
    Batch(()),
    Batch((SurrogateAlloc(1), Batch((CatalogDdl(b""),)))),
    TopologyChange(Join(7, "10.0.0.7:9000")),
    TopologyChange(Leave(7)),
    TopologyChange(PromoteToVoter(2**64 - 1)),
    TopologyChange(StartDecommission(7)),
    TopologyChange(FinishDecommission(7)),
    RoutingChange(ReassignVShard(741, 2, 3)),
    RoutingChange(LeadershipTransfer(2, 3)),
    RoutingChange(RemoveMember(0, 2)),
    ClusterVersionBump(3, 4),
    DescriptorLeaseGrant(DescriptorLease(DESCRIPTOR, 2, 3, Hlc(10, 0))),
    DescriptorLeaseRelease(3, (DESCRIPTOR, DescriptorId(9, DescriptorKind.API_KEY, "k"))),
    DescriptorDrainStart(DESCRIPTOR, 2, Hlc(10, 1)),
    DescriptorDrainEnd(DESCRIPTOR),
    CaTrustChange(Octets(b"\x30\xff"), None),
    CaTrustChange(None, HASH),
    SurrogateAlloc(2**32 - 1),
    *(
        JoinTokenTransition(HASH, transition, 5)
        for transition in (
            Register(9),
            BeginInFlight("10.0.0.7:9093"),
            MarkConsumed("10.0.0.7:9093"),
            RevertInFlight(),
            MarkExpired(),
            MarkAborted(),
        )
    ),
    *(checkpoint(step) for step in STEPS),
    MigrationAbort(MIGRATION, "target lost", COMPENSATIONS),
)
ids = st.integers(0, 2**64 - 1)


@pytest.mark.parametrize("entry", EXAMPLES, ids=lambda entry: type(entry).__name__)
def test_every_entry_comes_back_as_it_was(entry: Entry) -> None:
    assert decode_entry(encode_entry(entry)) == entry


def test_the_examples_have_every_variant() -> None:
    assert {type(entry) for entry in EXAMPLES} == set(get_args(Entry))


@pytest.mark.parametrize(
    ("entry", "inner"),
    [
        # Written by hand from the rules: an array of name and fields, bytes as bin.
        (CatalogDdl(b"\x01\x02\x03"), "92 aa 436174616c6f6744646c 91 c403010203"),
        # A variant that wraps one value is an array of one; an enum inside is [name, fields] again.
        (
            TopologyChange(Join(7, "10.0.0.7:9000")),
            "92 ae 546f706f6c6f67794368616e6765 91 92 a4 4a6f696e 92 07 ad"
            "31302e302e302e373a39303030",
        ),
        # Bytes of a fixed length or behind an Option are arrays of integers, None is nil.
        (
            CaTrustChange(Octets(b"\x61\xff"), None),
            "92 ad 436154727573744368616e6765 92 9261ccff c0",
        ),
        # A variant without fields has nil in their place.
        (
            JoinTokenTransition(Octets(bytes(32)), MarkExpired(), 300),
            "92 b3 4a6f696e546f6b656e5472616e736974696f6e 93 dc0020"
            + 32 * "00"
            + "92 ab 4d61726b45787069726564 c0 cd012c",
        ),
        (
            DescriptorDrainEnd(DESCRIPTOR),
            "92 b2 44657363726970746f72447261696e456e64 91 93 00"
            "92 aa 436f6c6c656374696f6e c0 a6 6f7264657273",
        ),
        (
            Batch((SurrogateAlloc(70_000),)),
            "92 a5 4261746368 91 91 92 ae537572726f67617465416c6c6f63 91 ce00011170",
        ),
    ],
)
def test_bytes_are_those_of_the_seed(entry: Entry, inner: str) -> None:
    body = bytes.fromhex(inner)
    assert encode_entry(entry) == b"\xc1\x00\x02" + struct.pack(">I", len(body)) + body


def test_names_in_the_log_never_change() -> None:
    assert entries.ENTRIES.names == (
        "CatalogDdl",
        "CatalogDdlAudited",
        "Batch",
        "TopologyChange",
        "RoutingChange",
        "ClusterVersionBump",
        "DescriptorLeaseGrant",
        "DescriptorLeaseRelease",
        "DescriptorDrainStart",
        "DescriptorDrainEnd",
        "CaTrustChange",
        "SurrogateAlloc",
        "JoinTokenTransition",
        "MigrationCheckpoint",
        "MigrationAbort",
    )
    assert entries.NODE_CHANGES.names == (
        "Join",
        "Leave",
        "PromoteToVoter",
        "StartDecommission",
        "FinishDecommission",
    )
    assert entries.ROUTE_CHANGES.names == ("ReassignVShard", "LeadershipTransfer", "RemoveMember")
    assert entries.TOKEN_TRANSITIONS.names == (
        "Register",
        "BeginInFlight",
        "MarkConsumed",
        "RevertInFlight",
        "MarkExpired",
        "MarkAborted",
    )
    steps = (
        "AddLearner",
        "CatchUp",
        "PromoteLearner",
        "LeadershipTransfer",
        "Cutover",
        "Complete",
    )
    assert phases.CHECKPOINTS.names == steps
    assert tuple(phase.value for phase in Phase) == steps
    assert phases.COMPENSATIONS.names == (
        "RemoveLearner",
        "RemoveVoter",
        "RestoreLeaderHint",
        "RemoveGhostStub",
    )


def sealed(inner: bytes, version: int = 2, marker: int = 0xC1) -> bytes:
    return struct.pack(">BHI", marker, version, len(inner)) + inner


def packed(form: object) -> bytes:
    return sealed(msgpack.encode(form))


def test_version_one_in_an_envelope_is_read() -> None:
    inner = msgpack.encode(["SurrogateAlloc", [1]])
    assert decode_entry(sealed(inner, version=1)) == SurrogateAlloc(1)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "0 bytes"),
        (msgpack.encode(["SurrogateAlloc", [1]]), "not with 0xc1"),
        (sealed(b"", version=0), "version 0"),
        (sealed(b"", version=3), "version 3"),
        (packed(["SurrogateAlloc", [1]])[:-1], "length"),
        (packed(["SurrogateAlloc", [1]]) + b"\x00", "length"),
        (sealed(msgpack.encode(["SurrogateAlloc", [1]]) + b"\x00"), "trailing"),
        (packed(["SurrogateAllocs", [1]]), "unknown variant 'SurrogateAllocs'"),
        (packed(["SurrogateAlloc", [1, 2]]), "at most length 1"),
        (packed(["SurrogateAlloc", []]), "at least length 1"),
        (packed(["SurrogateAlloc", None]), "SurrogateAlloc"),
        (packed(["SurrogateAlloc", [2**32]]), "<= 4294967295"),
        (packed(["SurrogateAlloc", [-1]]), ">= 0"),
        (packed(["SurrogateAlloc", [True]]), "bool"),
        (packed(["CatalogDdl", ["text"]]), "Expected `bytes`"),
        (packed(["TopologyChange", [["Join", [1]]]]), "at least length 2"),
        (packed(["TopologyChange", [["Explode", [1]]]]), "unknown variant 'Explode'"),
        (packed(["DescriptorDrainEnd", [[0, ["Topic", None], "x"]]]), "Topic"),
        (packed(["DescriptorDrainEnd", [[0, ["Index", [1]], "x"]]]), "no fields"),
        (packed(["CaTrustChange", [None, [0] * 31]]), "31 bytes, not 32"),
        (packed(["CaTrustChange", [[256], None]]), "<= 255"),
        (packed(["CaTrustChange", [b"\x00", None]]), "bytes"),
        (packed(["JoinTokenTransition", [[0] * 33, ["MarkExpired", None], 1]]), "33 bytes"),
        (packed(["JoinTokenTransition", [[0] * 32, ["MarkExpired", [1]], 1]]), "no fields"),
        (sealed(b"\x92\xaeSurrogateAlloc" + b"\x91" * 5000 + b"\x01"), "recursion"),
        (sealed(b"\x92\xa2\xff\xfe\x90"), "not a name"),
    ],
)
def test_what_is_no_entry_is_an_error_that_says_why(data: bytes, reason: str) -> None:
    with pytest.raises(InvalidEntry, match=reason):
        decode_entry(data)


def nested(depth: int) -> Entry:
    entry: Entry = SurrogateAlloc(1)
    for _ in range(depth):
        entry = Batch((entry,))
    return entry


def test_batches_nest_only_so_deep() -> None:
    assert decode_entry(encode_entry(nested(DEPTH_MAX))) == nested(DEPTH_MAX)
    for depth in (DEPTH_MAX + 1, 5000):
        with pytest.raises(InvalidEntry):
            encode_entry(nested(depth))
    form: object = ["SurrogateAlloc", [1]]
    for _ in range(DEPTH_MAX + 1):
        form = ["Batch", [[form]]]
    with pytest.raises(InvalidEntry, match="nested deeper"):
        decode_entry(packed(form))


def test_an_entry_has_a_largest_size() -> None:
    with pytest.raises(InvalidEntry, match="split it"):
        encode_entry(CatalogDdl(bytes(entries.ENTRY_MAX_BYTES)))


@pytest.mark.parametrize(
    "entry",
    [
        SurrogateAlloc(-1),
        SurrogateAlloc(2**32),
        CatalogDdl("text"),  # type: ignore[arg-type]
        TopologyChange(Join(1, b"x")),  # type: ignore[arg-type]
        TopologyChange(SurrogateAlloc(1)),  # type: ignore[arg-type]
        TopologyChange(Leave(2**64)),
    ],
)
def test_what_could_not_be_read_is_not_written(entry: Entry) -> None:
    with pytest.raises(InvalidEntry):
        encode_entry(entry)


def test_a_checkpoint_with_a_wrong_checksum_is_no_entry() -> None:
    good = checkpoint(CatchUp(3, 17))
    data = bytearray(encode_entry(good))
    at = data.index(b"\x92\x03\x11")
    data[at + 2] ^= 1
    with pytest.raises(InvalidEntry, match="CRC32C"):
        decode_entry(bytes(data))
    with pytest.raises(InvalidEntry, match="CRC32C"):
        MigrationCheckpoint(MIGRATION, good.phase, 0, good.payload, good.crc32c ^ 1, 0)


def test_a_checkpoints_checksum_is_of_the_bytes_in_the_log_not_of_bytes_written_again() -> None:
    """Facts 1.5: the seed writes the payload again and is at the mercy of its encoder."""
    wide = b"\x92\xa7CatchUp\x92\xcd\x00\x03\x11"  # 3 in three bytes: legal, not the smallest
    assert phases.CHECKPOINTS.encode(CatchUp(3, 17)) != wide
    form = [MIGRATION, ["CatchUp", None], 0, Raw(wide), crc32c(wide), 0]
    entry = decode_entry(packed(["MigrationCheckpoint", form]))
    assert isinstance(entry, MigrationCheckpoint)
    assert bytes(entry.payload) == wide


def test_a_checkpoints_phase_must_be_that_of_its_payload() -> None:
    good = checkpoint(CatchUp(3, 17))
    with pytest.raises(InvalidEntry, match="phase Cutover"):
        MigrationCheckpoint(MIGRATION, Phase.CUTOVER, 0, good.payload, good.crc32c, 0)


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "nil",
        MIGRATION[:-1],
        MIGRATION.upper().replace("1", "A"),
        MIGRATION.replace("-", ""),
        "{" + MIGRATION + "}",
    ],
)
def test_a_migration_id_that_is_no_uuid_is_an_error_and_never_nil(bad: str) -> None:
    good = checkpoint(CatchUp(3, 17))
    fields: list[Any] = [["CatchUp", None], 0, good.payload, good.crc32c, 0]
    for form in (["MigrationCheckpoint", [bad, *fields]], ["MigrationAbort", [bad, "", []]]):
        with pytest.raises(InvalidEntry, match="is no UUID"):
            decode_entry(packed(form))


@settings(max_examples=400)
@given(st.sampled_from(EXAMPLES), st.data())
def test_mutated_bytes_give_the_named_error_or_an_entry(entry: Entry, data: st.DataObject) -> None:
    encoded = bytearray(encode_entry(entry))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(encoded) - 1))
        encoded[place] = data.draw(st.integers(0, 255))
    check_reads_or_refuses(bytes(encoded))


@settings(max_examples=300)
@given(st.binary(max_size=60))
def test_random_bytes_give_the_named_error_or_an_entry(inner: bytes) -> None:
    check_reads_or_refuses(inner)
    check_reads_or_refuses(sealed(inner))
    for name in entries.ENTRIES.names:
        check_reads_or_refuses(sealed(b"\x92" + msgpack.encode(name) + inner))


def check_reads_or_refuses(data: bytes) -> None:
    try:
        entry = decode_entry(data)
    except InvalidEntry:
        return
    assert decode_entry(encode_entry(entry)) == entry


@given(
    node_id=ids, vshard=st.integers(0, 2**32 - 1), text=st.text(max_size=40), payload=st.binary()
)
def test_all_values_of_fields_come_back(
    node_id: int, vshard: int, text: str, payload: bytes
) -> None:
    for entry in (
        TopologyChange(Join(node_id, text)),
        RoutingChange(ReassignVShard(vshard, node_id, node_id)),
        CatalogDdlAudited(payload, text, text, text),
        CaTrustChange(Octets(payload)),
        DescriptorDrainStart(
            DescriptorId(node_id, DescriptorKind.RLS, text), node_id, Hlc(node_id)
        ),
        MigrationAbort(MIGRATION, text, (RemoveGhostStub(vshard), RemoveVoter(node_id, node_id))),
    ):
        assert decode_entry(encode_entry(entry)) == entry
