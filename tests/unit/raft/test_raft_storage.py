"""Files of a node: what is promised survives, what is torn is dropped, what is damaged is named."""

import errno

import pytest

from headrace.ids import BrokerId
from headrace.raft.entries import Entry, EntryKind, HardState, Snapshot
from headrace.raft.errors import CorruptRaftLog
from headrace.raft.membership import Membership
from headrace.raft.ready import Ready, Stored
from headrace.raft.storage import RaftStorage, open_storage
from headrace.testing.disk import PowerLost, SimulatedDisk

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
    storage.store(ready(entries(1, 5), HardState(1)))
    storage.store_snapshot(Snapshot(9, 2, MEMBERS, b"state"))
    disk.crash()
    storage, stored = opened(disk)
    assert (stored.base_index, stored.base_term, stored.entries) == (9, 2, [])
    assert stored.hard_state == HardState(1)
    storage.store(ready(entries(10, 1, term=2)))
    disk.crash()
    assert opened(disk)[1].entries == entries(10, 1, term=2)


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
    with pytest.raises(OSError, match="No space left") as caught:
        storage.store(ready(entries(4, 1)))
    assert caught.value.errno == errno.ENOSPC
    assert opened(disk)[1].entries == entries(1, 3)


def test_other_files_in_the_folder_are_left_alone() -> None:
    disk = SimulatedDisk()
    opened(disk)
    disk.open(f"{FOLDER}/notes.raft", create=True)
    opened(disk)
    assert "notes.raft" in file_names(disk)
