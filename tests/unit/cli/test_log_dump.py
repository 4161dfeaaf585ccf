"""`headrace log dump` on files that a log wrote."""

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headrace.cli.program import headrace
from headrace.log.opening import open_log
from headrace.log.real_disk import RealDisk
from headrace.log.settings import LogSettings
from headrace.records.builder import BatchBuilder
from headrace.records.control import build_end_transaction_marker


def dump(*arguments: object) -> Result:
    return CliRunner().invoke(headrace, ["log", "dump", *map(str, arguments)])


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    log = open_log(RealDisk(tmp_path), "orders-0", LogSettings(), is_clean=False)
    builder = BatchBuilder()
    builder.append(1000, b"key", b"value", (("h", b"1"),))
    builder.append(2000, None, b"two")
    plain = builder.build()
    builder = BatchBuilder()
    builder.append(3000, None, b"taken back")
    transactional = builder.build(
        producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    marker = build_end_transaction_marker(
        4000, is_commit=False, producer_id=7, producer_epoch=0, coordinator_epoch=0
    )
    log.append(memoryview(plain), leader_epoch=0, now_ms=5000)
    log.append(memoryview(transactional), leader_epoch=0, now_ms=5000)
    log.append_own(memoryview(marker), leader_epoch=0)
    asyncio.run(log.flush())
    log.close()
    return tmp_path / "orders-0"


def rows(text: str, kind: str) -> list[dict[str, object]]:
    found = (json.loads(line) for line in text.splitlines())
    return [row for row in found if row["kind"] == kind]


def test_a_partitions_folder_shows_batches_records_and_aborted_transactions(
    partition: Path,
) -> None:
    done = dump(partition, "--records", "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    assert [row["base_offset"] for row in rows(done.stdout, "batch")] == [0, 2, 3]
    records = rows(done.stdout, "record")
    assert [row.get("value") for row in records[:3]] == ["value", "two", "taken back"]
    assert records[3]["control"] == "abort"
    (aborted,) = rows(done.stdout, "aborted")
    assert (aborted["producer_id"], aborted["first_offset"], aborted["last_offset"]) == (7, 2, 3)


def test_people_get_a_line_a_batch(partition: Path) -> None:
    done = dump(partition / "00000000000000000000.log")
    assert done.exit_code == 0
    assert done.stdout.count("  batch base_offset=") == 3


def test_damage_is_named_and_ends_with_1(partition: Path) -> None:
    segment = partition / "00000000000000000000.log"
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)
    done = dump(segment)
    assert done.exit_code == 1
    assert "damaged: " in done.stdout
    assert "CRC32C" in done.stdout
    assert "batch base_offset=2" in done.stdout, "what lies before the damage is shown"


def test_a_segment_that_is_cut_off_is_damaged(partition: Path) -> None:
    segment = partition / "00000000000000000000.log"
    segment.write_bytes(segment.read_bytes()[:-5])
    done = dump(segment, "--json")
    assert done.exit_code == 1
    assert "cut off" in str(rows(done.stdout, "damage")[0]["reason"])


@pytest.mark.parametrize("name", ["nowhere", "notes.txt", "."])
def test_what_is_no_log_is_wrong_usage(tmp_path: Path, name: str) -> None:
    (tmp_path / "notes.txt").write_text("text")
    done = dump(tmp_path / name)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
