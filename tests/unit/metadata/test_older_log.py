"""The metadata log of the release before: nodes of both make the same image of it.

`older_log.txt` is from three nodes of commit 1b7c626, which were used like any others: topics that
come, grow and go, configs, features, producers, a reassignment, a join token, a node that dies and
comes back. It never changes; the next release adds one of its own.
"""

from pathlib import Path

from headrace.metadata.applier import Applier
from headrace.metadata.entries import decode_entry, encode_entry
from headrace.metadata.features import HEADRACE_VERSION
from headrace.metadata.image import Image
from headrace.metadata.snapshot import load_snapshot, take_snapshot

ENTRIES_MIN = 30


def read() -> tuple[list[tuple[int, bytes]], bytes]:
    """Return the entries by index, and the snapshot of the release that wrote them."""
    entries, snapshot = [], b""
    for line in Path(__file__).with_name("older_log.txt").read_text().splitlines():
        name, _, text = line.partition(" ")
        if name == "snapshot":
            snapshot = bytes.fromhex(text)
        elif name != "#":
            entries.append((int(name), bytes.fromhex(text)))
    return entries, snapshot


def test_the_log_of_the_release_before_makes_the_image_that_it_made_there() -> None:
    entries, snapshot = read()
    assert len(entries) >= ENTRIES_MIN
    applier = Applier(Image())
    applier.apply(entries)
    assert applier.image == load_snapshot(snapshot)
    assert take_snapshot(applier) == snapshot


def test_a_snapshot_of_the_release_before_is_written_again_as_it_was() -> None:
    _, snapshot = read()
    image = load_snapshot(snapshot)
    assert image.feature_level(HEADRACE_VERSION) == 0
    assert take_snapshot(Applier(image)) == snapshot


def test_entries_of_the_release_before_are_written_again_as_they_were() -> None:
    entries, _ = read()
    for _, data in entries:
        assert encode_entry(decode_entry(data)) == data
