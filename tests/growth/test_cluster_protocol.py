"""What a message costs grows with its bytes, and a hostile one costs no more than its bytes."""

from headrace.cluster.protocol import (
    Acks,
    PartitionName,
    ProtocolError,
    RequestHeader,
    commands,
    decode_request,
    encode_request,
    requests,
)
from headrace.ids import PartitionIndex, TopicName
from tests.growth.steps import assert_grows_linearly, assert_stays_flat, steps

HEADER = RequestHeader(correlation_id=1, source="1")


def settings(count: int) -> requests.ProposeMetadata:
    config = {f"key.{number}": "value" for number in range(count)}
    return requests.ProposeMetadata(HEADER, commands.UpdateTopicConfig(TopicName("t"), config))


def test_reading_grows_with_the_message() -> None:
    def cost(count: int) -> int:
        frame = encode_request(settings(count))
        return steps(lambda: decode_request(frame))

    assert_grows_linearly(cost, 500)


def test_writing_grows_with_the_message() -> None:
    def cost(count: int) -> int:
        request = settings(count)
        return steps(lambda: encode_request(request))

    assert_grows_linearly(cost, 500)


def test_records_cost_nothing_for_their_size() -> None:
    def cost(count: int) -> int:
        partition = PartitionName(TopicName("t"), PartitionIndex(0))
        records = bytes(count)
        frame = encode_request(requests.Append(HEADER, partition, records, Acks.ALL))
        return steps(lambda: decode_request(frame))

    assert_stays_flat(cost, 100_000)


def test_a_count_that_is_a_lie_costs_nothing() -> None:
    def cost(count: int) -> int:
        frame = encode_request(requests.FetchMetadata(HEADER, None))[:-1]
        frame += b"\x01" + b"\xff" * 9 + b"\x01" + bytes(count)

        def read() -> None:
            try:
                decode_request(frame)
            except ProtocolError:
                return
            raise AssertionError("the frame was read")

        return steps(read)

    assert_stays_flat(cost, 1000)
