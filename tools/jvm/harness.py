"""Programs of Apache Kafka, run beside ours to compare with.

What lives here: fetching Kafka's jars, compiling Java sources against them, and talking to a Java
program over its standard input and output. What the programs answer is in `tools/jvm/oracles.py`.
Only the standard library is used, so that `python3 -m tools.jvm.harness`, which fetches the jars,
needs no environment.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
POM = HERE / "pom.xml"
JARS = ROOT / ".jars"
CONNECTOR_POM = HERE / "spark-connector.xml"
TIERED_STORAGE_POM = HERE / "tiered-storage.xml"
BUILD = ROOT / "build" / "jvm"
CONNECTOR_JARS = BUILD / "spark-connector"
TIERED_STORAGE_JARS = BUILD / "tiered-storage"

JAVA_MIN = 17
STOP_SECONDS_MAX = 10
SHOWN_CHARACTERS_MAX = 4000

# A short-lived program on a small machine: start fast, stay small.
JVM_OPTIONS = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Xmx384m",
)


def missing_tools() -> str | None:
    """A sentence that names what this machine lacks to run Kafka's programs, or None."""
    for tool in ("java", "javac", "mvn"):
        if shutil.which(tool) is None:
            return f"Kafka's programs need {tool} on the PATH (Java {JAVA_MIN} or newer and Maven)."
    banner = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(\d+)', banner.stderr)
    if found is None or int(found[1]) < JAVA_MIN:
        version = found[1] if found else "of an unknown version"
        return f"Kafka's programs need Java {JAVA_MIN} or newer; the PATH has Java {version}."
    return None


def jars() -> Path:
    """The folder of Kafka's jars."""
    return fetched(POM, JARS)


def connector_jars() -> list[Path]:
    """Spark's own Kafka connector: the jars that a session needs besides Spark's."""
    folder = fetched(CONNECTOR_POM, CONNECTOR_JARS)
    return sorted(folder.glob("*.jar"))


def tiered_storage_jars() -> Path:
    """The folder of the jar that has Kafka's LocalTieredStorage."""
    return fetched(TIERED_STORAGE_POM, TIERED_STORAGE_JARS)


def fetched(pom: Path, folder: Path) -> Path:
    """The folder of a pom's jars, fetched by Maven if they are not there or the pom is newer.

    Processes that ask at once wait for one of them to fetch. The folder appears complete or not at
    all; the file `.complete` in it is what `make` looks at.
    """
    if _has_jars(pom, folder):
        return folder
    _require_tools()
    with _locked():
        if not _has_jars(pom, folder):
            _fetch_jars(pom, folder)
    return folder


def compile_java(*sources: Path) -> Path:
    """The folder of the classes of `sources`, compiled together against Kafka's jars.

    Compiled once for each content of the sources and of `pom.xml`; kept under `build/jvm`.
    """
    digest = hashlib.sha256(POM.read_bytes())
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    classes = BUILD / f"classes-{digest.hexdigest()[:16]}"
    library = jars()
    with _locked():
        if not classes.is_dir():
            _require_tools()
            with _new_folder(classes) as folder:
                _run("javac", "-cp", f"{library}/*", "-d", str(folder), *map(str, sources))
    return classes


class Program:
    """A Java program that answers each line of text with one line. Use it in a `with` statement.

    `classes` is what `compile_java` returned. `more_jars` is a folder of jars besides Kafka's. A
    program that dies, or ends before it has answered, is a RuntimeError with the end of what it
    wrote to standard error.
    """

    def __init__(
        self, classes: Path, main: str, *arguments: str, more_jars: Path | None = None
    ) -> None:
        self.main = main
        path = [str(classes), f"{jars()}/*", *([] if more_jars is None else [f"{more_jars}/*"])]
        self._command = [
            *("java", *JVM_OPTIONS, "-cp", os.pathsep.join(path)),
            *(main, *arguments),
        ]
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        # A file, not a pipe: nobody would empty a pipe while we wait for a reply.
        self._errors = self._stack.enter_context(tempfile.TemporaryFile("w+", errors="replace"))
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            encoding="ascii",
        )
        self._stack.callback(self._stop)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def ask(self, line: str) -> str:
        """The program's reply to `line`, which is ASCII and has no line break in it."""
        if "\n" in line or "\r" in line:
            raise ValueError(f"a request is one line: {line[:80]!r}")
        try:
            self._stdin.write(line + "\n")
            self._stdin.flush()
        except BrokenPipeError:
            raise self._death() from None
        reply = self._stdout.readline()
        if not reply.endswith("\n"):
            raise self._death()
        return reply[:-1]

    @property
    def _stdin(self) -> IO[str]:
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def _stdout(self) -> IO[str]:
        assert self._process.stdout is not None
        return self._process.stdout

    def _death(self) -> RuntimeError:
        self._stop()
        self._errors.seek(0)
        return RuntimeError(
            f"{self.main} ended with status {self._process.returncode}:\n"
            + self._errors.read()[-SHOWN_CHARACTERS_MAX:]
        )

    def _stop(self) -> None:
        """End the program, which leaves by itself when its input ends. May be called again."""
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._stdout.close()


def _has_jars(pom: Path, folder: Path) -> bool:
    try:
        return (folder / ".complete").stat().st_mtime >= pom.stat().st_mtime
    except FileNotFoundError:
        return False


def _fetch_jars(pom: Path, target: Path) -> None:
    with _new_folder(target) as folder:
        _run(
            *("mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"),
            f"-DoutputDirectory={folder}",
        )
        (folder / ".complete").touch()


def _require_tools() -> None:
    if sentence := missing_tools():
        raise RuntimeError(sentence)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        output = (done.stdout + done.stderr)[-SHOWN_CHARACTERS_MAX:]
        raise RuntimeError(f"{command[0]} ended with status {done.returncode}:\n{output}")


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    """Hold off every other process that fetches or compiles. Must not be nested."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _new_folder(target: Path) -> Iterator[Path]:
    """A folder to fill, which takes the place of `target` if the block ends well."""
    with tempfile.TemporaryDirectory(dir=BUILD) as scratch:
        folder = Path(scratch) / target.name
        folder.mkdir()
        yield folder
        if target.exists():
            shutil.rmtree(target)
        folder.rename(target)


if __name__ == "__main__":
    jars()
