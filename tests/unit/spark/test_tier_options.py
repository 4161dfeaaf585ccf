import pytest

from headrace.spark.offsets import EARLIEST, LATEST, AtEnd
from headrace.spark.options import InvalidOption
from headrace.spark.tier.options import tier_columns, tier_options

STORE = {"store": "s3://bucket/tier", "subscribe": "orders"}


def test_a_store_and_a_topic_are_enough() -> None:
    options = tier_options(STORE)
    assert options.connecting is None
    assert options.subscription.names == ("orders",)
    assert (options.start, options.end) == (AtEnd(EARLIEST), AtEnd(LATEST))
    assert options.limits.is_committed
    assert options.lease_ms > 0


def test_topic_is_another_word_for_subscribe() -> None:
    assert tier_options({"store": "s3://b", "topic": "a,b"}).subscription.names == ("a", "b")
    with pytest.raises(InvalidOption, match="topic"):
        tier_options({**STORE, "topic": "a"})


def test_a_cluster_is_asked_if_it_is_named() -> None:
    options = tier_options({**STORE, "kafka.bootstrap.servers": "localhost:9092"})
    assert options.connecting is not None
    assert options.connecting.bootstrap == "localhost:9092"


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"store": ""}, "store"),
        ({"store": "ftp://x"}, "store"),
        ({"store": "s3://user:secret@bucket"}, "store"),
        ({"subscribe": ""}, "subscribe"),
        ({"startingOffsets": "latest"}, "startingOffsets"),
        ({"maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger"),
        ({"topicId": "short"}, "topicId"),
        ({"leaseDuration": "1s"}, "leaseDuration"),
        ({"stoer": "x"}, "store"),
        ({"kafka.group.id": "x"}, "kafka.group.id"),
        ({"kafka.security.protocol": "SSL"}, "kafka.security.protocol"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(changed: dict[str, str], name: str) -> None:
    with pytest.raises(InvalidOption, match=name):
        tier_options({**STORE, **changed})


def test_secrets_are_not_shown() -> None:
    keys = {"store.access.key.id": "AKIA", "store.secret.access.key": "hush"}
    shown = repr(tier_options({**STORE, **keys}))
    assert "hush" not in shown
    assert "AKIA" not in shown


def test_columns_are_those_of_topics() -> None:
    assert "headers" not in tier_columns(STORE)
    assert tier_columns({**STORE, "columns": "value,offset"}) == ("value", "offset")


def test_a_lease_can_be_left_out() -> None:
    assert tier_options({**STORE, "lease": "false"}).lease_ms == 0
