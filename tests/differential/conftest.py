"""Both brokers for the scripts; without Java only the tests that need none run."""

from collections.abc import Iterator

import pytest

from tests.differential.peers import SETTINGS, headrace
from tests.jvm.kafka_broker import kafka
from tools.jvm import harness


@pytest.fixture(scope="module")
def kafka_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if sentence := harness.missing_tools():
        pytest.skip(sentence)
    with kafka(tmp_path_factory.mktemp("kafka") / "data", extra=SETTINGS) as address:
        yield address


@pytest.fixture(scope="module")
def headrace_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with headrace(tmp_path_factory.mktemp("headrace") / "data") as address:
        yield address
