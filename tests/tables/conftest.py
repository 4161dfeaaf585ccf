"""What the tests of tables leave behind."""

from collections.abc import Iterator

import pytest

from headrace.spark.blocking import close_clusters
from headrace.spark.tier.stores import close_stores


@pytest.fixture(autouse=True)
def hang_up() -> Iterator[None]:
    """Let no connection outlive a test that was a driver and an executor itself."""
    yield
    close_clusters()
    close_stores()
