"""Files of a node: what is promised survives, what is torn is dropped, what is damaged is named."""

import errno
from collections.abc import Iterator
from contextlib import suppress
from typing import cast

import msgspec
import pytest

from headrace.ids import BrokerId
from headrace.raft.core import Raft
from headrace.raft.entries import Entry, EntryKind, HardState, Snapshot
from headrace.raft.errors import CorruptRaftLog
from headrace.raft.frames import Frame, encode_frame
from headrace.raft.full_disk import OutOfSpace
from headrace.raft.membership import Membership
from headrace.raft.opening import open_storage
from headrace.raft.ready import Ready, Stored
from headrace.raft.settings import RaftSettings
from headrace.raft.storage import RaftStorage
from headrace.testing.disk import ALWAYS, PowerLost, SimulatedDisk

MEMBERS = Membership((BrokerId(1), BrokerId(2), BrokerId(3)))
FOLDER = "metadata/raft"


def opened(disk: SimulatedDisk, segment_bytes: int = 10_000) -> tuple[RaftStorage, Stored]:
    return open_storage(disk, FOLDER, bootstrap=MEMBERS, segment_bytes=segment_bytes)


def entries(first: int, count: int, term: int = 1, data: bytes = b"x") -> list[Entry]:
    return [Entry(first + i, term, EntryKind.DATA, data) for i in range(count)]


def ready(
    stored: list[Entry] | None = None,
    hard_state: HardState | None = None,
    snapshot: Snapshot | None = None,
) -> Ready:
    return Ready([], snapshot, hard_state, stored or [], [], [], [], [])


def file_names(disk: SimulatedDisk) -> list[str]:
    return sorted(disk.list(FOLDER))


def test_first_opening_makes_the_files_with_the_first_members() -> None:
    disk = SimulatedDisk()
    _, stored = opened(disk)
    assert stored == Stored(Snapshot(0, 0, MEMBERS, b""))
    disk.crash()
    _, again = open_storage(disk, FOLDER, bootstrap=Membership(), segment_bytes=10_000)
    assert again == stored, "bootstrap counts once"


def test_what_was_stored_is_there_after_a_crash() -> None:
    disk = SimulatedDisk()
    storage, _ = opened(disk)
    storage.store(ready(entries(1, 3), HardState(1, BrokerId(2))))
    storage.store(ready(entries(4, 1)))
    disk.crash()
    _, stored = opened(disk)
    assert stored.hard_state == HardState(1, BrokerId(2))
    assert stored.entries == entries(1, 4)


def test_one_sync_stores_many_entries() -> None:
    disk = SimulatedDisk()
    storage, _ = opened(disk)
    before = disk.counts["sync"], disk.counts["append"]
    storage.store(ready(entries(1, 64), HardState(1)))
    assert (disk.counts["sync"], disk.counts["append"]) == (before[0] + 1, before[1] + 1)


def test_a_new_leaders_entries_replace_those_from_their_index_on() -> None:
    disk = SimulatedDisk()
    storage, _ = opened(disk)
    storage.store(ready(entries(1, 5)))
    storage.store(ready(entries(3, 1, term=2), HardState(2)))
    storage, stored = opened(disk)
    assert stored.entries == [*entries(1, 2), *entries(3, 1, term=2)]
    storage.store(ready(entries(4, 1, term=2)))
    assert opened(disk)[1].entries[-1] == Entry(4, 2, EntryKind.DATA, b"x")


@pytest.mark.parametrize("seed", range(40))
def test_a_torn_write_is_dropped_and_what_came_before_is_whole(seed: int) -> None:
    disk = SimulatedDisk(seed)
    storage, _ = opened(disk)
    storage.store(ready(entries(1, 3), HardState(1)))
    disk.lose_power_after(1)  # the append, not the sync
    with pytest.raises(PowerLost):
        storage.store(ready(entries(4, 30, data=b"y" * 300), HardState(2)))
    disk.crash()
    storage, stored = opened(disk)
    assert len(stored.entries) in (3, 33)
    assert stored.hard_state == HardState(1 if len(stored.entries) == 3 else 2)
    storage.store(ready(entries(len(stored.entries) + 1, 1)))
    disk.crash()
    assert len(opened(disk)[1].entries) == len(stored.entries) + 1


@pytest.mark.parametrize("changes", range(40))
def test_power_may_go_at_any_change(changes: int) -> None:
    disk = SimulatedDisk(changes)
    storage, _ = opened(disk, segment_bytes=400)
    storage.store(ready(hard_state=HardState(1)))
    promised = 0
    disk.lose_power_after(changes)
    snapshot = Snapshot(0, 0, MEMBERS, b"")
    try:
        for number in range(1, 20):
            storage.store(ready(entries(number, 1, data=b"z" * 60)))
            promised = number
            if number % 5 == 0:
                snapshot = Snapshot(number, 1, MEMBERS, b"state")
                storage.store_snapshot(snapshot)
                storage.compact(number)
    except PowerLost:
        pass
    disk.crash()
    _, stored = opened(disk, segment_bytes=400)
    assert stored.base_index + len(stored.entries) in (promised, promised + 1)
    assert stored.snapshot.index in (snapshot.index, snapshot.index - 5)
    assert stored.base_index <= stored.snapshot.index


def test_damage_in_the_middle_is_named_and_nothing_is_changed() -> None:
    disk = SimulatedDisk()
    storage, _ = opened(disk)
    storage.store(ready(entries(1, 3)))
    position = disk.list(FOLDER)[file_names(disk)[0]]
    storage.store(ready(entries(4, 3)))
    storage.store(ready(entries(7, 3)))
    path = f"{FOLDER}/{file_names(disk)[0]}"
    disk.flip_bit(path, position + 40, 3)
    before = disk.read(path)
    with pytest.raises(CorruptRaftLog, match=f"{path} at byte {position}: .*wrong checksum, but"):
        opened(disk)
    assert disk.read(path) == before


def test_damage_in_an_older_file_is_always_named() -> None:
    disk = SimulatedDisk()
    storage, _ = opened(disk, segment_bytes=200)
    for number in range(1, 8):
        storage.store(ready(entries(number, 1, data=b"z" * 60)))
    first, second, *_ = file_names(disk)
    last_frame = disk.list(FOLDER)[first] - 10
    disk.flip_bit(f"{FOLDER}/{first}", last_frame, 0)
    with pytest.raises(CorruptRaftLog, match="a later file follows"):
        opened(disk)
    disk.flip_bit(f"{FOLDER}/{first}", last_frame, 0)
    opened(disk)
    disk.remove(f"{FOLDER}/{second}")
    with pytest.raises(CorruptRaftLog, match="file 2 is missing"):
        opened(disk)


def test_damaged_snapshot_is_named() -> None:
    disk = SimulatedDisk()
    storage, _ = opened(disk)
    storage.store_snapshot(Snapshot(0, 0, MEMBERS, b"state"))
    disk.flip_bit(f"{FOLDER}/snapshot", 20, 1)
    with pytest.raises(CorruptRaftLog, match="snapshot at byte 0: a snapshot with a wrong"):
        opened(disk)


def test_a_log_without_its_snapshot_is_named() -> None:
    """Else whoever starts would take the members of a first start for those of the quorum."""
    disk = SimulatedDisk()
    storage, _ = opened(disk)
    storage.store(ready(entries(1, 3), HardState(1)))
    disk.remove(f"{FOLDER}/snapshot")
    with pytest.raises(CorruptRaftLog, match="it is missing, but there is a log"):
        opened(disk)


def test_a_file_without_the_ones_before_it_is_named() -> None:
    disk = SimulatedDisk()
    storage, _ = opened(disk, segment_bytes=200)
    for number in range(1, 8):
        storage.store(ready(entries(number, 1, data=b"z" * 60)))
    disk.remove(f"{FOLDER}/{file_names(disk)[0]}")
    with pytest.raises(CorruptRaftLog, match=r"ends at 0, but the log begins behind"):
        opened(disk)


def test_compaction_removes_files_behind_the_snapshot_and_no_others() -> None:
    disk = SimulatedDisk()
    storage, _ = opened(disk, segment_bytes=200)
    storage.store(ready(hard_state=HardState(1)))
    for number in range(1, 20):
        storage.store(ready(entries(number, 1, data=b"z" * 60)))
    count = storage.file_count
    assert count > 5
    storage.store_snapshot(Snapshot(10, 1, MEMBERS, b"state"))
    storage.compact(10)
    assert 1 < storage.file_count < count
    disk.crash()
    storage, stored = opened(disk, segment_bytes=200)
    assert stored.snapshot.data == b"state"
    assert stored.base_index <= 10
    assert stored.entries[-1].index == 19
    storage.store(ready(entries(20, 1)))


def test_an_installed_snapshot_takes_the_place_of_the_log() -> None:
    disk = SimulatedDisk()
    storage, _ = opened(disk)
    storage.store(ready(entries(1, 5)))
    storage.store(ready(snapshot=Snapshot(9, 2, MEMBERS, b"state"), hard_state=HardState(2)))
    storage.store(ready(entries(10, 2, term=2)))
    disk.crash()
    _, stored = opened(disk)
    assert (stored.base_index, stored.base_term) == (9, 2)
    assert stored.entries == entries(10, 2, term=2)
    assert stored.snapshot.data == b"state"


def test_a_crash_between_an_installed_snapshot_and_its_frame_is_made_good() -> None:
    disk = SimulatedDisk()
    storage, _ = opened(disk)
    storage.store(ready(entries(1, 5), HardState(2)))
    storage.store_snapshot(Snapshot(9, 2, MEMBERS, b"state"))
    disk.crash()
    storage, stored = opened(disk)
    assert (stored.base_index, stored.base_term, stored.entries) == (9, 2, [])
    assert stored.hard_state == HardState(2)
    storage.store(ready(entries(10, 1, term=2)))
    disk.crash()
    assert opened(disk)[1].entries == entries(10, 1, term=2)


@pytest.mark.parametrize("changes", range(12))
def test_a_node_starts_wherever_a_crash_finds_it_installing_a_snapshot(changes: int) -> None:
    """A heartbeat of a new term and a whole snapshot that come together are one Ready."""
    disk = SimulatedDisk(changes)
    storage, _ = opened(disk)
    storage.store(ready(entries(1, 5), HardState(1)))
    disk.lose_power_after(changes)
    with suppress(PowerLost):
        storage.store(
            ready(
                entries(10, 1, term=5),
                HardState(5, BrokerId(2)),
                Snapshot(9, 4, MEMBERS, b"state"),
            )
        )
    disk.crash()
    _, stored = opened(disk)
    Raft(BrokerId(1), settings=RaftSettings(), stored=stored, jitter=lambda _: 0, now_ms=0)
    if stored.snapshot.index:
        assert stored.hard_state == HardState(5, BrokerId(2))


def test_a_snapshot_of_a_term_that_the_log_does_not_know_is_named() -> None:
    disk = SimulatedDisk()
    storage, _ = opened(disk)
    storage.store(ready(entries(1, 5), HardState(1)))
    storage.store_snapshot(Snapshot(9, 2, MEMBERS, b"state"))
    with pytest.raises(CorruptRaftLog, match="of term 2, but the log knows no term beyond 1"):
        opened(disk)


def test_what_a_failed_sync_left_is_not_found_again() -> None:
    disk = SimulatedDisk()
    storage, _ = opened(disk)
    storage.store(ready(entries(1, 3)))
    disk.fail("sync", "*.raft")
    with pytest.raises(OSError, match="Input/output error"):
        storage.store(ready(entries(4, 1)))
    assert opened(disk)[1].entries == entries(1, 3)


def test_full_disk_is_an_error_and_leaves_the_log_as_it_was() -> None:
    disk = SimulatedDisk()
    storage, _ = opened(disk)
    storage.store(ready(entries(1, 3)))
    disk.fill_up(10)
    with pytest.raises(OutOfSpace, match="No space left") as caught:
        storage.store(ready(entries(4, 1)))
    assert caught.value.errno == errno.ENOSPC
    assert opened(disk)[1].entries == entries(1, 3)


def steps() -> Iterator[Ready]:
    """Entries that append and replace, terms, and a leader's snapshot in the middle."""
    for number in range(1, 9):
        yield ready(entries(number, 1, data=b"z" * 60), HardState(1))
    yield ready(entries(5, 3, term=2), HardState(2, BrokerId(3)))
    yield ready(snapshot=Snapshot(20, 3, MEMBERS, b"state" * 20), hard_state=HardState(3))
    for number in range(21, 27):
        yield ready(entries(number, 1, term=3, data=b"z" * 60))


@pytest.mark.parametrize("is_cut_refused", [False, True], ids=["cut", "not cut"])
@pytest.mark.parametrize("room", range(0, 1600, 53))
def test_what_found_no_room_is_stored_as_if_nothing_had_been(
    room: int, is_cut_refused: bool
) -> None:
    """Wherever the disk is full: in a frame, a new file's first one, or a snapshot."""
    smooth, disk = SimulatedDisk(1), SimulatedDisk(room)
    undisturbed, _ = opened(smooth, segment_bytes=400)
    storage, _ = opened(disk, segment_bytes=400)
    disk.fill_up(room)
    if is_cut_refused:
        disk.fail("truncate", error=errno.ENOSPC)
    refusals = 0
    for each in steps():
        before = opened(smooth.clone(), segment_bytes=400)[1]
        try:
            storage.store(each)
        except OutOfSpace:
            refusals += 1
            killed, crashed = disk.clone(), disk.clone(seed=room)
            crashed.crash()
            for other in (killed, crashed):
                other.heal()
                other.make_room()
                found = opened(other, segment_bytes=400)[1]
                if each.snapshot is not None and found.hard_state == each.hard_state:
                    found = msgspec.structs.replace(found, hard_state=before.hard_state)
                if each.snapshot is None or found.snapshot.index == 0:
                    assert found == before
                else:
                    assert (found.snapshot, found.entries) == (each.snapshot, [])
            disk.make_room()
            storage.store(each)
        undisturbed.store(each)
        assert opened(disk.clone(), segment_bytes=400)[1] == opened(smooth.clone())[1]
    disk.crash()
    assert opened(disk, segment_bytes=400)[1] == opened(smooth, segment_bytes=400)[1]
    assert refusals == 1, "else this shows nothing"


def test_without_room_for_another_file_the_log_goes_on_in_the_one_it_has() -> None:
    disk = SimulatedDisk()
    storage, _ = opened(disk, segment_bytes=200)
    disk.fail("create", "*.raft", error=errno.ENOSPC, times=ALWAYS)
    for number in range(1, 8):
        storage.store(ready(entries(number, 1, data=b"z" * 60)))
    assert storage.file_count == 1
    killed = disk.clone()
    killed.crash()
    assert opened(killed)[1].entries == entries(1, 7, data=b"z" * 60)
    disk.heal()
    storage.store(ready(entries(8, 1, data=b"z" * 60)))
    assert storage.file_count == 2
    disk.crash()
    assert opened(disk)[1].entries == entries(1, 8, data=b"z" * 60)


@pytest.mark.parametrize("seed", range(20))
def test_a_new_file_that_found_no_room_may_come_back_in_a_crash(seed: int) -> None:
    disk = SimulatedDisk(seed)
    storage, _ = opened(disk, segment_bytes=200)
    storage.store(ready(entries(1, 1, data=b"z" * 60)))
    frame_bytes = len(
        encode_frame(Frame(HardState(), 1, 1, entries(2, 1, data=b"z" * 60)), number=1, position=0)
    )
    disk.fill_up(frame_bytes + 10)  # for the next entry, and a part of the new file
    disk.fail("truncate", error=errno.ENOSPC)
    disk.fail("remove", error=errno.ENOSPC)
    storage.store(ready(entries(2, 1, data=b"z" * 60)))
    assert len(file_names(disk)) == 3, "the new file can neither be written nor removed"
    disk.make_room()
    killed = disk.clone()
    killed.crash()
    assert opened(killed)[1].entries == entries(1, 2, data=b"z" * 60)
    storage.store(ready(entries(3, 1, data=b"z" * 60)))
    assert storage.file_count == 2
    disk.crash()
    assert opened(disk)[1].entries == entries(1, 3, data=b"z" * 60)


def storage_with_a_late_roll(disk: SimulatedDisk) -> RaftStorage:
    """Give one with three entries, whose second file could neither be begun nor removed."""
    storage, _ = opened(disk, segment_bytes=200)
    storage.store(ready(entries(1, 1, data=b"z" * 60), HardState(1)))
    disk.fail("append", "*2.raft", error=errno.ENOSPC)
    disk.fail("remove", "*2.raft", error=errno.ENOSPC)
    storage.store(ready(entries(2, 1, data=b"z" * 60)))
    assert len(file_names(disk)) == 3
    return storage


def test_a_late_roll_that_still_finds_no_room_leaves_the_log_in_its_file() -> None:
    disk = SimulatedDisk()
    storage = storage_with_a_late_roll(disk)
    disk.fail("remove", "*2.raft", error=errno.ENOSPC, times=2)
    for number in (3, 4):
        storage.store(ready(entries(number, 1, data=b"z" * 60)))
        assert storage.file_count == 1
    storage.store(ready(entries(5, 1, data=b"z" * 60)))
    assert storage.file_count == 2
    assert opened(disk)[1].entries == entries(1, 5, data=b"z" * 60)


@pytest.mark.parametrize("seed", range(20))
def test_a_torn_write_before_a_file_that_was_never_begun_is_dropped(seed: int) -> None:
    """A file whose first frame found no room does not prove the one before it to be whole."""
    disk = SimulatedDisk(seed)
    storage = storage_with_a_late_roll(disk)
    disk.lose_power_after(1)
    with pytest.raises(PowerLost):
        storage.store(ready(entries(3, 1, data=b"z" * 60)))
    disk.crash()
    storage, stored = opened(disk, segment_bytes=200)
    count = len(stored.entries)
    assert stored.entries == entries(1, count, data=b"z" * 60)
    assert count in (2, 3)
    storage.store(ready(entries(count + 1, 1)))
    disk.crash()
    assert len(opened(disk)[1].entries) == count + 1


def test_a_compaction_that_cannot_be_synced_for_want_of_room_stops_nothing() -> None:
    disk = SimulatedDisk()
    storage, _ = opened(disk, segment_bytes=200)
    for number in range(1, 20):
        storage.store(ready(entries(number, 1, data=b"z" * 60), HardState(1)))
    storage.store_snapshot(Snapshot(10, 1, MEMBERS, b"state"))
    disk.fail("sync_folder", error=errno.ENOSPC)
    storage.compact(10)
    storage.store(ready(entries(20, 1)))
    disk.crash()
    assert opened(disk)[1].entries[-1] == entries(20, 1)[0]


def test_a_frame_of_newer_software_is_named_and_not_cut_off() -> None:
    """It is whole by its checksum, so it was promised."""
    disk = SimulatedDisk()
    storage, _ = opened(disk)
    storage.store(ready(entries(1, 3), HardState(1)))
    path = f"{FOLDER}/00000000000000000001.raft"
    position = disk.list(FOLDER)["00000000000000000001.raft"]
    frame = Frame(HardState(1), 3, 1, [Entry(4, 1, cast(EntryKind, 77), b"?")])
    with disk.mutex:
        disk.open(path).append(encode_frame(frame, number=1, position=position))
    size = disk.list(FOLDER)["00000000000000000001.raft"]
    with pytest.raises(CorruptRaftLog, match="77"):
        opened(disk)
    assert disk.list(FOLDER)["00000000000000000001.raft"] == size


def test_a_leaders_snapshot_is_written_once_though_its_frame_finds_no_room() -> None:
    disk = SimulatedDisk()
    storage, _ = opened(disk)
    storage.store(ready(hard_state=HardState(2)))
    install = ready(snapshot=Snapshot(9, 2, MEMBERS, b"state"))
    disk.fail("append", "*.raft", error=errno.ENOSPC, times=3)
    before = disk.counts["rename"]
    for _ in range(3):
        with pytest.raises(OutOfSpace):
            storage.store(install)
    storage.store(install)
    assert disk.counts["rename"] == before + 1
    storage.store(ready(entries(10, 1, term=2)))
    assert opened(disk)[1].entries == entries(10, 1, term=2)


def test_a_sync_without_room_is_not_tried_again() -> None:
    disk = SimulatedDisk()
    storage, _ = opened(disk)
    storage.store(ready(entries(1, 3)))
    disk.fail("sync", "*.raft", error=errno.ENOSPC)
    with pytest.raises(OSError, match="No space left") as caught:
        storage.store(ready(entries(4, 1)))
    assert not isinstance(caught.value, OutOfSpace)


def test_a_file_that_cannot_be_removed_for_want_of_room_goes_with_the_next_compaction() -> None:
    disk = SimulatedDisk()
    storage, _ = opened(disk, segment_bytes=200)
    for number in range(1, 20):
        storage.store(ready(entries(number, 1, data=b"z" * 60)))
    storage.store_snapshot(Snapshot(10, 1, MEMBERS, b"state"))
    count = storage.file_count
    disk.fail("remove", "*.raft", error=errno.ENOSPC)
    storage.compact(10)
    assert storage.file_count == count
    storage.compact(10)
    assert storage.file_count < count
    assert storage.file_count == sum(name.endswith(".raft") for name in file_names(disk))


def test_other_files_in_the_folder_are_left_alone() -> None:
    disk = SimulatedDisk()
    opened(disk)
    disk.open(f"{FOLDER}/notes.raft", create=True)
    opened(disk)
    assert "notes.raft" in file_names(disk)
