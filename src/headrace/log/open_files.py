"""The open files of a disk, by path.

    files = OpenFiles()
    files.add(file)                       # file.path says where it is
    files.rename("orders-0", "gone")      # file.path follows

A rename or a removal affects the files at its path and below. They form a tree, so that the cost
depends on what is there, not on what is open. Only weak references are held: unused files are
removed with the next addition, folders when they are renamed or removed.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Generic, Protocol, TypeVar
from weakref import ref

from headrace.log.disk import folder_of


class HasPath(Protocol):
    """What is kept here."""

    path: str


File = TypeVar("File", bound=HasPath)


class _Reference(ref[File]):
    """A weak reference to a file, and where it is listed."""

    __slots__ = ("folder", "name")
    folder: "_Folder[File]"
    name: str


class _Folder(Generic[File]):
    """The files in a folder, by name, and the folders in it that have any."""

    __slots__ = ("files", "folders")

    def __init__(self) -> None:
        self.files: dict[str, list[_Reference[File]]] = {}
        self.folders: dict[str, _Folder[File]] = {}

    def count(self) -> int:
        folders = self.folders.values()
        return len(self.files) + len(folders) + sum(folder.count() for folder in folders)

    def all_files(self) -> Iterator[File]:
        """Yield the files in here and below."""
        for references in self.files.values():
            yield from _living(references)
        for folder in self.folders.values():
            yield from folder.all_files()


class OpenFiles(Generic[File]):
    """Files by path. Calls are made by one thread at a time; files may be forgotten in any."""

    def __init__(self) -> None:
        self._root: _Folder[File] = _Folder()
        self._forgotten: deque[ref[File]] = deque()

    def add(self, file: File) -> None:
        while self._forgotten:
            _take_off(self._forgotten.popleft())
        self._list(file)

    def __len__(self) -> int:
        """Count the files and folders that are listed."""
        return self._root.count()

    def at(self, path: str) -> list[File]:
        """Return the files of a file."""
        folder = self._find(folder_of(path))
        references = () if folder is None else folder.files.get(_name_of(path), ())
        return list(_living(references))

    def below(self, path: str) -> list[File]:
        """Return the files in a folder."""
        folder = self._find(path)
        return [] if folder is None else list(folder.all_files())

    def discard(self, path: str) -> None:
        """Forget what is listed for a file or folder."""
        parent, name = self._find(folder_of(path)), _name_of(path)
        if parent is not None:
            parent.files.pop(name, None)
            parent.folders.pop(name, None)

    def rename(self, old: str, new: str) -> None:
        """Update the paths after a rename of a file or folder."""
        moved = self.at(old) + self.below(old)
        self.discard(old)
        for file in moved:
            file.path = new + file.path[len(old) :]
            self._list(file)

    def _list(self, file: File) -> None:
        folder = self._root
        *path, name = file.path.split("/")
        for part in path:
            folder = folder.folders.setdefault(part, _Folder())
        reference = _Reference(file, self._forgotten.append)
        reference.folder, reference.name = folder, name
        folder.files.setdefault(name, []).append(reference)

    def _find(self, path: str) -> _Folder[File] | None:
        folder: _Folder[File] | None = self._root
        for part in path.split("/") if path else ():
            if folder is None:
                break
            folder = folder.folders.get(part)
        return folder


def _living(references: Iterable[_Reference[File]]) -> Iterator[File]:
    for reference in references:
        file = reference()
        if file is not None:
            yield file


def _take_off(reference: ref[File]) -> None:
    assert isinstance(reference, _Reference)
    listed = reference.folder.files.get(reference.name, [])
    kept = [other for other in listed if other is not reference]
    if kept:
        reference.folder.files[reference.name] = kept
    else:
        reference.folder.files.pop(reference.name, None)


def _name_of(path: str) -> str:
    return path.rpartition("/")[2]
