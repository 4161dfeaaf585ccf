from headrace.cli.quorum_sizing import Choice, Member, choose, choose_successor, explain_size


def members(*voters: int, others: tuple[int, ...] = (), down: tuple[int, ...] = ()) -> list[Member]:
    return [
        *(Member(each, True, each not in down, each == voters[0], f"h{each}") for each in voters),
        *(Member(each, False, each not in down, host=f"h{each}") for each in others),
    ]


def test_voters_are_added_and_removed_and_the_leader_stays() -> None:
    assert choose(members(1, others=(2, 3, 4, 5)), 3) == Choice(add=(2, 3))
    assert choose(members(5, 1, 2, 3, 4), 3) == Choice(remove=(4, 3))
    assert choose(members(3, 1, 2), 1) == Choice(remove=(2, 1))
    assert choose(members(1, 2, 3), 3) == Choice()


def test_dead_voters_are_replaced_whatever_their_number() -> None:
    assert choose(members(1, 2, 3, others=(4,), down=(2,)), 3) == Choice(add=(4,), remove=(2,))


def test_voters_are_on_different_machines_and_racks() -> None:
    rows = [
        Member(1, True, True, True, "a", "r1"),
        Member(2, False, True, False, "a", "r1"),
        Member(3, False, True, False, "b", "r1"),
        Member(4, False, True, False, "c", "r2"),
        Member(5, False, True, False, "d", "r3"),
    ]
    assert choose(rows, 3).add == (4, 5)
    assert choose_successor(rows, 1) == 2  # it has the place to itself then


def test_sizes_that_make_no_sense_are_explained() -> None:
    assert "odd" in explain_size(2, members(1, 2, 3))
    assert "only 2 are" in explain_size(3, members(1, 2, 3, down=(3,)))
    assert explain_size(3, members(1, 2, 3)) == ""


def test_a_successor_is_up_and_does_not_vote() -> None:
    assert choose_successor(members(1, 2, 3, others=(4, 5), down=(4,)), 2) == 5
    assert choose_successor(members(1, 2, 3), 2) is None
