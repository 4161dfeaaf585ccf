"""Sequence numbers of an idempotent producer, and pauses between retries."""

from random import Random

from headrace.client.identity import Identity
from headrace.client.retrying import pause_ms
from headrace.client.settings import ClientSettings
from headrace.client.topics import TopicPartition

P0, P1 = TopicPartition("topic", 0), TopicPartition("topic", 1)


def test_sequences_count_records_of_each_partition() -> None:
    identity = Identity(7, 0)
    assert [identity.take(P0, 3), identity.take(P0, 2), identity.take(P1, 1)] == [0, 3, 0]
    assert identity.take(P0, 1) == 5


def test_the_sequence_after_the_largest_is_zero() -> None:
    identity = Identity(7, 0)
    identity.give_back(P0, 2**31 - 2)
    assert identity.take(P0, 2) == 2**31 - 2
    assert identity.take(P0, 1) == 0


def test_numbers_of_a_batch_that_was_refused_whole_are_used_again() -> None:
    identity = Identity(7, 0)
    identity.take(P0, 3)
    refused = identity.take(P0, 4)
    identity.give_back(P0, refused)
    assert identity.take(P0, 2) == refused


def test_pauses_double_up_to_their_bound_and_are_never_far_off() -> None:
    settings = ClientSettings(retry_backoff_ms=100, retry_backoff_max_ms=1000)
    random = Random(1)
    for retry, nominal in enumerate([100, 200, 400, 800, 1000, 1000]):
        pauses = [pause_ms(retry, settings, random) for _ in range(100)]
        assert all(0.8 * nominal <= pause <= 1.2 * nominal for pause in pauses)
        assert len(set(pauses)) > 50
    assert pause_ms(10_000, settings, random) <= 1200
