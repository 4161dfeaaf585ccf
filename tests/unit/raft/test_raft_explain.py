"""The quorum in words."""

from headrace.ids import BrokerId
from headrace.raft.explain import explain
from tests.scripts.raft_script import ScriptedQuorum


def lines(quorum: ScriptedQuorum, node: int, failure: str | None = None) -> list[str]:
    raft = quorum.nodes[BrokerId(node)].raft
    return explain(raft.state, quorum.now_ms, failure=failure)


def played(*commands: str) -> ScriptedQuorum:
    quorum = ScriptedQuorum()
    for command in commands:
        quorum.run(command)
    return quorum


def test_who_leads_since_when_and_who_lags_by_how_much() -> None:
    quorum = played(
        "quorum 1 2 3 learners 4", "lead 1", "wait 50", "deliver", "cut 3", "propose 1 a",
        "propose 1 b", "deliver",
    )  # fmt: skip
    assert lines(quorum, 1) == [
        "Node 1 leads term 1 since 50 ms.",
        "Node 2 (voter) has everything; it answered 0 ms ago.",
        "Node 3 (voter) lags by 2 entries; it answered 0 ms ago.",
        "Node 4 (learner) has everything; it answered 0 ms ago.",
        "Its log ends at 3, committed up to 3; the last snapshot is of 0.",
        "Voters are 1, 2, 3; learners are 4.",
    ]
    assert lines(quorum, 2)[0] == (
        "Node 1 leads term 1 since 50 ms, as far as node 2 knows; it was heard 0 ms ago."
    )


def test_why_there_is_no_leader_a_majority_is_silent() -> None:
    quorum = played("quorum 1 2 3", "lead 1", "cut 1 2 3", "wait 300")
    assert lines(quorum, 2) == [
        "Node 2 knows no leader since 190 ms (term 1).",
        "An election needs 2 of 3 voters, and only 1 can be heard: nodes 1, 3 said nothing for "
        "200 ms.",
        "It stands and has 1 of 2 pre-votes.",
        "Its log ends at 1, committed up to 1; the last snapshot is of 0.",
        "Voters are 1, 2, 3.",
    ]


def test_why_there_is_no_leader_this_log_is_behind() -> None:
    quorum = played(
        "quorum 1 2 3", "lead 1", "cut 3", "propose 1 a", "deliver", "heal", "cut 1", "wait 101",
        "drop", "timeout 3", "deliver",
    )  # fmt: skip
    text = lines(quorum, 3)
    assert "Node 2 refused its vote: it has entries that this node lacks." in text


def test_why_there_is_no_leader_nobody_stood_yet() -> None:
    quorum = played("quorum 1 2 3")
    assert "It stands for election in 105 ms if nobody else does." in lines(quorum, 1)


def test_a_node_of_no_quorum_and_a_learner_say_so() -> None:
    assert lines(played("start 4"), 4)[1] == (
        "It belongs to no quorum yet: the leader of one has to add it."
    )
    assert lines(played("quorum 1 2 learners 4"), 4)[1] == (
        "It is a learner, so it waits for the voters to elect one."
    )


def test_a_snapshot_on_its_way_is_told_on_both_sides() -> None:
    quorum = played(
        "quorum 1 2 3 kept_entries=0 snapshot_chunk_bytes=4", "lead 1", "cut 3", "propose 1 a",
        "propose 1 b", "propose 1 c", "deliver", "snapshot 1", "heal", "wait 30", "deliver 1>3",
        "deliver 3>1",
    )  # fmt: skip
    assert any("gets the snapshot of entry 4, 4 of 6 bytes" in line for line in lines(quorum, 1))
    assert "A snapshot of entry 4 is coming in: 4 of 6 bytes." in lines(quorum, 3)


def test_what_waits_and_what_is_pending_is_told() -> None:
    quorum = played("quorum 1 2 3", "lead 1", "cut 2 3", "hold 1", "add-learner 1 4")
    assert lines(quorum, 1)[-2:] == [
        "Its log ends at 2, committed up to 1 (1 entry waits for a majority), on its disk up to 1; "
        "the last snapshot is of 0.",
        "Voters are 1, 2, 3; learners are 4; that is a change at entry 2, not committed yet.",
    ]


def test_a_disk_without_room_is_told_first() -> None:
    quorum = played("quorum 1 2 3", "lead 1")
    raft = quorum.nodes[BrokerId(1)].raft
    told, *rest = explain(raft.state, quorum.now_ms, full_disk="no space left on device")
    assert told == "Node 1 has no room for its log: no space left on device. It tries again."
    assert rest == lines(quorum, 1)


def test_a_lease_a_transfer_and_a_failure_are_told() -> None:
    quorum = played("quorum 1 2 3 has_lease_reads=1", "lead 1", "wait 10", "deliver")
    assert "Its lease lasts 80 ms more, so reads need no round of heartbeats." in lines(quorum, 1)
    quorum.run("cut 2")
    quorum.run("transfer 1 2")
    assert "It is handing leadership to node 2." in lines(quorum, 1)
    assert lines(quorum, 1, failure="the disk is full")[0] == (
        "Node 1 has stopped: the disk is full. What follows is from before."
    )
