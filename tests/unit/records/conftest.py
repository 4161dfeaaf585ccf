"""Runs what walks records twice: with the compiled `scan`, and with its source."""

import os
from collections.abc import Iterator

import pytest

from headrace import _mode
from headrace.records import columns, reader, scan, validation

SCAN = "headrace.records.scan"
IS_PURE = os.environ.get(_mode.PURE_VARIABLE) == "1"
MODES = ["uncompiled"] if IS_PURE else ["compiled", "uncompiled"]


@pytest.fixture(scope="module", params=MODES)
def scan_mode(request: pytest.FixtureRequest) -> Iterator[str]:
    mode: str = request.param
    module = scan if mode == "compiled" else _mode.load_source(SCAN)
    if mode == "compiled" and scan.__file__.endswith(".py"):
        pytest.fail(f"{SCAN} is not compiled; set {_mode.PURE_VARIABLE}=1 to test only its source")
    with pytest.MonkeyPatch.context() as patch:
        for user in (reader, validation, columns):
            patch.setattr(user, "scan", module)
        yield mode
