"""Who a node is: what its data folder says, or that it cannot be read."""

import pytest

from headrace.cluster.identity import FILE, begin_life
from headrace.ids import BrokerId
from headrace.log.ownership import WrongDirectory
from headrace.testing.disk import SimulatedDisk

NODE = BrokerId(1)
FOLDER = "00112233445566778899aabbccddeeff"


def test_each_life_is_later_than_the_last_and_keeps_the_folder() -> None:
    disk = SimulatedDisk(seed=1)
    first = begin_life(disk, NODE, 5000)
    second = begin_life(disk, NODE, 7)
    assert second.boot_epoch > first.boot_epoch
    assert second.folder_id == first.folder_id


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"node_id":1,"directory_id":"zz","boot_epoch":5}',
        '{"node_id":1,"directory_id":"abcd","boot_epoch":5}',
        f'{{"node_id":1,"directory_id":"{FOLDER}","boot_epoch":-1}}',
        f'{{"node_id":1,"directory_id":"{FOLDER}","boot_epoch":{2**63 - 1}}}',
        f'{{"node_id":1,"directory_id":"{FOLDER}","boot_epoch":{10**30}}}',
    ],
)
def test_a_file_that_cannot_be_read_is_named(text: str) -> None:
    disk = SimulatedDisk(seed=1)
    disk.replace(FILE, text.encode())
    with pytest.raises(WrongDirectory, match=FILE):
        begin_life(disk, NODE, 5000)
