"""Apache Kafka's DumpLogSegments on the files that we write: it reads them all, without complaint.

One directory holds a log for each thing that can happen to one; the tool is run over all of them
at once. What its complaints look like is found out on files that were damaged on purpose.
"""

import asyncio
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from headrace.log import cutting
from headrace.log.log import Log
from headrace.log.opening import open_log
from headrace.log.real_disk import RealDisk
from headrace.log.settings import LogSettings
from headrace.records.builder import BatchBuilder
from headrace.records.compression import Compression
from headrace.records.control import build_end_transaction_marker
from headrace.records.record import Record
from tools.jvm.harness import JVM_OPTIONS, jars

NOW_MS = 1_700_000_000_000
SETTINGS = LogSettings(segment_bytes=2000, index_interval_bytes=150)
TOOL = "org.apache.kafka.tools.DumpLogSegments"
TOOL_SECONDS_MAX = 60
COMPLAINTS = re.compile(
    r"mismatch|out of order|Non-consecutive|invalid bytes|isvalid: false|exception|corrupt|unclean"
    r"|could not|fail(?!ed to load class)",
    re.IGNORECASE,
)


EVERY_LATER_SEGMENT = re.compile(
    r"Non-consecutive offsets in \S+/0*(\d+)\.log\n  -1 is followed by \1\n"
)
"""What the tool of 4.3.1 says with --deep-iteration of each file that does not begin with 0."""


class Story(msgspec.Struct):
    """A log that something happens to, and the records that are left in its files."""

    log: Log
    records: dict[int, Record] = {}
    sequence: int = 0

    def append(
        self,
        count: int = 2,
        codec: Compression = Compression.NONE,
        producer_id: int = -1,
        is_transactional: bool = False,
        leader_epoch: int = 0,
    ) -> None:
        builder = BatchBuilder(codec)
        first = self.log.end_offset
        for offset in range(first, first + count):
            record = Record(
                offset,
                NOW_MS + offset * 10 + offset % 3 * 25,
                None if offset % 5 == 4 else b"key-%d" % offset,
                b"value-%d" % offset + b"." * (offset % 7 * 20),
                (("trace", b"1"), ("none", None))[: offset % 3],
            )
            builder.append(record.timestamp, record.key, record.value, record.headers)
            self.records[offset] = record
        batch = builder.build(
            producer_id=producer_id,
            producer_epoch=-1 if producer_id < 0 else 0,
            base_sequence=-1 if producer_id < 0 else self.sequence,
            is_transactional=is_transactional,
        )
        if producer_id >= 0:
            self.sequence += count
        self.log.append(memoryview(batch), leader_epoch=leader_epoch, now_ms=NOW_MS)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        marker = build_end_transaction_marker(
            NOW_MS + self.log.end_offset * 10,
            is_commit=is_commit,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=3,
        )
        self.log.append_own(memoryview(marker), leader_epoch=0)

    def keep(self, start_offset: int, end_offset: int) -> None:
        self.records = {o: r for o, r in self.records.items() if start_offset <= o < end_offset}


def every_codec(story: Story) -> None:
    for codec in Compression:
        story.append(9, codec)


def rolls(story: Story) -> None:
    for epoch in range(60):
        story.append(leader_epoch=epoch // 9)


def transactions(story: Story) -> None:
    for number in range(40):
        story.append(2, producer_id=7, is_transactional=True)
        if number % 3:
            story.end_transaction(7, is_commit=number % 2 == 0)


def truncation(story: Story) -> None:
    transactions(story)
    cutting.truncate(story.log, 70)
    story.keep(0, story.log.end_offset)
    story.sequence = 0
    for _ in range(10):
        story.append(3)


def deletion(story: Story) -> None:
    rolls(story)
    story.log.advance_high_watermark(story.log.end_offset)
    cutting.delete_records(story.log, 55)
    cutting.remove_files(
        story.log.disk,
        [
            f"{story.log.folder}/{n}"
            for n in story.log.disk.list(story.log.folder)
            if ".deleted" in n
        ],
    )
    story.keep(story.log.segments[0].base_offset, story.log.end_offset)


def recovery(story: Story) -> None:
    """A crash tore the last batch; everything was read again, and the log went on."""
    transactions(story)
    asyncio.run(story.log.flush())
    file = story.log.segments[-1].file
    file.append(file.read(0, 100))
    story.log = open_log(story.log.disk, story.log.folder, SETTINGS, is_clean=False)
    story.sequence = 80
    transactions(story)


STORIES = (every_codec, rolls, transactions, truncation, deletion, recovery)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stories")


@pytest.fixture(scope="module", autouse=True)
def stories(root: Path) -> Iterator[dict[str, Story]]:
    disk = RealDisk(root)
    told: dict[str, Story] = {}
    for tell in STORIES:
        for ends in ("closed", "flushed"):
            name = f"{tell.__name__}-{ends}-0"
            story = Story(open_log(disk, name, SETTINGS, is_clean=True), {})
            tell(story)
            if ends == "closed":
                story.log.close()
            else:
                asyncio.run(story.log.flush())
            told[name] = story
    yield told
    disk.close()


def dump(files: list[Path], *options: str) -> str:
    """What the tool, which ends well, writes about the files."""
    status, output = run_tool(files, *options)
    assert status == 0, output
    return EVERY_LATER_SEGMENT.sub("", output)


def run_tool(files: list[Path], *options: str) -> tuple[int, str]:
    """The status that the tool ends with, and what it writes to both its outputs."""
    done = subprocess.run(
        [
            *("java", *JVM_OPTIONS, "-cp", f"{jars()}/*", TOOL),
            *("--files", ",".join(map(str, files)), *options),
        ],
        capture_output=True,
        text=True,
        timeout=TOOL_SECONDS_MAX,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def files_of(root: Path, *endings: str) -> list[Path]:
    return sorted(path for path in root.glob("*-0/*") if path.suffix in endings)


RECORD = re.compile(
    r"\| offset: (?P<offset>\d+) CreateTime: (?P<time>-?\d+) keySize: -?\d+ valueSize: -?\d+ "
    r"sequence: -?\d+ headerKeys: \[(?P<headers>.*?)\](?: key: (?P<key>\S+))?"
    r"(?: payload: (?P<value>\S+))?$",
    re.MULTILINE,
)


def test_every_record_is_printed_as_it_was_written(stories: dict[str, Story], root: Path) -> None:
    output = dump(files_of(root, ".log"), "--deep-iteration", "--print-data-log")
    assert not COMPLAINTS.findall(output)
    printed: dict[str, dict[int, Record]] = {name: {} for name in stories}
    for part in output.split("Dumping ")[1:]:
        path, _, text = part.partition("\n")
        for found in RECORD.finditer(text):
            names = tuple((name, None) for name in found["headers"].split(",") if name)
            printed[Path(path).parent.name][int(found["offset"])] = Record(
                int(found["offset"]),
                int(found["time"]),
                None if found["key"] is None else found["key"].encode(),
                None if found["value"] is None else found["value"].encode(),
                names,
            )
    for name, story in stories.items():
        written = {
            offset: msgspec.structs.replace(
                record, headers=tuple((header, None) for header, _ in record.headers)
            )
            for offset, record in story.records.items()
        }
        assert printed[name] == written


def test_every_marker_is_printed(stories: dict[str, Story], root: Path) -> None:
    output = dump(files_of(root, ".log"), "--print-data-log")
    aborts = sum(
        len(segment.transaction_index.entries())
        for story in stories.values()
        for segment in story.log.segments
    )
    assert aborts > 20
    assert output.count("endTxnMarker: ABORT coordinatorEpoch: 3") == aborts


def test_every_entry_of_an_index_points_to_its_batch(root: Path) -> None:
    output = dump(files_of(root, ".index", ".timeindex"), "--verify-index-only")
    assert not COMPLAINTS.findall(output)
    assert output.count("Dumping ") > 40


def test_every_index_passes_the_sanity_check(root: Path) -> None:
    files = [path for path in files_of(root, ".index", ".timeindex") if path.stat().st_size]
    output = dump(files, "--index-sanity-check")
    assert not COMPLAINTS.findall(output)
    assert output.count("passed sanity check") == len(files)


def test_transactions_and_producers_are_printed_as_we_know_them(
    stories: dict[str, Story], root: Path
) -> None:
    output = dump(files_of(root, ".txnindex", ".snapshot"))
    assert not COMPLAINTS.findall(output)
    aborted = {
        tuple(map(int, found))
        for found in re.findall(
            r"version: 0 producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) "
            r"lastStableOffset: (\d+)",
            output,
        )
    }
    known = {
        msgspec.structs.astuple(entry)
        for story in stories.values()
        for segment in story.log.segments
        for entry in segment.transaction_index.entries()
    }
    assert aborted == known
    snapshot = root / "transactions-closed-0" / "00000000000000000106.snapshot"
    assert f"Dumping {snapshot}" in output
    state = stories["transactions-closed-0"].log.producers.get(7)
    assert state is not None
    last = state.batches[-1]
    text = output.partition(f"Dumping {snapshot}\n")[2].partition("Dumping ")[0]
    for word in (
        f"producerId: 7 producerEpoch: {state.epoch} coordinatorEpoch: 3",
        f"lastTimestamp: {state.last_timestamp}",
        f"lastSequence: {last.last_sequence} lastOffset: {last.last_offset}",
    ):
        assert word in text


def flip_record(folder: Path) -> None:
    _flip(folder / "00000000000000000000.log", 100)


def flip_index(folder: Path) -> None:
    _flip(folder / "00000000000000000000.index", 7)


def flip_time(folder: Path) -> None:
    _flip(folder / "00000000000000000000.timeindex", 7)


def tear_log(folder: Path) -> None:
    path = folder / "00000000000000000000.log"
    path.write_bytes(path.read_bytes()[:-5])


@pytest.mark.parametrize("damage", [flip_record, flip_index, flip_time, tear_log])
def test_the_tool_complains_about_damage(
    root: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    folder = tmp_path / "rolls-closed-0"
    shutil.copytree(root / folder.name, folder)
    damage(folder)
    _, output = run_tool(files_of(tmp_path, ".log", ".index", ".timeindex"), "--deep-iteration")
    assert COMPLAINTS.findall(output)


def _flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 4
    path.write_bytes(data)
