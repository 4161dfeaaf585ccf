"""Requests to partition leaders, for many partitions at once."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeAlias, TypeVar

from headrace.client.cluster import Cluster
from headrace.client.errors import NotReachable
from headrace.client.outcomes import Outcomes
from headrace.client.retrying import Retries
from headrace.client.topics import TopicPartition
from headrace.errors import KafkaError

V = TypeVar("V")

AskNode: TypeAlias = Callable[
    [int, list[TopicPartition]], Awaitable[dict[TopicPartition, V | KafkaError]]
]


async def ask_leaders(
    cluster: Cluster, partitions: Iterable[TopicPartition], ask: AskNode[V]
) -> Outcomes[TopicPartition, V]:
    """Call `ask(node_id, its partitions)` for every leader; return an outcome for each partition.

    Partitions whose leader moved or does not respond are retried, up to the API timeout.
    """
    outcomes: Outcomes[TopicPartition, V] = {}
    retries = Retries(cluster.settings)
    left = list(partitions)
    while left:
        lost, refused = await _ask_once(cluster, left, ask, outcomes)
        left = [*lost, *refused]
        for topic in {partition.topic for partition in left}:
            cluster.suspect(topic)
        if left and not await retries.pause():
            if lost:
                raise next(iter(lost.values()))
            break
    return outcomes


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Group the indexes of partitions by topic, as requests have them."""
    groups: dict[str, list[int]] = {}
    for topic, index in partitions:
        groups.setdefault(topic, []).append(index)
    return groups


async def _ask_once(
    cluster: Cluster,
    partitions: list[TopicPartition],
    ask: AskNode[V],
    outcomes: Outcomes[TopicPartition, V],
) -> tuple[dict[TopicPartition, NotReachable], list[TopicPartition]]:
    """Record outcomes; return the partitions without a response, and the retriable refusals."""
    groups: dict[int, list[TopicPartition]] = {}
    for partition in partitions:
        try:
            leader = await cluster.leader(*partition)
        except KafkaError as error:
            outcomes[partition] = error
        else:
            groups.setdefault(leader.leader_id, []).append(partition)
    answers = await asyncio.gather(
        *(ask(node_id, group) for node_id, group in groups.items()), return_exceptions=True
    )
    lost: dict[TopicPartition, NotReachable] = {}
    refused: list[TopicPartition] = []
    for group, answer in zip(groups.values(), answers, strict=True):
        if isinstance(answer, NotReachable):
            lost.update(dict.fromkeys(group, answer))
        elif isinstance(answer, BaseException):
            raise answer
        else:
            outcomes.update(answer)
            for partition, outcome in answer.items():
                if isinstance(outcome, KafkaError) and outcome.is_retriable:
                    refused.append(partition)
    return lost, refused
