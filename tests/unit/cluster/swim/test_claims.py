"""Which of two claims holds."""

from itertools import pairwise

from headrace.cluster.swim.claims import UNHEARD, Standing
from tests.unit.cluster.swim.members import claim


def test_worse_claims_hold_in_the_same_incarnation() -> None:
    ranks = [claim(1, standing).rank for standing in Standing]
    assert all(lower < higher for lower, higher in pairwise(ranks))


def test_a_higher_incarnation_holds_whatever_was_said_of_the_lower() -> None:
    assert claim(1, incarnation=4).rank > claim(1, Standing.LEFT, incarnation=3).rank


def test_a_new_life_holds_whatever_incarnation_the_former_had() -> None:
    assert claim(1, boot_epoch=2).rank > claim(1, Standing.LEFT, incarnation=99).rank


def test_any_word_of_a_life_holds_more_than_none() -> None:
    assert claim(1).rank > claim(1, Standing.LEFT, incarnation=UNHEARD).rank
