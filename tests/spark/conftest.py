"""Tests with Spark: where there is no Java for it, say so and run the rest."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.spark.java import NoJava, java_home

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture(scope="module", autouse=True)
def short_lived_java() -> Iterator[None]:
    """Have every JVM know that it lives for seconds: most would go into compiling for hours."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", SHORT_LIVED)
        yield


def _missing_java() -> str | None:
    try:
        java_home()
    except NoJava as error:
        return str(error)
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    with_session = [
        item
        for item in items
        if Path(__file__).parent in item.path.parents
        and "spark" in getattr(item, "fixturenames", ())
    ]
    reason = _missing_java() if with_session else None
    for item in with_session:
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))
