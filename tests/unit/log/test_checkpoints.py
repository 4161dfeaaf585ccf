from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.ids import TopicId
from headrace.log import checkpoints
from headrace.log.checkpoints import CorruptCheckpoint, MetaProperties, Offsets
from headrace.log.epochs import EpochStart
from headrace.log.real_disk import RealDisk

INT64 = st.integers(0, 2**63 - 1)
PARTITIONS = st.tuples(st.from_regex(r"[a-zA-Z0-9._-]+", fullmatch=True), st.integers(0, 2**31 - 1))
IDS = st.binary(min_size=16, max_size=16).map(TopicId)
PRINTABLE = st.text(st.characters(min_codepoint=32, max_codepoint=126))
TOPIC_ID = TopicId(bytes(range(16)))
TOPIC_ID_TEXT = "AAECAwQFBgcICQoLDA0ODw"


@given(st.dictionaries(PARTITIONS, INT64))
def test_offsets_are_read_as_written(offsets: Offsets) -> None:
    assert checkpoints.parse_offsets(checkpoints.format_offsets(offsets), "path") == offsets


@given(st.sets(st.integers(0, 2**31 - 1)), st.sets(INT64))
def test_epochs_are_read_as_written(epochs: set[int], starts: set[int]) -> None:
    pairs = zip(sorted(epochs), sorted(starts), strict=False)
    entries = [EpochStart(*pair) for pair in pairs]
    assert checkpoints.parse_epochs(checkpoints.format_epochs(entries)) == entries


@given(IDS)
def test_topic_ids_are_read_as_written(topic_id: TopicId) -> None:
    text = checkpoints.format_partition_metadata(topic_id)
    assert checkpoints.parse_partition_metadata(text) == topic_id


@given(st.builds(MetaProperties, PRINTABLE, st.integers(0, 2**31 - 1), IDS))
def test_meta_properties_are_read_as_written(meta: MetaProperties) -> None:
    text = checkpoints.format_meta_properties(meta)
    assert checkpoints.parse_meta_properties(text) == meta


@given(st.integers(-(2**63), 2**63 - 1))
def test_clean_shutdown_is_read_as_written(broker_epoch: int) -> None:
    text = checkpoints.format_clean_shutdown(broker_epoch)
    assert checkpoints.parse_clean_shutdown(text) == broker_epoch


def test_forms_are_kafkas() -> None:
    assert checkpoints.format_offsets({("t", 1): 7, ("u", 0): 8}) == "0\n2\nt 1 7\nu 0 8\n"
    assert checkpoints.format_epochs([EpochStart(3, 4)]) == "0\n1\n3 4\n"
    assert checkpoints.format_partition_metadata(TOPIC_ID) == (
        f"version: 0\ntopic_id: {TOPIC_ID_TEXT}"
    )
    assert checkpoints.format_clean_shutdown(5) == '{"version":0,"brokerEpoch":5}'


def test_meta_properties_of_kafka_have_comments_and_any_order() -> None:
    text = (
        "#\n#Sun Nov 15 20:47:17 UTC 2026\nnode.id=3\n\n"
        f"directory.id={TOPIC_ID_TEXT}\nversion=1\ncluster.id=a\\=b\nnew.in.kafka=x\n"
    )
    assert checkpoints.parse_meta_properties(text) == MetaProperties("a=b", 3, TOPIC_ID)


@pytest.mark.parametrize("cluster_id", ["é", "a\nb"])
def test_cluster_ids_that_java_would_misread_are_not_written(cluster_id: str) -> None:
    with pytest.raises(ValueError, match="printable ASCII"):
        checkpoints.format_meta_properties(MetaProperties(cluster_id, 1, TOPIC_ID))


MALFORMED_OFFSETS = {
    "": (1, "ends within a line"),
    "0": (1, "ends within a line"),
    "1\n0\n": (1, "version '1'"),
    "0\n": (2, "number of entries is missing"),
    "0\nx\n": (2, "'x' is not a number"),
    "0\n-1\n": (2, "'-1' is not a number"),
    "0\n2\nt 0 1\n": (2, "2 entries said, 1 there"),
    "0\n0\nt 0 1\n": (2, "0 entries said, 1 there"),
    "0\n1\nt 0\n": (3, "'t 0' is not 3 words"),
    "0\n1\nt  0\n": (3, "is not 3 words"),
    "0\n1\nt 0 1 2\n": (3, "is not 3 words"),
    "0\n1\nt 0 12": (3, "ends within a line"),
    "0\n1\nt 0 1_2\n": (3, "'1_2' is not a number"),
    "0\n1\nt 0 9223372036854775808\n": (3, "is not a number from 0 to 9223372036854775807"),
    "0\n1\nt 2147483648 0\n": (3, "is not a number from 0 to 2147483647"),
    "0\n2\nt 0 1\nt 0 2\n": (4, "t 0 was there before"),
}


@pytest.mark.parametrize("text", MALFORMED_OFFSETS)
def test_malformed_offsets_are_named_by_line(text: str) -> None:
    line, reason = MALFORMED_OFFSETS[text]
    with pytest.raises(CorruptCheckpoint, match=rf"data/x, line {line}: .*{reason}") as caught:
        checkpoints.parse_offsets(text, "data/x")
    assert (caught.value.path, caught.value.line) == ("data/x", line)


@pytest.mark.parametrize("rows", ["1 5\n1 6\n", "1 5\n2 5\n", "2 5\n1 6\n"])
def test_epochs_out_of_order_are_named(rows: str) -> None:
    with pytest.raises(CorruptCheckpoint, match=r"line 4: .* is not beyond the line before"):
        checkpoints.parse_epochs(f"0\n2\n{rows}")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", 1),
        ("version: 1\ntopic_id: x", 1),
        ("version: 0\n", 2),
        ("version: 0\ntopic_id: abc", 2),
        (f"version: 0\ntopic_name: {TOPIC_ID_TEXT}", 2),
        (f"version: 0\ntopic_id: {TOPIC_ID_TEXT}\nmore", 2),
    ],
)
def test_malformed_partition_metadata_is_named_by_line(text: str, line: int) -> None:
    with pytest.raises(CorruptCheckpoint, match=f"partition.metadata, line {line}: "):
        checkpoints.parse_partition_metadata(text)


@pytest.mark.parametrize(
    ("changed", "line", "reason"),
    [
        ("version=0\n", 4, "version '0'; only 1 is read"),
        ("", 3, "there is no version"),
        ("version=1", 4, "ends within a line"),
        ("version\n", 4, "is not a key, '=' and a value"),
        ("version=1\\\n", 4, "is not a key, '=' and a value"),
        ("version=1\nnode.id=x\n", 5, "'x' is not a number"),
        ("version=1\ndirectory.id=x\n", 5, "'x' is not a topic id"),
    ],
)
def test_malformed_meta_properties_are_named_by_line(changed: str, line: int, reason: str) -> None:
    good = checkpoints.format_meta_properties(MetaProperties("c", 1, TOPIC_ID))
    with pytest.raises(CorruptCheckpoint, match=rf"meta\.properties, line {line}: .*{reason}"):
        checkpoints.parse_meta_properties(good.replace("version=1\n", changed))


@pytest.mark.parametrize(
    "text", ["", "{}", '{"version":1,"brokerEpoch":5}', '{"version":0,"brokerEpoch":"5"}']
)
def test_malformed_clean_shutdown_is_named(text: str) -> None:
    with pytest.raises(CorruptCheckpoint, match=r"\.kafka_cleanshutdown, line 1: "):
        checkpoints.parse_clean_shutdown(text)


def test_every_cut_of_a_file_is_named() -> None:
    entries = [EpochStart(10, 100), EpochStart(11, 200)]
    meta = MetaProperties("cluster", 12, TOPIC_ID)
    for text, parse in (
        (checkpoints.format_epochs(entries), checkpoints.parse_epochs),
        (checkpoints.format_offsets({("t", 10): 100}), checkpoints.parse_offsets),
        (checkpoints.format_partition_metadata(TOPIC_ID), checkpoints.parse_partition_metadata),
        (checkpoints.format_meta_properties(meta), checkpoints.parse_meta_properties),
        (checkpoints.format_clean_shutdown(12), checkpoints.parse_clean_shutdown),
    ):
        for size in range(len(text)):
            with pytest.raises(CorruptCheckpoint):
                parse(text[:size], "path")


def test_files_are_saved_and_loaded(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    offsets: Offsets = {("t", 0): 5}
    checkpoints.save(disk, checkpoints.LOG_STARTS, checkpoints.format_offsets(offsets))
    loaded = checkpoints.load(disk, checkpoints.LOG_STARTS, checkpoints.parse_offsets)
    assert loaded == offsets
    with pytest.raises(FileNotFoundError):
        checkpoints.load(disk, checkpoints.CLEANED, checkpoints.parse_offsets)


def test_bytes_beyond_ascii_are_named_by_line(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    disk.replace("x", b"0\n1\nt\xff 0 1\n")
    with pytest.raises(CorruptCheckpoint, match="x, line 3: byte 0xff is not ASCII"):
        checkpoints.load(disk, "x", checkpoints.parse_offsets)
