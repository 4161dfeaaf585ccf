"""Tests with Spark: where there is no Java for it, say so and run the rest."""

from pathlib import Path

import pytest

from headrace.spark.java import NoJava, java_home


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
