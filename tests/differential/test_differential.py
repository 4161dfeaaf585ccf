"""The same requests to Apache Kafka and to Headrace: each field is equal, or a page says why not.

A difference that is wanted goes into `differences.py`; `python -m tests.differential.differences`
then writes docs/differences.md again.
"""

import pytest

from tests.differential import differences
from tests.differential.comparison import SCRIPTS, compare, play
from tests.differential.differences import KNOWN, explains

SHOWN_MAX = 40


@pytest.mark.jvm
@pytest.mark.timeout(600)  # the first run downloads Kafka
@pytest.mark.parametrize("script", SCRIPTS)
def test_answers_are_those_of_kafka(script: str, kafka_address: str, headrace_address: str) -> None:
    theirs = play(SCRIPTS[script], kafka_address)
    ours = play(SCRIPTS[script], headrace_address)
    found = compare(theirs, ours)
    places = [place for known in KNOWN for place in known.places if place.script == script]
    unexplained = [
        difference
        for difference in found
        if not any(explains(place, difference) for place in places)
    ]
    shown = "\n".join(difference.explain() for difference in unexplained[:SHOWN_MAX])
    assert not unexplained, f"{len(unexplained)} fields of {script} differ from Kafka's:\n{shown}"
    for place in places:
        assert any(explains(place, difference) for difference in found), (
            f"listed as a difference, and it is none (any more): {place}"
        )


def test_every_listed_difference_is_of_a_script_that_exists() -> None:
    assert {place.script for known in KNOWN for place in known.places} <= SCRIPTS.keys()


def test_the_page_of_differences_says_what_the_table_says() -> None:
    assert differences.PAGE.read_text() == differences.render()
