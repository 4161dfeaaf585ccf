"""What users import from headrace.client: complete, documented and annotated."""

import builtins
import inspect
import re
import typing
from pathlib import Path

import pytest

from headrace import client

CLASSES = [name for name in client.__all__ if inspect.isclass(getattr(client, name))]


def test_the_lists_of_names_agree() -> None:
    assert sorted(client.__all__) == sorted(client._HOMES)
    assert client.__all__ == sorted(client.__all__)
    assert set(client.__all__) <= set(dir(client))
    assert len(client.__all__) == len(set(client.__all__))


@pytest.mark.parametrize("name", client.__all__)
def test_a_name_can_be_imported(name: str) -> None:
    assert getattr(client, name) is not None


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Producers"):
        _ = client.Producers


@pytest.mark.parametrize("name", CLASSES)
def test_every_public_method_is_documented_and_annotated(name: str) -> None:
    found = getattr(client, name)
    assert inspect.getdoc(found), f"{name} has no docstring"
    bare = []
    for method_name, method in _methods(found):
        if not inspect.getdoc(method):
            bare.append(f"{name}.{method_name} has no docstring")
        signature = inspect.signature(method)
        parameters = [
            each for each in signature.parameters.values() if each.name not in ("self", "cls")
        ]
        missing = [each.name for each in parameters if each.annotation is inspect.Parameter.empty]
        if missing or signature.return_annotation is inspect.Signature.empty:
            bare.append(f"{name}.{method_name} has no annotations for {missing or 'its result'}")
    assert not bare


def test_what_public_methods_return_can_be_imported_too() -> None:
    public = {getattr(client, name) for name in client.__all__}
    hidden = set()
    for name in CLASSES:
        for method_name, method in _methods(getattr(client, name)):
            try:
                result = typing.get_type_hints(method).get("return")
            except NameError:
                continue
            for found in _classes_in(result):
                if found.__module__.startswith("headrace.client") and found not in public:
                    hidden.add(f"{name}.{method_name} returns {found.__module__}.{found.__name__}")
    assert not hidden


@pytest.mark.parametrize("name", ["client", "queues"])
def test_classes_that_a_page_names_can_be_imported(name: str) -> None:
    page = (Path(__file__).parents[3] / "docs" / f"{name}.md").read_text()
    named = set(re.findall(r"`((?:[A-Z][a-z]+){2,})[`(.]", page))
    for line in re.findall(r"^from headrace\.client import (.+)$", page, flags=re.MULTILINE):
        named.update(line.split(", "))
    named -= set(dir(builtins)) | {"CancelledError"}
    assert len(named) > 4
    assert named <= set(client.__all__)


def test_the_page_of_the_client_names_what_there_is() -> None:
    page = (Path(__file__).parents[3] / "docs" / "client.md").read_text()
    section = page.partition("\n## Administration\n")[2].partition("\n## ")[0]
    named = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)(?:\(s\))?`", section))
    methods = {name for name, _ in _methods(client.Admin)}
    assert named - {"values_of"} <= methods
    documented = named | {f"{name}s" for name in re.findall(r"`(\w+)\(s\)`", section)}
    assert methods - documented == {"close"}


def _methods(found: type) -> list[tuple[str, typing.Any]]:
    """Return the methods and properties that this package defines for a class."""
    methods = []
    for name in dir(found):
        if name.startswith("_"):
            continue
        home = next((each for each in found.__mro__ if name in vars(each)), object)
        if not home.__module__.startswith("headrace.client"):
            continue
        raw = inspect.getattr_static(found, name)
        if isinstance(raw, property):
            methods.append((name, raw.fget))
        elif isinstance(raw, classmethod | staticmethod):
            methods.append((name, raw.__func__))
        elif inspect.isfunction(raw):
            methods.append((name, raw))
    return methods


def _classes_in(hint: object) -> list[type]:
    inside = [found for each in typing.get_args(hint) for found in _classes_in(each)]
    return [*inside, hint] if inspect.isclass(hint) else inside
