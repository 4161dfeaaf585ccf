"""Tests with Spark: where there is no Java for it, say so and run the rest."""

from collections.abc import Iterator

import pytest

from headrace.spark.blocking import close_clusters
from headrace.spark.java import NoJava, java_home

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture(scope="module")
def java() -> Iterator[None]:
    """A Java for Spark, which knows that it lives for seconds: it would compile for hours."""
    try:
        java_home()
    except NoJava as error:
        pytest.skip(str(error))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", SHORT_LIVED)
        yield


@pytest.fixture(autouse=True)
def hang_up() -> Iterator[None]:
    """Let no connection outlive a test that was a driver or an executor itself."""
    yield
    close_clusters()
