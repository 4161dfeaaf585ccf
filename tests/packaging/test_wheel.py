"""The package builds with a compiler and without one."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from headrace._mode import COMPILED_MODULES

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "has_compiler",
    # With one, the installation for these tests has built it already.
    [pytest.param(True, marks=pytest.mark.exhaustive), False],
)
def test_a_wheel_has_the_sources_and_what_could_be_compiled(
    tmp_path: Path, has_compiler: bool
) -> None:
    environment = {**os.environ} if has_compiler else {**os.environ, "CC": "/nonexistent/cc"}
    copy = tmp_path / "source"
    built = shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT / "src", copy / "src", ignore=built)
    for name in ("LICENSE", "README.md", "pyproject.toml", "setup.py"):
        shutil.copy(ROOT / name, copy)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(tmp_path)]
    subprocess.run([*command, str(copy)], env=environment, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    for module in COMPILED_MODULES:
        path = module.replace(".", "/")
        assert f"{path}.py" in names
        libraries = [name for name in names if name.startswith(f"{path}.") and name.endswith(".so")]
        assert len(libraries) == has_compiler
