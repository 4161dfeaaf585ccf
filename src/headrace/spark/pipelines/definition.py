"""A pipeline from its folder: `pipeline.toml`, and the `.sql` and `.py` files in `steps`.

    defined = load("orders", {"bootstrap": "127.0.0.1:9092"})
    defined.pipeline            # checked; `model` says what it is
    defined.statements          # of SQL steps, by name
    defined.functions           # of Python steps, by name

Values of `pipeline.toml` may contain `${name}` for a parameter; `[parameters]` has their defaults.
"""

import re
import sys
import tomllib
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import msgspec

from headrace.spark.pipelines.headers import parse_sql, parse_trigger, parse_watermark
from headrace.spark.pipelines.model import InvalidPipeline, Pipeline, Place, Step, check, suggest
from headrace.spark.pipelines.steps import MARK, Marked

FILE: Final = "pipeline.toml"
STEPS: Final = "steps"
_TOP: Final = ("name", "checkpoints", "parameters", "options", "sources", "sinks", "spark")
_PLACE: Final = ("format", "stream", "partition_by")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PARAMETER: Final = re.compile(r"\$\{([^}]*)\}")
_NUMBERED: Final = re.compile(r"^\d+[_-]")
HEADRACE_FORMATS: Final = ("headrace", "headrace-share", "headrace-system", "headrace-table")
"""Formats that take the options of the section `options`."""


class Defined(msgspec.Struct, frozen=True):
    """A pipeline with the code of its steps."""

    folder: Path
    pipeline: Pipeline
    statements: Mapping[str, str]
    functions: Mapping[str, Callable[..., Any]]
    checkpoints: str
    """The folder of its checkpoints: a path, or a URI for Spark."""
    spark: Mapping[str, str]
    """Settings of the Spark session."""
    parameters: Mapping[str, str]


def load(folder: Path, parameters: Mapping[str, str] | None = None) -> Defined:
    """Read and check the pipeline of a folder; InvalidPipeline says what is wrong and where."""
    document = _read(folder / FILE)
    values = _parameters(document, parameters or {})
    document = _filled({key: each for key, each in document.items() if key != "parameters"}, values)
    unknown = [key for key in document if key not in _TOP]
    if unknown:
        raise InvalidPipeline(f"{FILE}: {unknown[0]!r} is not known{suggest(unknown[0], _TOP)}")
    common = _texts(document.get("options", {}), "options")
    statements: dict[str, str] = {}
    functions: dict[str, Callable[..., Any]] = {}
    steps: dict[str, Step] = {}
    for step, code in _steps(folder):
        if not _NAME.fullmatch(step.name):
            raise InvalidPipeline(
                f"{step.file}: {step.name!r} is no name of a step: letters, digits, underscores"
            )
        if step.name in steps:
            other = steps[step.name].file
            raise InvalidPipeline(f"{step.file} and {other} both define the step {step.name!r}")
        steps[step.name] = step
        if isinstance(code, str):
            statements[step.name] = code
        else:
            functions[step.name] = code
    pipeline = Pipeline(
        _text(document, "name") or folder.resolve().name,
        _places(document, "sources", common, folder),
        steps,
        _places(document, "sinks", common, folder),
    )
    check(pipeline)
    default = str(folder.resolve() / ".headrace" / "checkpoints")
    checkpoints = _text(document, "checkpoints") or default
    if "://" not in checkpoints and not checkpoints.startswith("/"):
        checkpoints = str(folder.resolve() / checkpoints)
    return Defined(
        folder.resolve(),
        pipeline,
        statements,
        functions,
        checkpoints,
        _texts(document.get("spark", {}), "spark"),
        values,
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise InvalidPipeline(
            f"there is no {path}: `headrace pipeline init {path.parent}` writes an example"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidPipeline(f"{path} cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise InvalidPipeline(f"{path}: {error}") from None


def _parameters(document: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, str]:
    known = _texts(document.get("parameters", {}), "parameters")
    for name in given:
        if name not in known:
            raise InvalidPipeline(
                f"{FILE} has no parameter {name!r}{suggest(name, known) or ': ' + _list(known)}"
            )
    return {**known, **given}


def _filled(value: Any, parameters: Mapping[str, str]) -> Any:
    """Return a value with its parameters put in."""
    if isinstance(value, dict):
        return {key: _filled(each, parameters) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, parameters) for each in value]
    if not isinstance(value, str):
        return value

    def put(found: re.Match[str]) -> str:
        if found[1] not in parameters:
            meant = suggest(found[1], parameters) or f": {_list(parameters)}"
            raise InvalidPipeline(f"{FILE}: there is no parameter {found[1]!r}{meant}")
        return parameters[found[1]]

    return _PARAMETER.sub(put, value)


def _places(
    document: Mapping[str, Any], section: str, common: Mapping[str, str], folder: Path
) -> dict[str, Place]:
    places = {}
    rows = document.get(section, {})
    if not isinstance(rows, dict):
        raise InvalidPipeline(f"{FILE}: [{section}.NAME] has the format and its options")
    for name, row in rows.items():
        where = f"{FILE}, {section}.{name}"
        if not _NAME.fullmatch(name):
            raise InvalidPipeline(f"{where}: a name has letters, digits and underscores")
        if not isinstance(row, dict) or not isinstance(row.get("format"), str):
            raise InvalidPipeline(f'{where} needs a format, such as format = "headrace"')
        if section == "sinks" and "stream" in row:
            raise InvalidPipeline(f"{where}: stream is for sources")
        if section == "sources" and "partition_by" in row:
            raise InvalidPipeline(f"{where}: partition_by is for sinks")
        options = _texts({key: row[key] for key in row if key not in _PLACE}, where)
        if row["format"] in HEADRACE_FORMATS:
            options = {**common, **options}
        if "path" in options and "://" not in options["path"]:
            options["path"] = str(folder.resolve() / options["path"])
        parts = row.get("partition_by", [])
        parts = [parts] if isinstance(parts, str) else parts
        if not isinstance(parts, list) or not all(isinstance(each, str) for each in parts):
            raise InvalidPipeline(
                f"{where}: partition_by is the name of a column, or a list of them"
            )
        is_stream = row.get("stream", True)
        if not isinstance(is_stream, bool):
            raise InvalidPipeline(f"{where}: stream is true or false")
        places[name] = Place(
            name,
            row["format"],
            options,
            is_stream,
            tuple(parts),
        )
    return places


def _texts(values: Any, where: str) -> dict[str, str]:
    """Return options as Spark takes them; nested tables come from names with dots."""
    if not isinstance(values, dict):
        raise InvalidPipeline(f"{where}: names with values are expected")
    found: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            nested = _texts(value, where)
            found.update({f"{name}.{key}": each for key, each in nested.items()})
        elif isinstance(value, bool):
            found[name] = str(value).lower()
        elif isinstance(value, str | int | float):
            found[name] = str(value)
        else:
            raise InvalidPipeline(f"{where}: {name} is a text, a number, true or false")
    return found


def _steps(folder: Path) -> Iterator[tuple[Step, Any]]:
    for path in sorted((folder / STEPS).glob("*")):
        file = f"{STEPS}/{path.name}"
        if path.suffix == ".sql":
            yield parse_sql(_NUMBERED.sub("", path.stem), file, _read_sql(path, file))
        elif path.suffix == ".py" and not path.stem.startswith("_"):
            yield from _python_steps(path, file)


def _read_sql(path: Path, file: str) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")  # some editors begin with a mark
    except UnicodeDecodeError as error:
        raise InvalidPipeline(f"{file} is not text in UTF-8: {error}") from None


def _python_steps(path: Path, file: str) -> Iterator[tuple[Step, Any]]:
    found = False
    for function in vars(_import(path, file)).values():
        marked = getattr(function, MARK, None)
        if not isinstance(marked, Marked) or not callable(function):
            continue
        if getattr(function, "__module__", None) != _module_name(path):
            continue  # imported from another file of steps
        found = True
        try:
            marked = msgspec.convert(msgspec.structs.asdict(marked), Marked)
        except msgspec.ValidationError as error:
            raise InvalidPipeline(
                f"{file}: @step of {function.__name__!r} cannot be meant: {error}"
            ) from None
        step = Step(
            marked.name,
            file,
            marked.reads,
            marked.writes,
            marked.mode,
            parse_trigger(marked.trigger, file),
            parse_watermark(marked.watermark, file),
            marked.is_per_batch,
        )
        yield step, function
    if not found:
        raise InvalidPipeline(f"{file} has no function with @step; begin a helper's name with _")


def _import(path: Path, file: str) -> Any:
    name = _module_name(path)
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))  # steps import their neighbours
    try:
        # Compiled here and not by the import system, whose cache misses changes within a second.
        exec(compile(path.read_text(), str(path), "exec"), vars(module))
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [each.lineno for each in frames if each.filename == str(path)]
        line = error.lineno if isinstance(error, SyntaxError) else (lines or [None])[-1]
        where = file if line is None else f"{file}:{line}"
        raise InvalidPipeline(f"{where}: {type(error).__name__}: {error}") from error
    _send_by_value(module)
    return module


def _send_by_value(module: Any) -> None:
    """Make Spark send the module's functions with their code: executors do not have the folder."""
    from pyspark import cloudpickle  # noqa: PLC0415  only with Python steps

    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _module_name(path: Path) -> str:
    return f"headrace_step_{path.resolve().parent.parent.name}_{path.stem}".replace("-", "_")


def _text(document: Mapping[str, Any], key: str) -> str | None:
    value = document.get(key)
    if value is not None and not isinstance(value, str):
        raise InvalidPipeline(f"{FILE}: {key} is a text")
    return value or None


def _list(names: Mapping[str, str]) -> str:
    return f"there are {', '.join(names)}" if names else "it has none"
