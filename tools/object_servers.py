"""Servers of object stores, which `make test-slow` runs the tier's store against.

MinIO is built by Go, Azurite (Azure) is installed by npm, both once, below `build/object-servers`.
Google's store has no server that can be had like that: fake-gcs-server does not serve the requests
that obstore sends (Google's XML API).
"""

import fcntl
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tools.ports import free_port

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "object-servers"

MINIO = "github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c"
AZURITE = "azurite@3.37.0"
START_SECONDS_MAX = 120
STOP_SECONDS_MAX = 30
SHOWN_CHARACTERS_MAX = 4000


def missing_tool(name: str) -> str | None:
    """A sentence that names a tool which this machine lacks, or None."""
    return None if shutil.which(name) else f"this store's server needs {name} on the PATH"


@contextmanager
def minio(folder: Path, user: str, password: str) -> Iterator[str]:
    """Run MinIO on a folder and give its URL."""
    path = BUILD / "bin" / "minio"
    _install(path, ("go", "install", MINIO), {"GOBIN": str(path.parent)})
    port = free_port()
    with _running(
        (str(path), "server", "--quiet", "--address", f"127.0.0.1:{port}", str(folder)),
        {"MINIO_ROOT_USER": user, "MINIO_ROOT_PASSWORD": password, "MINIO_BROWSER": "off"},
        port,
    ):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def azurite() -> Iterator[str]:
    """Run Azurite in memory and give the URL of its account, devstoreaccount1."""
    path = BUILD / "azurite" / "node_modules" / ".bin" / "azurite-blob"
    prefix = str(BUILD / "azurite")
    _install(path, ("npm", "install", "--no-audit", "--no-fund", "--prefix", prefix, AZURITE), {})
    port = free_port()
    listen = ("--blobHost", "127.0.0.1", "--blobPort", str(port))
    options = ("--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--silent")
    with _running((str(path), *listen, *options), {}, port):
        yield f"http://127.0.0.1:{port}/devstoreaccount1"


def _install(path: Path, command: tuple[str, ...], environment: Mapping[str, str]) -> None:
    """Run a command that makes a program, if it is not there. Others that want it wait."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            return
        done = subprocess.run(
            command,
            cwd=BUILD,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0 or not path.exists():
            output = (done.stdout + done.stderr)[-SHOWN_CHARACTERS_MAX:]
            raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{output}")


@contextmanager
def _running(command: tuple[str, ...], environment: Mapping[str, str], port: int) -> Iterator[None]:
    """Run a server from when it listens."""
    with subprocess.Popen(
        command,
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as server:
        try:
            deadline = time.monotonic() + START_SECONDS_MAX
            while not _listens(port):
                if server.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{command[0]} does not listen on port {port}")
                time.sleep(0.05)  # polls, up to the deadline
            yield
        finally:
            server.terminate()
            try:
                server.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                server.kill()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
