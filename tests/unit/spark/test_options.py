import pickle

import pytest

from headrace.spark.options import InvalidOption, Options, connecting
from headrace.spark.read_options import chosen_columns, read_options, stream_options

GIVEN = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "orders"}


def test_the_case_of_a_name_does_not_matter() -> None:
    given = {"KAFKA.BOOTSTRAP.SERVERS": "localhost", "Subscribe": "a", "minpartitions": "7"}
    assert read_options(given).partitions_min == 7


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("startingOfsets", "startingOffsets"),
        ("subscibe", "subscribe"),
        ("kafka.bootstrap.server", "kafka.bootstrap.servers"),
        ("kafka.isolation_level", "kafka.isolation.level"),
    ],
)
def test_an_unknown_option_is_named_with_the_nearest_right_one(wrong: str, meant: str) -> None:
    with pytest.raises(InvalidOption, match=f"no option '{wrong}'; did you mean '{meant}'"):
        read_options({**GIVEN, wrong: "x"})


def test_an_option_that_is_like_no_other_points_to_the_page() -> None:
    with pytest.raises(InvalidOption, match=r"docs/spark\.md"):
        read_options({**GIVEN, "zzzzzz": "x"})


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"subscribePattern": "a.*"}, "subscribe and subscribePattern are given"),
        ({"kafka.auto.offset.reset": "earliest"}, "use 'startingOffsets'"),
        ({"startingOffsets": "latest"}, "would be empty"),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, "-1 is the end"),
        ({"endingOffsets": "earliest"}, "is empty"),
        ({"startingOffsets": "{orders"}, "is not JSON"),
        ({"startingOffsets": '{"orders": 5}'}, "'orders' has 5"),
        ({"startingOffsets": '{"orders": {"0": -3}}'}, "'0': -3"),
        ({"minPartitions": "two"}, "'two', not a whole number"),
        ({"minPartitions": "0"}, "the least is 1"),
        ({"failOnDataLoss": "maybe"}, "true or false"),
        ({"kafka.isolation.level": "none"}, "read_committed, read_uncommitted"),
        ({"kafka.bootstrap.servers": "host:port"}, "the port must be a number"),
        ({"kafka.security.protocol": "SASL_SSL"}, "sasl.mechanism is missing"),
        ({"kafka.sasl.kerberos.service.name": "kafka"}, "Kerberos"),
        ({"kafka.ssl.truststore.location": "x"}, "security.protocol=SSL"),
        ({"columns": "key,vlaue"}, "names 'vlaue'"),
        ({"maxOffsetsPerTrigger": "5"}, "it is for streams"),
        ({"path": "orders"}, "takes no path"),
    ],
)
def test_a_batch_read_says_what_is_wrong(more: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        read_options({**GIVEN, **more})


def test_security_is_that_of_the_client_and_hides_its_secrets() -> None:
    given = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.SASL.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            'username="ann" password=" canary-8 ";'
        ),
    }
    read = read_options({**GIVEN, **given})
    sasl = read.connecting.security.sasl
    assert sasl is not None
    assert (sasl.username, sasl.password.reveal()) == ("ann", " canary-8 ")
    assert "canary" not in repr(read)
    assert pickle.loads(pickle.dumps(read)) == read


def test_what_is_read_must_be_said() -> None:
    with pytest.raises(InvalidOption, match="none is: give exactly one"):
        read_options({"kafka.bootstrap.servers": "localhost"})
    with pytest.raises(InvalidOption, match=r"needs the option 'kafka\.bootstrap\.servers'"):
        read_options({"subscribe": "orders"})


def test_a_stream_has_no_end() -> None:
    with pytest.raises(InvalidOption, match="a stream has no end"):
        stream_options({**GIVEN, "endingOffsets": "latest"})


def test_a_trigger_delay_has_a_unit() -> None:
    assert stream_options({**GIVEN, "maxTriggerDelay": "10s"}).trigger_delay_max_ms == 10_000
    assert stream_options({**GIVEN, "maxTriggerDelay": "2m"}).trigger_delay_max_ms == 120_000
    with pytest.raises(InvalidOption, match="a time is, like 15m"):
        stream_options({**GIVEN, "maxTriggerDelay": "soon"})


def test_columns_are_given_in_the_order_that_was_asked_for() -> None:
    assert chosen_columns({**GIVEN, "columns": "offset, KEY,offset"}) == ("offset", "key")
    assert chosen_columns(GIVEN)[-1] == "timestampType"
    assert chosen_columns({**GIVEN, "includeHeaders": "true"})[-1] == "headers"


def test_a_time_goes_before_offsets() -> None:
    more = {"startingTimestamp": "5", "startingOffsets": "earliest"}
    assert "AtTimes" in repr(read_options({**GIVEN, **more}).start)


def test_kafkas_timeouts_reach_the_client() -> None:
    given = {**GIVEN, "kafka.request.timeout.ms": "1234"}
    options = Options(given, given, "a read", {})
    assert connecting(options).request_timeout_ms == 1234
