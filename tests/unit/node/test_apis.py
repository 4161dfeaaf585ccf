"""Every API that a node serves has a module of its name, which opens with its key and versions."""

import sys

import pytest

from headrace.node.apis import SERVED, load_handler, module_of
from headrace.server.dispatch import served_versions
from headrace.wire import APIS, ApiKey


def words_for(versions: range) -> str:
    """Return how the first lines of a module name versions."""
    first, last = versions.start, versions.stop - 1
    if first == last:
        return f"version {first}."
    return f"versions {first} {'and' if last == first + 1 else 'to'} {last}."


@pytest.mark.parametrize("key", sorted(SERVED), ids=lambda key: key.name)
def test_a_module_opens_with_the_key_and_versions_that_are_served(key: ApiKey) -> None:
    assert callable(load_handler(key))
    api = APIS[key]
    text = sys.modules[module_of(key)].__doc__ or ""
    assert f"{api.name}: API key {int(key)}, {words_for(served_versions(api))}" in text
