"""Writing straight-line Python and knowing, for each line, which field it is about.

A codec carries no code that tracks where it is. When it fails, the line that failed names the
field, and the variables of its frame hold the position and the array indexes.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, TypeAlias

Variables: TypeAlias = dict[str, Any]
Suspect: TypeAlias = Callable[[Variables], str]


class Source:
    """The text of one function, with the names that it uses and the field of each line."""

    def __init__(self, title: str) -> None:
        self.file_name = f"<headrace.wire {title}>"
        self._names: dict[str, Any] = {}
        self._lines: list[str] = []
        self._places: list[tuple[str, Suspect | None]] = []
        self._path = ""
        self._indent = ""
        self._counter = 0

    def line(self, text: str, suspect: Suspect | None = None) -> None:
        """Write a line; if it is about several fields, `suspect` names the one that failed."""
        self._lines.append(self._indent + text)
        self._places.append((self._path, suspect))

    @contextmanager
    def block(self, opening: str) -> Iterator[None]:
        """Indent what is written within, under a line such as `if x:`."""
        self.line(opening)
        outer, self._indent = self._indent, self._indent + "    "
        yield
        self._indent = outer

    @contextmanager
    def field(self, name: str) -> Iterator[None]:
        """Attribute what is written within to a field of the current one."""
        outer, self._path = self._path, _join(self._path, name)
        yield
        self._path = outer

    @contextmanager
    def element(self, index: str) -> Iterator[None]:
        """Attribute what is written within to an element of an array.

        `index` is the variable that counts, or `x in xs` where none does.
        """
        outer, self._path = self._path, f"{self._path}[{{{index}}}]"
        yield
        self._path = outer

    def variable(self, prefix: str) -> str:
        """Return a name that this function does not use yet."""
        self._counter += 1
        return f"{prefix}{self._counter}"

    def bind(self, name: str, value: object) -> str:
        """Make `value` known to the function under `name`."""
        self._names[name] = value
        return name

    def compile(self, function: str) -> Callable[..., Any]:
        """Return the compiled function; its text comes only from our own definitions."""
        namespace = dict(self._names)
        exec(compile(self.text, self.file_name, "exec"), namespace)
        compiled: Callable[..., Any] = namespace[function]
        return compiled

    @property
    def text(self) -> str:
        return "\n".join([*self._lines, ""])

    def locate(self, traceback: TracebackType | None) -> tuple[str, Variables]:
        """Name the field that the failing line is about, and give the variables there."""
        while traceback is not None:
            frame = traceback.tb_frame
            if frame.f_code.co_filename == self.file_name:
                variables = frame.f_locals
                path, suspect = self._places[traceback.tb_lineno - 1]
                if suspect is not None:
                    path = _join(path, suspect(variables))
                return path.format_map(_Indexes(variables)), variables
            traceback = traceback.tb_next
        return "", {}


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


class _Indexes(dict[str, Any]):
    """The variables of a frame, in which `x in xs` gives the index of x."""

    def __missing__(self, key: str) -> int:
        element, _, array = key.partition(" in ")
        return next(index for index, value in enumerate(self[array]) if value is self[element])
