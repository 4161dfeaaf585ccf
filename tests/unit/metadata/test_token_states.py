import pytest

from headrace.metadata.ddl import Expire
from headrace.metadata.entries import (
    BeginInFlight,
    JoinTokenTransition,
    MarkAborted,
    MarkConsumed,
    MarkExpired,
    Register,
    RevertInFlight,
    TokenTransition,
)
from headrace.metadata.snapshot import load_snapshot, take_snapshot
from headrace.metadata.state import JoinTokenState, TokenStatus
from headrace.metadata.token_states import KEPT_AFTER_EXPIRY_MS, TokenRefusal, TokenRefused
from headrace.metadata.variants import Octets
from tests.unit.metadata.clusters import Cluster

HASH = Octets(b"\x07" * 32)
EXPIRY_MS = 1000
NODE, OTHER = "10.0.0.7:9093", "10.0.0.8:9093"
PATHS: dict[TokenStatus, tuple[TokenTransition, ...]] = {
    TokenStatus.ISSUED: (Register(EXPIRY_MS),),
    TokenStatus.IN_FLIGHT: (Register(EXPIRY_MS), BeginInFlight(NODE)),
    TokenStatus.CONSUMED: (Register(EXPIRY_MS), BeginInFlight(NODE), MarkConsumed(NODE)),
    TokenStatus.EXPIRED: (Register(EXPIRY_MS), MarkExpired()),
    TokenStatus.ABORTED: (Register(EXPIRY_MS), MarkAborted()),
}


def step(transition: TokenTransition, ts_ms: int = 500) -> JoinTokenTransition:
    return JoinTokenTransition(HASH, transition, ts_ms)


def token_in(status: TokenStatus) -> Cluster:
    cluster = Cluster()
    for transition in PATHS[status]:
        late = isinstance(transition, MarkExpired)
        cluster.propose(step(transition, EXPIRY_MS + 1 if late else 500))
    assert state(cluster).status is status
    return cluster


def state(cluster: Cluster) -> JoinTokenState:
    found = cluster.image.join_token(HASH)
    assert found is not None
    return found


def refusal(cluster: Cluster, transition: JoinTokenTransition) -> TokenRefusal:
    error = cluster.refuses(transition)
    assert isinstance(error, TokenRefused)
    return error.refusal


SAME = "same"
TABLE: list[tuple[TokenStatus, TokenTransition, object]] = [
    (TokenStatus.ISSUED, Register(EXPIRY_MS), SAME),
    (TokenStatus.ISSUED, Register(9), TokenRefusal.INVALID_TRANSITION),
    (TokenStatus.ISSUED, BeginInFlight(NODE), TokenStatus.IN_FLIGHT),
    (TokenStatus.ISSUED, MarkConsumed(NODE), TokenRefusal.INVALID_TRANSITION),
    (TokenStatus.ISSUED, RevertInFlight(), TokenRefusal.INVALID_TRANSITION),
    (TokenStatus.ISSUED, MarkAborted(), TokenStatus.ABORTED),
    (TokenStatus.IN_FLIGHT, Register(EXPIRY_MS), SAME),
    (TokenStatus.IN_FLIGHT, BeginInFlight(NODE), SAME),
    (TokenStatus.IN_FLIGHT, BeginInFlight(OTHER), TokenRefusal.IN_FLIGHT_CONFLICT),
    (TokenStatus.IN_FLIGHT, MarkConsumed(NODE), TokenStatus.CONSUMED),
    (TokenStatus.IN_FLIGHT, MarkConsumed(OTHER), TokenRefusal.IN_FLIGHT_CONFLICT),
    (TokenStatus.IN_FLIGHT, RevertInFlight(), TokenStatus.ISSUED),
    (TokenStatus.IN_FLIGHT, MarkAborted(), TokenStatus.ABORTED),
    (TokenStatus.CONSUMED, BeginInFlight(NODE), TokenRefusal.ALREADY_CONSUMED),
    (TokenStatus.CONSUMED, MarkConsumed(NODE), SAME),
    (TokenStatus.CONSUMED, MarkConsumed(OTHER), TokenRefusal.ALREADY_CONSUMED),
    (TokenStatus.CONSUMED, RevertInFlight(), TokenRefusal.ALREADY_CONSUMED),
    (TokenStatus.CONSUMED, MarkExpired(), TokenRefusal.ALREADY_CONSUMED),
    (TokenStatus.CONSUMED, MarkAborted(), TokenStatus.ABORTED),
    (TokenStatus.EXPIRED, BeginInFlight(NODE), TokenRefusal.EXPIRED),
    (TokenStatus.EXPIRED, MarkConsumed(NODE), TokenRefusal.EXPIRED),
    (TokenStatus.EXPIRED, MarkExpired(), SAME),
    (TokenStatus.EXPIRED, MarkAborted(), TokenStatus.ABORTED),
    (TokenStatus.ABORTED, BeginInFlight(NODE), TokenRefusal.ABORTED),
    (TokenStatus.ABORTED, MarkConsumed(NODE), TokenRefusal.ABORTED),
    (TokenStatus.ABORTED, RevertInFlight(), TokenRefusal.ABORTED),
    (TokenStatus.ABORTED, MarkExpired(), TokenRefusal.ABORTED),
    (TokenStatus.ABORTED, MarkAborted(), SAME),
]


@pytest.mark.parametrize(("status", "transition", "result"), TABLE)
def test_transitions(status: TokenStatus, transition: TokenTransition, result: object) -> None:
    cluster = token_in(status)
    before = state(cluster)
    if isinstance(result, TokenRefusal):
        assert refusal(cluster, step(transition)) is result
    elif result is SAME:
        assert cluster.propose(step(transition)).events == ()
        assert state(cluster) == before
    else:
        cluster.propose(step(transition))
        assert state(cluster).status is result


def test_a_token_that_nobody_registered_is_not_found() -> None:
    assert refusal(Cluster(), step(BeginInFlight(NODE))) is TokenRefusal.NOT_FOUND


@pytest.mark.parametrize("transition", [BeginInFlight(NODE), BeginInFlight(OTHER)])
def test_expiry_is_checked_when_a_join_begins_on_every_node_alike(
    transition: TokenTransition,
) -> None:
    """Facts 5: the seed checks it only with the signature, on the node that was asked."""
    cluster = token_in(TokenStatus.ISSUED)
    assert refusal(cluster, step(transition, EXPIRY_MS + 1)) is TokenRefusal.EXPIRED
    cluster.propose(step(transition, EXPIRY_MS))


def test_a_token_that_expires_in_flight_is_not_consumed() -> None:
    cluster = token_in(TokenStatus.IN_FLIGHT)
    late = step(MarkConsumed(NODE), EXPIRY_MS + 1)
    assert refusal(cluster, late) is TokenRefusal.EXPIRED


def test_only_the_node_in_flight_consumes_the_token() -> None:
    """Facts 5: the seed does not look which address is in flight."""
    cluster = token_in(TokenStatus.IN_FLIGHT)
    assert refusal(cluster, step(MarkConsumed(OTHER))) is TokenRefusal.IN_FLIGHT_CONFLICT
    cluster.propose(step(MarkConsumed(NODE), 700))
    assert state(cluster) == JoinTokenState(TokenStatus.CONSUMED, EXPIRY_MS, 1, NODE, 700)


def test_a_token_expires_only_after_its_expiry() -> None:
    cluster = token_in(TokenStatus.IN_FLIGHT)
    early = step(MarkExpired(), EXPIRY_MS)
    assert refusal(cluster, early) is TokenRefusal.INVALID_TRANSITION
    cluster.propose(step(MarkExpired(), EXPIRY_MS + 1))


def test_each_beginning_is_an_attempt() -> None:
    cluster = token_in(TokenStatus.IN_FLIGHT)
    cluster.propose(step(RevertInFlight()), step(BeginInFlight(OTHER)), step(BeginInFlight(OTHER)))
    assert (state(cluster).attempt, state(cluster).node_addr) == (2, OTHER)


def test_tokens_outlive_the_compaction_of_the_log() -> None:
    """Facts 5: the seed's mirror has no snapshot, so a consumed token would be good again."""
    cluster = token_in(TokenStatus.CONSUMED)
    again = Cluster(load_snapshot(take_snapshot(cluster.applier)))
    assert refusal(again, step(BeginInFlight(OTHER))) is TokenRefusal.ALREADY_CONSUMED


def test_tokens_are_forgotten_long_after_they_expired() -> None:
    cluster = token_in(TokenStatus.CONSUMED)
    cluster.propose(Expire(EXPIRY_MS + KEPT_AFTER_EXPIRY_MS - 1))
    assert cluster.image.join_token(HASH) is not None
    cluster.propose(Expire(EXPIRY_MS + KEPT_AFTER_EXPIRY_MS))
    assert cluster.image.join_token(HASH) is None
