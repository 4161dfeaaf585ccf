"""Join tokens at the controller, with the image that their entries make."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cluster.tokens import (
    EXPIRES_AT_S_MAX,
    TokenDenied,
    TokenProblem,
    begin_join,
    check_token,
    create_token,
    denied_by,
    finish_join,
    read_token,
    revert_join,
    revoke,
    token_key,
)
from headrace.metadata.ddl import Expire
from headrace.metadata.entries import Entry, JoinTokenTransition, MarkExpired
from headrace.metadata.join_tokens import JoinClaim, issue_token
from headrace.metadata.state import JoinTokenState, TokenStatus
from headrace.metadata.token_states import TokenRefusal, TokenRefused
from headrace.metadata.variants import Octets
from tests.unit.metadata.clusters import Cluster

SECRET = b"\x11" * 32
EXPIRY_S = 2_000_000_000
NOW_MS = EXPIRY_S * 1000 - 60_000
LAST_MS = EXPIRY_S * 1000 + 999
HERE, THERE = "10.0.0.7:9093", "10.0.0.8:9093"
TOKEN = create_token(SECRET, 42, EXPIRY_S)
CLAIM = check_token(TOKEN, SECRET, 42, NOW_MS)


def problem_of(text: str, *, secret: bytes = SECRET, node: int = 42, now_ms: int = NOW_MS) -> str:
    with pytest.raises(TokenDenied) as denied:
        check_token(text, secret, node, now_ms)
    assert denied.value.remedy
    assert text == "" or text not in str(denied.value)
    return denied.value.problem.name


def problem_at(cluster: Cluster, address: str = HERE, now_ms: int = NOW_MS) -> TokenProblem:
    """The problem of a node that shows the token to a controller that has this image."""
    with pytest.raises(TokenDenied) as denied:
        begin_join(cluster.image, CLAIM, address, now_ms)
    assert denied.value.remedy
    return denied.value.problem


def propose(cluster: Cluster, entries: Iterable[Entry]) -> None:
    for entry in entries:
        cluster.propose(entry)


def begun(address: str = HERE) -> Cluster:
    cluster = Cluster()
    propose(cluster, begin_join(cluster.image, CLAIM, address, NOW_MS))
    return cluster


def state(cluster: Cluster) -> JoinTokenState:
    found = cluster.image.join_token(CLAIM.token_hash)
    assert found is not None
    return found


def refused(cluster: Cluster, entry: JoinTokenTransition) -> TokenProblem:
    """The problem of a proposal that the applier refuses."""
    error = cluster.refuses(entry)
    assert isinstance(error, TokenRefused)
    return denied_by(error, cluster.image.join_token(CLAIM.token_hash)).problem


def test_a_token_is_that_of_the_seed_where_the_secret_has_32_bytes() -> None:
    assert issue_token(SECRET, 42, EXPIRY_S) == TOKEN
    assert JoinClaim(42, EXPIRY_S, CLAIM.token_hash) == CLAIM


@given(st.binary(min_size=1, max_size=100), st.integers(0, 2**31 - 2))
def test_a_secret_of_any_length_signs_tokens(secret: bytes, node: int) -> None:
    assert len(token_key(secret)) == 32
    text = create_token(secret, node, EXPIRY_S)
    assert check_token(f" {text}\n", secret, node, NOW_MS).node_id == node
    assert problem_of(text, secret=secret + b"x", node=node) == "WRONG_SECRET"


@pytest.mark.parametrize("text", ["", "no token", TOKEN[:-2], TOKEN + "00", "g" * 96, "9" * 10**6])
def test_garbage_is_no_token(text: str) -> None:
    assert problem_of(text) == "GARBAGE"


def test_every_changed_digit_is_noticed() -> None:
    for position in range(0, 96, 5):
        digit = "0" if TOKEN[position] != "0" else "1"
        changed = TOKEN[:position] + digit + TOKEN[position + 1 :]
        assert problem_of(changed) == "WRONG_SECRET"


def test_a_token_is_for_one_node() -> None:
    assert problem_of(TOKEN, node=43) == "OTHER_NODE"
    with pytest.raises(TokenDenied, match=r"node 42.*node\.id=42"):
        check_token(TOKEN, SECRET, 43, NOW_MS)


def test_a_token_is_good_through_the_second_of_its_expiry_here_and_in_the_image() -> None:
    assert check_token(TOKEN, SECRET, 42, LAST_MS) == CLAIM
    assert problem_of(TOKEN, now_ms=LAST_MS + 1) == "EXPIRED"
    for now_ms, is_refused in ((LAST_MS, False), (LAST_MS + 1, True)):
        cluster = Cluster()
        register, begin = begin_join(cluster.image, CLAIM, HERE, now_ms)
        cluster.propose(register)
        if is_refused:
            assert refused(cluster, begin) is TokenProblem.EXPIRED
        else:
            cluster.propose(begin)


@pytest.mark.parametrize(
    ("node", "expiry_s"), [(-1, 5), (2**31, 5), (1, 0), (1, -1), (1, EXPIRES_AT_S_MAX + 1)]
)
def test_no_token_is_created_that_could_not_be_used(node: int, expiry_s: int) -> None:
    with pytest.raises(ValueError, match="it must be between"):
        create_token(SECRET, node, expiry_s)


@pytest.mark.parametrize(("node", "expiry_s"), [(2**31, 5000), (1, 2**64 - 1)])
def test_a_signed_token_with_impossible_numbers_is_denied(node: int, expiry_s: int) -> None:
    assert problem_of(issue_token(SECRET, node, expiry_s), node=node, now_ms=1) == "GARBAGE"


def test_a_node_joins_once() -> None:
    cluster = begun()
    assert state(cluster).status is TokenStatus.IN_FLIGHT
    cluster.propose(finish_join(CLAIM, HERE, NOW_MS))
    assert state(cluster).status is TokenStatus.CONSUMED
    assert problem_at(cluster) is TokenProblem.USED
    assert problem_at(cluster, THERE) is TokenProblem.USED


def test_a_node_that_is_joining_may_ask_again_and_another_may_not() -> None:
    cluster = begun()
    assert begin_join(cluster.image, CLAIM, HERE, NOW_MS) == []
    assert problem_at(cluster, THERE) is TokenProblem.IN_USE


def test_a_join_that_was_given_up_may_begin_elsewhere() -> None:
    cluster = begun()
    cluster.propose(revert_join(CLAIM, NOW_MS))
    propose(cluster, begin_join(cluster.image, CLAIM, THERE, NOW_MS))
    assert (state(cluster).node_addr, state(cluster).attempt) == (THERE, 2)
    assert refused(cluster, finish_join(CLAIM, HERE, NOW_MS)) is TokenProblem.IN_USE


def test_of_two_nodes_that_show_a_token_at_once_the_log_lets_one_in() -> None:
    cluster = Cluster()
    here = begin_join(cluster.image, CLAIM, HERE, NOW_MS)
    register, begin = begin_join(cluster.image, CLAIM, THERE, NOW_MS)
    propose(cluster, here)
    cluster.propose(register)
    assert refused(cluster, begin) is TokenProblem.IN_USE
    assert state(cluster).node_addr == HERE


def test_a_join_that_was_reverted_meanwhile_does_not_finish() -> None:
    cluster = begun()
    cluster.propose(revert_join(CLAIM, NOW_MS))
    assert refused(cluster, finish_join(CLAIM, HERE, NOW_MS)) is TokenProblem.INTERRUPTED


@pytest.mark.parametrize("is_known", [False, True])
def test_a_revoked_token_lets_nobody_in_whether_it_was_shown_or_not(is_known: bool) -> None:
    cluster = begun() if is_known else Cluster()
    propose(cluster, revoke(cluster.image, CLAIM, NOW_MS))
    assert problem_at(cluster) is TokenProblem.REVOKED
    assert refused(cluster, finish_join(CLAIM, HERE, NOW_MS)) is TokenProblem.REVOKED
    assert revoke(cluster.image, CLAIM, NOW_MS) == []


def test_a_used_token_is_not_revoked_as_its_node_is_in() -> None:
    cluster = begun()
    cluster.propose(finish_join(CLAIM, HERE, NOW_MS))
    with pytest.raises(TokenDenied, match=HERE):
        revoke(cluster.image, CLAIM, NOW_MS)


def test_a_token_of_any_node_can_be_read_to_revoke_it() -> None:
    assert read_token(TOKEN, SECRET, NOW_MS) == CLAIM


def test_an_expired_token_is_denied_while_the_image_knows_it_and_after() -> None:
    cluster = begun()
    cluster.propose(JoinTokenTransition(Octets(CLAIM.token_hash), MarkExpired(), LAST_MS + 1))
    assert problem_at(cluster) is TokenProblem.EXPIRED
    cluster.propose(Expire(LAST_MS + 10**9))
    assert cluster.image.join_token(CLAIM.token_hash) is None
    assert refused(cluster, finish_join(CLAIM, HERE, NOW_MS)) is TokenProblem.INTERRUPTED
    assert problem_of(TOKEN, now_ms=LAST_MS + 10**9) == "EXPIRED"


@pytest.mark.parametrize("refusal", list(TokenRefusal))
def test_every_refusal_of_the_applier_has_words_and_a_remedy(refusal: TokenRefusal) -> None:
    denied = denied_by(TokenRefused(refusal, "why"), None)
    assert denied.sentence
    assert denied.remedy
