"""What `headrace table run` tells beside its batches."""

import pytest

from headrace.cli import table_run
from headrace.cli.table_run import Alarms


def test_an_alarm_is_told_while_a_table_runs_and_once_until_it_is_over(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_run, "ALARM_SECONDS", 0.0)
    found: list[list[str]] = [[], ["a from 1 on"], ["a from 7 on", "b"], [], ["a from 9 on"]]
    alarms = Alarms(lambda: found.pop(0))
    for _ in range(5):
        alarms.look()
    told = capsys.readouterr().err.splitlines()
    assert told == ["headrace: a from 1 on", "headrace: b", "headrace: a from 9 on"]


def test_alarms_are_asked_for_once_in_a_while() -> None:
    asked: list[int] = []

    def find() -> list[str]:
        asked.append(1)
        return []

    alarms = Alarms(find)
    for _ in range(3):
        alarms.look()
    assert len(asked) == 1
