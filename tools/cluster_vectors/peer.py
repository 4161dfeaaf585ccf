"""The crate that defined the node-to-node protocol (rivven-cluster 0.0.7), to compare ours with.

`python -m tools.cluster_vectors.peer` writes the bytes of its messages to the file that the unit
tests read. It needs cargo and crates.io, and minutes for the first build. A map of several
entries is written in the order of the crate's hashes, which differs from run to run.
"""

import json
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
VECTORS = ROOT / "tests" / "unit" / "cluster" / "protocol" / "vectors.jsonl"
PROGRAM = ROOT / "build" / "cluster_vectors" / "debug" / "cluster-vectors"
BUILD_SECONDS_MAX = 1800
RUN_SECONDS_MAX = 60


def missing() -> str:
    """Return why the program cannot be built, or an empty text."""
    return "" if shutil.which("cargo") else "cargo is not installed (https://rustup.rs)"


def build() -> Path:
    """Compile the program unless it is there already; return where it is."""
    subprocess.run(
        ["cargo", "build", "--locked", "--quiet", "--jobs", "1"],
        cwd=HERE,
        check=True,
        timeout=BUILD_SECONDS_MAX,
    )
    return PROGRAM


def written() -> str:
    """Return the vectors: one JSON object per line, as `src/main.rs` describes them."""
    return _run("write", "")


def read(messages: Iterable[tuple[str, bytes]]) -> list[dict[str, Any]]:
    """Return what the crate reads from messages, each a kind and bytes.

    That is its `value` in serde's JSON form and the `hex` that it writes for it, or `refused`
    with the reason.
    """
    lines = "".join(f"{kind} {data.hex()}\n" for kind, data in messages)
    told = _run("read", lines).removesuffix("\n")
    return [json.loads(line) for line in told.split("\n")]  # texts may have other line ends


def _run(command: str, text: str) -> str:
    done = subprocess.run(
        [PROGRAM, command],
        input=text,
        stdout=subprocess.PIPE,
        check=True,
        timeout=RUN_SECONDS_MAX,
        encoding="utf-8",
    )
    return done.stdout


if __name__ == "__main__":
    build()
    VECTORS.write_text(written(), encoding="utf-8")
