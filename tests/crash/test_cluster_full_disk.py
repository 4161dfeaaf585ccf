"""One node of three has no room left: the others go on, and it catches up when there is room."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process_cluster import ProcessCluster, wait_for

pytestmark = [pytest.mark.exhaustive, pytest.mark.timeout(900)]

PIECE_BYTES = 64 * 1024


@pytest.fixture(params=(1, 3))
def small(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[int]:
    """A node whose data folder is a small file system of its own."""
    number: int = request.param
    folder = tmp_path / str(number)
    folder.mkdir()
    mount = ("mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder))
    made = subprocess.run(mount, capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"a file system cannot be mounted here: {made.stderr.strip()}")
    try:
        yield number
    finally:
        subprocess.run(("umount", "-l", str(folder)), check=True, capture_output=True)


def fill(file: Path) -> None:
    """Take all the room of a file system."""
    with file.open("wb", buffering=0) as filler:
        for size in (PIECE_BYTES, 1):
            try:
                while filler.write(b"\0" * size):
                    pass
            except OSError:
                continue


def test_a_full_disk_of_one_node_holds_up_no_other(tmp_path: Path, small: int) -> None:
    with ProcessCluster(tmp_path) as cluster:
        cluster.wait_until_all_agree()
        others = [number for number in cluster.running() if number != small]
        filler = tmp_path / str(small) / "filler"
        topics = []
        for turn in range(3):
            fill(filler)
            for other in others:
                topics.append(f"{turn}-while-{small}-is-full-{other}")
                cluster.create_topic(topics[-1], through=other, partitions=1)
            for other in others:
                wait_for(
                    lambda other=other: set(topics) <= cluster.topics(other),  # type: ignore[misc]
                    f"node {other} to have every topic",
                )
            filler.unlink()
            cluster.wait_until_all_agree(topics)
            cluster.create_topic(f"{turn}-after", through=small, partitions=1)
