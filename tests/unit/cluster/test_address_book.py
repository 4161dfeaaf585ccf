"""What a node knows of others before it can read the metadata log."""

import asyncio

from headrace.cluster.address_book import FILE, AddressBook
from headrace.ids import BrokerId
from headrace.testing.disk import SimulatedDisk

NODE = BrokerId(3)
FOLDER, OTHER = b"f" * 16, b"o" * 16


def test_addresses_and_folders_are_known_after_a_start() -> None:
    disk = SimulatedDisk(seed=1)

    async def write() -> None:
        book = AddressBook(disk)
        assert not book.is_other_folder(NODE, FOLDER)  # nothing is known of it
        book.put({NODE: "here:9"})
        book.put_folders({NODE: FOLDER})
        await book.close()

    asyncio.run(write())
    book = AddressBook(disk)
    assert book.find(NODE) == ("here", 9)
    assert not book.is_other_folder(NODE, FOLDER)
    assert book.is_other_folder(NODE, OTHER)


def test_a_file_that_cannot_be_read_is_as_good_as_none() -> None:
    disk = SimulatedDisk(seed=1)
    disk.replace(FILE, b"?")
    assert AddressBook(disk).find(NODE) is None
