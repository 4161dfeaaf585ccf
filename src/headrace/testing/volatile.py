"""Files and folders that are only partly durable, and what a crash leaves of them.

What may happen to bytes, per file: of what was appended or cut since the last sync, a crash keeps
all, nothing, or a part. The part is torn at any byte, or has zeros up to some length in place of
what was torn off, or lacks any of its pages, which are zeros then.

What may happen to names: creating, renaming and removing are each atomic. Those since the last sync
of a folder survive up to any point in their order, and each folder has a point of its own: a later
change in one folder may survive an earlier one in another. (File systems with a journal keep one
order for all folders, so this is stricter than they are; none is known to be less orderly than this
within a folder.) A synced file whose folder was not synced may well be without a name, and so lost.

Nothing here knows handles, faults or space: see `disk`.
"""

import errno
import os
from collections.abc import Iterator
from random import Random
from typing import Final, NamedTuple

PAGE_BYTES: Final = 4096


class Extent(NamedTuple):
    """The first `size` bytes of a buffer that others may share.

    Shared buffers only grow, and only through the extent at their end; the others copy. So a copy
    of an Extent costs nothing, and neither does truncating it.
    """

    buffer: bytearray
    size: int

    def plus(self, data: bytes) -> "Extent":
        buffer = self.buffer if self.size == len(self.buffer) else self.buffer[: self.size]
        buffer += data
        return Extent(buffer, len(buffer))

    def read(self, position: int, count: int) -> bytes:
        return bytes(memoryview(self.buffer)[position : min(position + count, self.size)])


class File:
    """The bytes of a file: as the page cache has them, and as the platter has them."""

    __slots__ = (
        "clean_size",
        "cold_pages",
        "is_damaged",
        "is_gone",
        "name",
        "now",
        "parent",
        "stable",
    )

    def __init__(self, parent: "Folder", name: str) -> None:
        self.parent = parent
        self.name = name
        self.now = self.stable = Extent(bytearray(), 0)
        self.clean_size = 0
        """Up to here the page cache has nothing that it would write to the platter."""
        self.is_damaged = False
        """Whether the platter lacks some of the clean part, as a sync failed."""
        self.cold_pages: frozenset[int] = frozenset()
        """Pages that the page cache would have to read first."""
        self.is_gone = False

    def append(self, data: bytes) -> None:
        self.warm(self.now.size, len(data))
        self.now = self.now.plus(data)

    def truncate(self, size: int) -> None:
        if not 0 <= size <= self.now.size:
            raise ValueError(f"{path_of(self)} has {self.now.size} bytes, not the {size} to keep")
        self.now = self.now._replace(size=size)
        self.clean_size = min(self.clean_size, size)

    def sync(self) -> None:
        if self.is_damaged:
            written = self.stable.read(0, self.clean_size) + self.now.read(
                self.clean_size, self.now.size
            )
            self.stable = Extent(bytearray(written), len(written))
        else:
            self.stable = self.now
        self.clean_size = self.now.size

    def fail_to_sync(self, random: Random) -> None:
        """Lose the last of what would have been synced, and believe that it is clean."""
        clean, size = self.clean_size, self.now.size
        kept = random.randint(0, max(0, size - clean - 1))
        left = self.stable.read(0, clean) + self.now.read(clean, kept)
        self.stable = Extent(bytearray(left.ljust(size, b"\0")), size)
        self.clean_size = size
        self.is_damaged = True

    def flip_bit(self, position: int, bit: int) -> None:
        if not 0 <= position < self.now.size:
            raise ValueError(f"{path_of(self)} has {self.now.size} bytes, none at {position}")
        is_same = self.stable.buffer is self.now.buffer
        self.now = _with_flipped_bit(self.now, position, bit)
        if is_same:
            self.stable = self.stable._replace(buffer=self.now.buffer)
        elif position < self.clean_size:
            self.stable = _with_flipped_bit(self.stable, position, bit)

    def chill(self) -> None:
        self.cold_pages = frozenset(_pages(0, self.now.size))

    def warm(self, position: int, count: int) -> None:
        if self.cold_pages:
            self.cold_pages -= set(_pages(position, count))

    def is_warm(self, position: int, count: int) -> bool:
        return not self.cold_pages or self.cold_pages.isdisjoint(_pages(position, count))

    def copy(self, parent: "Folder") -> "File":
        twin = File(parent, self.name)
        twin.now, twin.stable, twin.clean_size = self.now, self.stable, self.clean_size
        twin.is_damaged, twin.cold_pages = self.is_damaged, self.cold_pages
        twin.is_gone = self.is_gone
        return twin

    def survivor(self, parent: "Folder", name: str, random: Random) -> "File":
        """Return the file that a crash leaves of this one."""
        survivor = File(parent, name)
        survivor.now = survivor.stable = self._outcome(random)
        survivor.clean_size = survivor.now.size
        survivor.chill()
        return survivor

    def _outcome(self, random: Random) -> Extent:
        clean, size = self.clean_size, self.now.size
        if clean == size == self.stable.size:
            return self.stable
        kind = random.choice(("lost", "kept", "torn", "zeros", "holes"))
        if kind == "lost":
            return self.stable
        # The clean part is the platter's, which after a failed sync is not what was written.
        tail = bytearray(self.now.read(clean, size - clean))
        if kind in ("torn", "zeros"):
            length = random.randint(0, len(tail))
            kept = length if kind == "torn" else random.randint(0, length)
            tail = tail[:kept] + bytes(length - kept)
        elif kind == "holes":
            for page in _pages(clean, len(tail)):
                if random.random() < 0.5:
                    begin = max(page * PAGE_BYTES - clean, 0)
                    end = min((page + 1) * PAGE_BYTES - clean, len(tail))
                    tail[begin:end] = bytes(end - begin)
        return Extent(bytearray(self.stable.read(0, clean)) + tail, clean + len(tail))


class Folder:
    """Names: as programs see them, and as the platter has them."""

    __slots__ = ("name", "names", "parent", "stable")

    def __init__(self, parent: "Folder | None", name: str) -> None:
        self.parent = parent
        self.name = name
        self.names: dict[str, Node] = {}
        self.stable: dict[str, Node] = {}

    def files(self) -> Iterator[File]:
        """Yield the files in this folder and in those below."""
        for node in self.names.values():
            if isinstance(node, File):
                yield node
            else:
                yield from node.files()

    def folders(self) -> "Iterator[Folder]":
        """Yield this folder and those below."""
        yield self
        for node in self.names.values():
            if isinstance(node, Folder):
                yield from node.folders()


Node = File | Folder


class Entry(NamedTuple):
    """That a folder has, or with None no longer has, something under a name."""

    folder: Folder
    name: str
    node: Node | None


class Tree:
    """Folders from the root down, and the changes of names that are not durable yet."""

    def __init__(self) -> None:
        self.root = Folder(None, "")
        self._pending: list[tuple[Entry, ...]] = []
        """In their order; the entries of one change are atomic."""

    def find(self, path: str) -> Node:
        node: Node | None = self.root
        for name in path.split("/") if path else ():
            if not isinstance(node, Folder):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            node = node.names.get(name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return node

    def change(self, *entries: Entry) -> None:
        """Change names, visible at once and durable after a sync of the folders."""
        for folder, name, node in entries:
            previous = folder.names.pop(name, None)
            if isinstance(previous, File):
                previous.is_gone = True
            if node is not None:
                folder.names[name] = node
        for folder, name, node in entries:
            if node is not None:
                node.parent, node.name = folder, name
                if isinstance(node, File):
                    node.is_gone = False
        self._pending.append(entries)

    def sync(self, folder: Folder) -> None:
        """Make the folder's changes durable, and with them what must come before them."""
        touched = {folder}
        due: list[tuple[Entry, ...]] = []
        rest: list[tuple[Entry, ...]] = []
        for entries in reversed(self._pending):
            folders = {entry.folder for entry in entries}
            if folders & touched:
                touched |= folders
                due.append(entries)
            else:
                rest.append(entries)
        for entries in reversed(due):
            _settle(entries)
        self._pending = rest[::-1]

    def crash(self, random: Random) -> "Tree":
        """Return the tree that a crash leaves of this one."""
        counts: dict[Folder, int] = {}
        for entries in self._pending:
            for folder in {entry.folder: None for entry in entries}:
                counts[folder] = counts.get(folder, 0) + 1
        left = {
            folder: random.choice((0, count, random.randint(0, count)))
            for folder, count in counts.items()
        }
        for entries in self._pending:
            folders = {entry.folder for entry in entries}
            if all(left[folder] > 0 for folder in folders):
                _settle(entries)
                for folder in folders:
                    left[folder] -= 1
            else:
                left.update(dict.fromkeys(folders, 0))
        for file in self.root.files():
            file.is_gone = True
        survivor = Tree()
        survivor.root = _survivor(self.root, None, "", random)
        return survivor

    def clone(self) -> "Tree":
        """Return an equal tree; bytes are shared until one of the two writes."""
        twins = _Twins()
        twin = Tree()
        twin.root = twins.folder(self.root)
        twin._pending = [
            tuple(
                Entry(twins.folder(entry.folder), entry.name, twins.node(entry.node))
                for entry in entries
            )
            for entries in self._pending
        ]
        return twin


class _Twins:
    """Copies of the nodes of a tree, each made once."""

    def __init__(self) -> None:
        self._files: dict[File, File] = {}
        self._folders: dict[Folder, Folder] = {}

    def folder(self, folder: Folder) -> Folder:
        twin = self._folders.get(folder)
        if twin is None:
            twin = self._folders[folder] = Folder(None, folder.name)
            if folder.parent is not None:
                twin.parent = self.folder(folder.parent)
            twin.names = {name: self._existing(node) for name, node in folder.names.items()}
            twin.stable = {name: self._existing(node) for name, node in folder.stable.items()}
        return twin

    def node(self, node: Node | None) -> Node | None:
        return None if node is None else self._existing(node)

    def _existing(self, node: Node) -> Node:
        if isinstance(node, Folder):
            return self.folder(node)
        twin = self._files.get(node)
        if twin is None:
            twin = self._files[node] = node.copy(self.folder(node.parent))
        return twin


def path_of(node: Node) -> str:
    """Return the path of a file or folder; its last one, if it is gone."""
    names: list[str] = []
    at: Node | None = node
    while at is not None and at.parent is not None:
        names.append(at.name)
        at = at.parent
    return "/".join(reversed(names))


def _settle(entries: tuple[Entry, ...]) -> None:
    """Make a change durable."""
    for folder, name, node in entries:
        if node is None:
            folder.stable.pop(name, None)
        else:
            folder.stable[name] = node


def _survivor(folder: Folder, parent: Folder | None, name: str, random: Random) -> Folder:
    survivor = Folder(parent, name)
    for child_name, node in folder.stable.items():
        survivor.names[child_name] = (
            node.survivor(survivor, child_name, random)
            if isinstance(node, File)
            else _survivor(node, survivor, child_name, random)
        )
    survivor.stable = dict(survivor.names)
    return survivor


def _with_flipped_bit(extent: Extent, position: int, bit: int) -> Extent:
    buffer = extent.buffer[:]
    buffer[position] ^= 1 << bit
    return extent._replace(buffer=buffer)


def _pages(position: int, count: int) -> range:
    return range(position // PAGE_BYTES, -(-(position + count) // PAGE_BYTES))
