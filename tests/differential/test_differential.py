"""The same requests to Apache Kafka and to Headrace: each field is equal, or a page says why not.

A difference that is wanted goes into `differences.py`; `python -m tests.differential.differences`
then writes docs/differences.md again.
"""

from pathlib import Path

import pytest

from tests.differential import differences
from tests.differential.comparison import SCRIPTS, Difference, compare, play
from tests.differential.differences import KNOWN, Place, explains
from tests.differential.peers import SETTINGS
from tests.jvm.kafka_broker import kafka

SHOWN_MAX = 40


@pytest.mark.jvm
@pytest.mark.timeout(600)  # the first run downloads Kafka
@pytest.mark.parametrize("script", SCRIPTS)
def test_answers_are_those_of_kafka(
    script: str, kafka_address: str, headrace_address: str, tmp_path: Path
) -> None:
    theirs = play(SCRIPTS[script], kafka_address)
    ours = play(SCRIPTS[script], headrace_address)
    found = compare(theirs, ours)
    places = [place for known in KNOWN for place in known.places if place.script == script]
    unexplained = _unexplained(found, places)
    if unexplained:
        # Kafka applies a change after it has answered it, so that two plays of one script may
        # differ. What Headrace says must be what Kafka says in one of them.
        with kafka(tmp_path / "kafka", extra=SETTINGS) as address:
            found = compare(play(SCRIPTS[script], address), ours)
        unexplained = _unexplained(found, places)
    shown = "\n".join(difference.explain() for difference in unexplained[:SHOWN_MAX])
    assert not unexplained, f"{len(unexplained)} fields of {script} differ from Kafka's:\n{shown}"
    for place in places:
        assert any(explains(place, difference) for difference in found), (
            f"listed as a difference, and it is none (any more): {place}"
        )


def _unexplained(found: list[Difference], places: list[Place]) -> list[Difference]:
    return [
        difference
        for difference in found
        if not any(explains(place, difference) for place in places)
    ]


def test_every_listed_difference_is_of_a_script_that_exists() -> None:
    assert {place.script for known in KNOWN for place in known.places} <= SCRIPTS.keys()


def test_the_page_of_differences_says_what_the_table_says() -> None:
    assert differences.PAGE.read_text() == differences.render()
