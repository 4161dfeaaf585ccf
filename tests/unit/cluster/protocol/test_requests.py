import pytest

from headrace.cluster.protocol.requests import Acks


@pytest.mark.parametrize("number", [-2, 2, 127, -128])
def test_acks_that_kafka_does_not_know_are_refused_and_not_taken_for_the_leaders(
    number: int,
) -> None:
    """Facts, cluster 2.2: the peer takes any other number for Leader."""
    with pytest.raises(ValueError, match=f"acks is {number}, not 0, 1 or -1"):
        Acks.of_required_acks(number)
