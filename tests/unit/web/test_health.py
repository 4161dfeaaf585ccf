"""Readiness, in words."""

from types import SimpleNamespace
from typing import Any

from headrace.config import load_settings
from headrace.web.health import explain_leaving, explain_unready


def node(
    *,
    leader: int | None = 1,
    failure: str | None = None,
    is_ready: bool = True,
    applied_index: int = 2000,
    is_fenced: bool = False,
    waiting: str | None = None,
    is_leaving: bool = False,
    is_decommissioned: bool = False,
) -> Any:
    state = SimpleNamespace(leader=leader, log=SimpleNamespace(commit=2000))
    driver = SimpleNamespace(failure=failure, state=state, applied_index=applied_index)
    quorum = SimpleNamespace(driver=driver, explain=lambda: ["Node 1 has asked for votes."])
    image = SimpleNamespace(
        broker=lambda _: SimpleNamespace(is_fenced=is_fenced),
        is_leaving=lambda _: is_leaving,
        replica_count=lambda _: 7,
    )
    broker = SimpleNamespace(quorum=quorum, image=image)
    settings = load_settings(overrides={"headrace.ready.lag.entries.max": "10"})
    return SimpleNamespace(
        broker=broker,
        is_ready=is_ready,
        node_id=1,
        settings=settings,
        explain_waiting=lambda: waiting,
        decommissioned=SimpleNamespace(is_set=lambda: is_decommissioned),
    )


def test_a_node_with_a_leader_and_listeners_is_ready() -> None:
    assert explain_unready(node()) is None


def test_what_is_missing_is_said() -> None:
    assert "Node 1 has asked for votes." in (explain_unready(node(leader=None)) or "")
    assert "the disk is gone" in (explain_unready(node(failure="the disk is gone")) or "")
    assert "listeners do not serve" in (explain_unready(node(is_ready=False)) or "")
    assert "lacks 11 committed entries" in (explain_unready(node(applied_index=1989)) or "")
    assert "no leader yet" in (explain_unready(node(waiting="no leader yet")) or "")
    assert "fenced" in (explain_unready(node(is_fenced=True)) or "")


def test_a_node_that_is_to_leave_is_ready_until_it_has_left() -> None:
    assert explain_leaving(node()) is None
    assert explain_unready(node(is_leaving=True)) is None
    assert "7 replicas" in (explain_leaving(node(is_leaving=True)) or "")
    assert "decommissioned" in (explain_unready(node(is_decommissioned=True)) or "")
