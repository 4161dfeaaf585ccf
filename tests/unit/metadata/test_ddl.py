from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.ids import PartitionIndex, TopicId, TopicName
from headrace.metadata.ddl import (
    ChangePartition,
    CreateTopic,
    Ddl,
    RegisterBroker,
    SetConfigs,
    SetConfigsIf,
    SetFeature,
    decode_ddl,
    encode_ddl,
)
from headrace.metadata.errors import InvalidEntry
from headrace.metadata.state import Endpoint, ResourceType
from tests.unit.metadata.clusters import ORDERS_ID, assign, create_orders

EXAMPLES: tuple[Ddl, ...] = (
    create_orders(assign(1, 2)),
    ChangePartition(ORDERS_ID, PartitionIndex(3), leader=2),
    RegisterBroker(1, bytes(16), (Endpoint("A", "h", 1, 0),), "r", {"f": (0, 2)}),
    SetConfigs(ResourceType.GROUP, "g", {"a": None, "b": "c"}),
    SetConfigsIf(ResourceType.GROUP, "g", {"a": None, "b": "c"}, {"a": "x", "b": None}),
)


@pytest.mark.parametrize("ddl", EXAMPLES, ids=repr)
def test_ddl_comes_back_as_it_was(ddl: Ddl) -> None:
    assert decode_ddl(encode_ddl(ddl)) == ddl


def test_names_in_the_log_never_change() -> None:
    assert [each.__name__ for each in get_args(Ddl)] == [
        "CreateTopic",
        "DeleteTopic",
        "AddPartitions",
        "ChangePartition",
        "SetClusterId",
        "RegisterBroker",
        "ChangeBroker",
        "UnregisterBroker",
        "SetConfigs",
        "SetConfigsIf",
        "SetFeature",
        "SetFeaturesIf",
        "RaiseLevel",
        "AddAcls",
        "RemoveAcls",
        "SetScramCredential",
        "RemoveScramCredential",
        "SetQuota",
        "SetDelegationToken",
        "ChangeTokenExpiry",
        "RemoveDelegationToken",
        "CancelDecommission",
        "Expire",
    ]


def test_bytes_of_ddl_never_change() -> None:
    assert encode_ddl(SetFeature("share.version", 1)).hex(" ", -4) == (
        "93aa5365 74466561 74757265 ad736861 72652e76 65727369 6f6e01"
    )


@pytest.mark.parametrize(
    "ddl",
    [
        CreateTopic(TopicName("a"), TopicId(b"short"), (assign(1),)),
        SetFeature("f", -1),
        SetFeature("f", 2**15),
        RegisterBroker(2**31, bytes(16), ()),
        SetConfigs(ResourceType.TOPIC, "t", {"a": 1}),  # type: ignore[dict-item]
    ],
)
def test_what_could_not_be_read_is_not_written(ddl: Ddl) -> None:
    with pytest.raises(InvalidEntry):
        encode_ddl(ddl)


@settings(max_examples=300)
@given(st.sampled_from(EXAMPLES), st.data())
def test_mutated_bytes_give_the_named_error_or_ddl(ddl: Ddl, data: st.DataObject) -> None:
    encoded = bytearray(encode_ddl(ddl))
    place = data.draw(st.integers(0, len(encoded) - 1))
    encoded[place] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(encoded)))
    for mutated in (encoded, encoded[:cut], encoded + b"\x00"):
        try:
            decode_ddl(bytes(mutated))
        except InvalidEntry:
            continue
