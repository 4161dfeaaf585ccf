"""Which claims go along with a message."""

from headrace.cluster.swim.claims import Standing
from headrace.cluster.swim.gossip import Gossip
from headrace.ids import BrokerId as NodeId
from tests.unit.cluster.swim.members import claim


def nodes(gossip: Gossip, count_max: int, limit: int = 10) -> list[int]:
    return [each.node for each in gossip.take(count_max, limit)]


def test_claims_that_were_sent_least_go_first() -> None:
    gossip = Gossip()
    gossip.put(claim(1))
    assert nodes(gossip, 1) == [1]
    gossip.put(claim(2))
    gossip.put(claim(3))
    assert nodes(gossip, 2) == [2, 3]
    assert nodes(gossip, 3) == [1, 2, 3]


def test_no_more_claims_are_taken_than_there_is_room_for() -> None:
    gossip = Gossip()
    for node in range(20):
        gossip.put(claim(node))
    assert len(gossip.take(7, 10)) == 7
    assert gossip.take(0, 10) == []


def test_a_claim_is_sent_as_often_as_the_limit_says() -> None:
    gossip = Gossip()
    gossip.put(claim(1))
    assert [nodes(gossip, 5, limit=3) for _ in range(4)] == [[1], [1], [1], []]
    assert len(gossip) == 0


def test_a_new_claim_takes_the_place_of_the_old_and_begins_anew() -> None:
    gossip = Gossip()
    gossip.put(claim(1))
    gossip.take(1, 2)
    suspect = claim(1, Standing.SUSPECT)
    gossip.put(suspect)
    assert gossip.claim_of(NodeId(1)) == suspect
    assert [gossip.take(1, 2) for _ in range(3)] == [[suspect], [suspect], []]


def test_dropped_claims_are_not_sent() -> None:
    gossip = Gossip()
    gossip.put(claim(1))
    gossip.drop(NodeId(1))
    gossip.drop(NodeId(2))
    assert gossip.take(5, 5) == []
    assert gossip.claim_of(NodeId(1)) is None
