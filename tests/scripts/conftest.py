"""`--rewrite` writes what the machines say now into the scripts; review that as a diff."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write the scripts' outputs anew")
