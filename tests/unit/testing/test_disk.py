"""What the simulated disk adds to the contract: crashes, faults and forks, all by seed."""

import errno
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.testing.disk import PowerLost, SimulatedDisk
from headrace.testing.volatile import PAGE_BYTES

SEEDS = range(200)


def crashes(disk: SimulatedDisk) -> Iterator[SimulatedDisk]:
    """Yield what crashes with many seeds leave of a disk."""
    for seed in SEEDS:
        crashed = disk.clone(seed)
        crashed.crash()
        yield crashed


def contents(disk: SimulatedDisk) -> dict[str, bytes]:
    return {name: disk.read(name) for name in disk.list("")}


def disk_with(name: str, synced: bytes, unsynced: bytes = b"") -> SimulatedDisk:
    disk = SimulatedDisk()
    file = disk.open(name, create=True)
    disk.sync_folder("")
    file.append(synced)
    file.sync()
    file.append(unsynced)
    return disk


# Crashes: bytes


def test_crash_loses_keeps_or_tears_what_was_not_synced() -> None:
    outcomes = {disk.read("a") for disk in crashes(disk_with("a", b"safe", b"new"))}
    assert outcomes >= {
        b"safe",
        b"safen",
        b"safene",
        b"safenew",
        b"safe\0",
        b"safe\0\0",
        b"safen\0\0",
        b"safe\0\0\0",
    }
    assert all(outcome.startswith(b"safe") and len(outcome) <= 7 for outcome in outcomes)


def test_crash_may_lose_a_page_before_one_that_it_keeps() -> None:
    pages = b"1" * PAGE_BYTES + b"2" * PAGE_BYTES
    outcomes = {disk.read("a") for disk in crashes(disk_with("a", b"safe", pages))}
    assert any(b"\0" in o and o.endswith(b"2") for o in outcomes)


def test_crash_may_bring_back_what_was_cut_but_not_mix_it_with_what_followed() -> None:
    disk = disk_with("a", b"safe|cut")
    file = disk.open("a")
    file.truncate(5)
    assert {d.read("a") for d in crashes(disk)} == {b"safe|", b"safe|cut"}
    file.append(b"NEW")
    outcomes = {d.read("a") for d in crashes(disk)}
    assert outcomes >= {b"safe|cut", b"safe|NEW", b"safe|NE", b"safe|"}
    file.sync()
    assert {d.read("a") for d in crashes(disk)} == {b"safe|NEW"}


@given(st.data(), st.integers())
def test_crash_never_touches_what_was_synced(data: st.DataObject, seed: int) -> None:
    disk = SimulatedDisk(seed)
    file = disk.open("a", create=True)
    disk.sync_folder("")
    model = synced = kept = b""
    for _ in range(data.draw(st.integers(0, 15))):
        step = data.draw(st.sampled_from(["append", "truncate", "sync", "crash"]))
        if step == "append":
            more = data.draw(st.binary(max_size=9000))
            file.append(more)
            model += more
        elif step == "truncate":
            size = data.draw(st.integers(0, len(model)))
            file.truncate(size)
            model = model[:size]
            kept = kept[:size]
        elif step == "sync":
            file.sync()
            synced = kept = model
        else:
            disk.crash()
            model = disk.read("a")
            assert model == synced or model.startswith(kept)
            synced = kept = model
            file = disk.open("a")
        assert file.read(0, len(model) + 1) == model
        assert file.size == len(model)


def test_file_of_before_a_crash_is_gone_after_it() -> None:
    disk = disk_with("a", b"safe")
    file = disk.open("a")
    disk.crash()
    with pytest.raises(FileNotFoundError, match="crash"):
        file.append(b"x")
    assert disk.read("a") == b"safe"


# Crashes: names


def test_created_file_is_sure_to_exist_only_after_a_sync_of_its_folder() -> None:
    disk = SimulatedDisk()
    file = disk.open("a", create=True)
    file.append(b"x")
    file.sync()
    assert {d.exists("a") for d in crashes(disk)} == {True, False}
    disk.sync_folder("")
    assert {d.exists("a") for d in crashes(disk)} == {True}


def test_removed_file_may_come_back_until_a_sync_of_its_folder() -> None:
    disk = disk_with("a", b"safe")
    disk.remove("a")
    assert [contents(d) for d in crashes(disk)].count({"a": b"safe"}) > 0
    disk.sync_folder("")
    assert all(contents(d) == {} for d in crashes(disk))


def test_rename_is_undone_or_done_and_never_half() -> None:
    disk = disk_with("a", b"old")
    disk.replace("b", b"new")
    disk.rename("b", "a")
    outcomes = [contents(d) for d in crashes(disk)]
    before, after = {"a": b"old", "b": b"new"}, {"a": b"new"}
    assert all(outcome in (before, after) for outcome in outcomes)
    assert before in outcomes
    assert after in outcomes
    disk.sync_folder("")
    assert all(contents(d) == after for d in crashes(disk))


def test_names_of_one_folder_change_in_order() -> None:
    disk = SimulatedDisk()
    for name in "abc":
        disk.open(name, create=True)
    outcomes = {"".join(d.list("")) for d in crashes(disk)}
    assert outcomes == {"", "a", "ab", "abc"}


def test_names_of_two_folders_change_in_any_order() -> None:
    disk = SimulatedDisk()
    for folder in "xy":
        disk.make_folder(folder)
    disk.sync_folder("")
    disk.open("x/1", create=True)
    disk.open("y/2", create=True)
    outcomes = {(d.exists("x/1"), d.exists("y/2")) for d in crashes(disk)}
    assert outcomes == {(False, False), (False, True), (True, False), (True, True)}
    disk.sync_folder("y")
    assert {(d.exists("x/1"), d.exists("y/2")) for d in crashes(disk)} == {
        (False, True),
        (True, True),
    }


def test_move_between_folders_is_atomic_and_takes_what_came_before_along() -> None:
    disk = SimulatedDisk()
    for folder in "xy":
        disk.make_folder(folder)
    disk.sync_folder("")
    disk.open("x/a", create=True)
    disk.rename("x/a", "y/a")
    assert {(d.exists("x/a"), d.exists("y/a")) for d in crashes(disk)} == {
        (False, False),
        (True, False),
        (False, True),
    }
    disk.sync_folder("y")
    assert {(d.exists("x/a"), d.exists("y/a")) for d in crashes(disk)} == {(False, True)}


def test_move_that_is_undone_takes_later_changes_of_both_folders_along() -> None:
    disk = SimulatedDisk()
    for folder in "xy":
        disk.make_folder(folder)
    disk.replace("x/a", b"")
    disk.sync_folder("")
    disk.rename("x/a", "y/a")
    disk.open("y/b", create=True)
    outcomes = {(d.exists("y/a"), d.exists("y/b")) for d in crashes(disk)}
    assert outcomes == {(False, False), (True, False), (True, True)}


def test_renamed_folder_keeps_its_files_under_either_name() -> None:
    disk = SimulatedDisk()
    disk.make_folder("t-0")
    disk.replace("t-0/a", b"x")
    disk.sync_folder("")
    disk.rename("t-0", "t-0-delete")
    disk.replace("t-0-delete/b", b"y")
    outcomes = set()
    for crashed in crashes(disk):
        (folder,) = crashed.list_folders("")
        assert crashed.list(folder) == {"a": 1, "b": 1}
        outcomes.add(folder)
    assert outcomes == {"t-0", "t-0-delete"}


def test_file_in_a_folder_that_was_not_synced_goes_with_it() -> None:
    disk = SimulatedDisk()
    disk.make_folder("t-0")
    disk.replace("t-0/a", b"x")
    assert {d.exists("t-0/a") for d in crashes(disk)} == {True, False}


def test_removed_folder_comes_back_in_any_stage_of_its_removal() -> None:
    disk = SimulatedDisk()
    disk.make_folder("t-0")
    for name in "abc":
        disk.replace(f"t-0/{name}", b"x")
    disk.sync_folder("")
    disk.remove_folder("t-0")
    outcomes = {"".join(d.list("t-0")) if d.exists("t-0") else None for d in crashes(disk)}
    assert outcomes == {None, "", "c", "bc", "abc"}


def test_second_crash_changes_nothing_that_the_first_one_left() -> None:
    disk = disk_with("a", b"safe", b"x" * 10_000)
    disk.open("b", create=True)
    for crashed in crashes(disk):
        left = contents(crashed)
        crashed.crash()
        assert contents(crashed) == left


# Power


def power_cuts(work: Callable[[SimulatedDisk], None], disk: SimulatedDisk) -> Iterator[int]:
    """Yield after each change that `work` makes, with power off there."""
    for changes in range(100):
        cut = disk.clone()
        cut.lose_power_after(changes)
        try:
            work(cut)
        except PowerLost:
            for crashed in crashes(cut):
                assert crashed.read("a") in (b"old", b"the new one")
            yield changes
        else:
            return
    raise AssertionError("the work never ends")


def test_replaced_file_is_old_or_new_wherever_power_is_lost() -> None:
    disk = disk_with("a", b"old")
    cuts = list(power_cuts(lambda cut: cut.replace("a", b"the new one"), disk))
    assert len(cuts) == 6  # remove, create, append, sync, rename, sync of the folder
    disk.replace("a", b"the new one")
    assert all(contents(crashed) == {"a": b"the new one"} for crashed in crashes(disk))


def test_disk_without_power_does_nothing_until_it_crashed() -> None:
    disk = disk_with("a", b"safe")
    file = disk.open("a")
    disk.lose_power_after(1)
    file.append(b"!")
    for use in (
        file.sync,
        lambda: file.append(b"?"),
        lambda: disk.list(""),
        lambda: disk.exists("a"),
    ):
        with pytest.raises(PowerLost):
            use()
    disk.crash()
    assert disk.read("a").startswith(b"safe")


# Faults


def test_armed_fault_happens_so_many_times_on_matching_paths() -> None:
    disk = disk_with("t-0.log", b"safe")
    disk.replace("t-0.index", b"")
    disk.fail("append", "*.log", times=2)
    log, index = disk.open("t-0.log"), disk.open("t-0.index")
    index.append(b"fine")
    for _ in range(2):
        with pytest.raises(OSError, match=r"Input/output error: 't-0.log'"):
            log.append(b"x")
    log.append(b"y")
    assert log.read(0, 9) == b"safey"


def test_healed_disk_has_no_armed_faults() -> None:
    disk = SimulatedDisk()
    disk.fail("create", error=errno.EROFS)
    disk.heal()
    disk.open("a", create=True)


def test_failed_sync_poisons_the_file_and_loses_bytes_for_good() -> None:
    disk = disk_with("a", b"safe", b"lost")
    file = disk.open("a")
    disk.fail("sync")
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()
    with pytest.raises(OSError, match="an earlier sync of this file failed"):
        file.sync()
    reopened = disk.open("a")
    reopened.append(b"more")
    reopened.sync()
    assert reopened.read(0, 99) == b"safelostmore", "the page cache still has it"
    outcomes = {d.read("a") for d in crashes(disk)}
    (outcome,) = outcomes
    assert outcome != b"safelostmore"
    assert outcome.startswith(b"safe")
    assert outcome.endswith(b"more")


def test_lost_sync_reports_success_and_a_crash_tells() -> None:
    disk = disk_with("a", b"safe", b"!")
    disk.lose_sync("a", times=1)
    file = disk.open("a")
    file.sync()
    assert b"safe" in {d.read("a") for d in crashes(disk)}
    file.sync()
    assert {d.read("a") for d in crashes(disk)} == {b"safe!"}


def test_lost_sync_of_a_folder_loses_names() -> None:
    disk = SimulatedDisk()
    disk.lose_sync("")
    disk.replace("a", b"x")
    assert {d.exists("a") for d in crashes(disk)} == {True, False}


def test_full_disk_takes_what_fits_and_undoes_what_does_not() -> None:
    disk = disk_with("a", b"safe")
    file = disk.open("a")
    disk.fill_up(3)
    with pytest.raises(OSError, match="No space left on device: 'a'") as caught:
        file.append(b"four")
    assert caught.value.errno == errno.ENOSPC
    assert file.read(0, 9) == b"safe"
    file.append(b"+++")
    assert disk.free_bytes() == 0
    file.truncate(2)
    assert disk.free_bytes() == 5
    with pytest.raises(OSError, match="No space"):
        disk.replace("b", b"123456")
    assert disk.list("") == {"a": 2}
    disk.fill_up(100)
    disk.replace("b", b"123456")
    disk.fill_up()
    disk.make_room()
    disk.replace("c", b"." * 1000)


def test_append_that_cannot_be_undone_says_so_and_knows_its_size() -> None:
    disk = disk_with("a", b"safe")
    file = disk.open("a")
    disk.fill_up(3)
    disk.fail("truncate")
    with pytest.raises(OSError, match="3 of 4 bytes were written and cannot be cut off") as caught:
        file.append(b"four")
    assert caught.value.errno == errno.ENOSPC
    assert file.size == 7
    assert file.read(4, 9) == b"fou"


@pytest.mark.parametrize("unsynced", [b"", b"unsynced"])
def test_flipped_bit_is_read_and_survives_a_crash(unsynced: bytes) -> None:
    disk = disk_with("a", b"safe", unsynced)
    disk.flip_bit("a", 1, 0)
    assert disk.read("a") == b"s`fe" + unsynced
    assert all(d.read("a").startswith(b"s`fe") for d in crashes(disk))
    disk.flip_bit("a", 1, 0)
    assert disk.read("a") == b"safe" + unsynced
    with pytest.raises(ValueError, match="none at 50"):
        disk.flip_bit("a", 50, 0)


def test_flipped_bit_of_a_cut_file_leaves_its_old_end_to_a_crash() -> None:
    disk = disk_with("a", b"safe|cut")
    disk.open("a").truncate(4)
    disk.flip_bit("a", 0, 0)
    assert {d.read("a") for d in crashes(disk)} == {b"rafe", b"rafe|cut"}
    disk.open("a").append(b"NEW")
    disk.flip_bit("a", 1, 0)
    outcomes = {d.read("a") for d in crashes(disk)}
    assert outcomes >= {b"r`fe|cut", b"r`feNEW"}
    assert all(outcome.startswith(b"r`fe") for outcome in outcomes)


def test_file_that_was_cut_from_outside_stays_cut() -> None:
    disk = disk_with("a", b"safe", b"unsynced")
    disk.truncate_file("a", 2)
    assert {d.read("a") for d in crashes(disk)} == {b"sa"}
    with pytest.raises(ValueError, match="not the 3 to keep"):
        disk.truncate_file("a", 3)


def test_cold_pages_are_not_read_from_the_cache_until_they_are_read() -> None:
    disk = disk_with("a", bytes(3 * PAGE_BYTES))
    file = disk.open("a")
    assert file.read_cached(0, 10) == bytes(10)
    disk.drop_cache()
    assert file.read_cached(0, 10) is None
    file.read(PAGE_BYTES - 1, 2)
    assert file.read_cached(0, 2 * PAGE_BYTES) == bytes(2 * PAGE_BYTES)
    assert file.read_cached(2 * PAGE_BYTES - 1, 2) is None
    file.map()
    assert file.read_cached(0, 10 * PAGE_BYTES) == bytes(3 * PAGE_BYTES)
    disk.crash()
    assert disk.open("a").read_cached(0, 1) is None


# Seeds, counts and forks


def test_same_seed_and_calls_give_the_same_crash() -> None:
    def run(seed: int) -> list[dict[str, bytes]]:
        disk = SimulatedDisk(seed)
        outcomes = []
        for turn in range(5):
            for name in "abc":
                disk.open(f"{turn}{name}", create=True).append(bytes([turn]) * 5000)
            disk.crash()
            outcomes.append(contents(disk))
        return outcomes

    assert run(3) == run(3)
    assert len({str(run(seed)) for seed in range(5)}) == 5


def test_operations_are_counted() -> None:
    disk = disk_with("a", b"safe", b"more")
    assert disk.counts == {"create": 1, "sync_folder": 1, "append": 2, "sync": 1}
    disk.fail("open")
    with pytest.raises(OSError, match="Input/output error"):
        disk.open("a")
    assert disk.counts["open"] == 1


@given(st.lists(st.tuples(st.booleans(), st.one_of(st.binary(min_size=1, max_size=8), st.none()))))
def test_clone_and_original_do_not_see_each_other(steps: list[tuple[bool, bytes | None]]) -> None:
    disk = disk_with("a", b"safe", b"unsynced")
    disks = [disk, disk.clone()]
    files = [d.open("a") for d in disks]
    models = [b"safeunsynced"] * 2
    for which, data in steps:
        if data is None:
            files[which].truncate(len(models[which]) // 2)
            models[which] = models[which][: len(models[which]) // 2]
        else:
            files[which].append(data)
            models[which] += data
    assert [d.read("a") for d in disks] == models
    disks[0].crash()
    assert disks[1].read("a") == models[1]


@pytest.mark.parametrize("seed", range(10))
def test_clone_crashes_as_its_original_does(seed: int) -> None:
    disk = SimulatedDisk(seed)
    disk.crash()
    twin = disk.clone()
    for fork in (disk, twin):
        fork.open("a", create=True).append(b"x" * 5000)
        fork.sync_folder("")
        fork.crash()
    assert contents(disk) == contents(twin)


def test_clone_has_the_names_faults_and_room_of_the_original() -> None:
    disk = SimulatedDisk()
    disk.make_folder("t-0/deep")
    disk.sync_folder("")
    disk.open("t-0/deep/a", create=True).append(b"x" * 5000)
    disk.rename("t-0", "t-1")
    disk.fill_up(1000)
    disk.fail("remove", times=1)
    twin = disk.clone()
    for fork in (disk, twin):
        assert fork.free_bytes() == 1000
        with pytest.raises(OSError, match="Input/output error"):
            fork.remove("t-1/deep/a")
    outcomes = [{d.list_folders("")[0] for d in crashes(fork)} for fork in (disk, twin)]
    assert outcomes == [{"t-0", "t-1"}] * 2


def test_every_truncation_of_a_large_file_can_be_forked() -> None:
    disk = disk_with("a", bytes(1 << 20))
    for size in range(0, 1 << 20, 1 << 8):
        fork = disk.clone()
        fork.truncate_file("a", size)
        assert fork.open("a").size == size
    assert disk.open("a").size == 1 << 20
