"""A pipeline as data: sources, steps and sinks, what is wrong with them, their order. Pure.

    problems(pipeline)          # nothing if it can run
    queries(pipeline)           # the steps that write, each with what it is computed from
    stages(pipeline)            # these in the order in which a run to the end takes them

A *source* is read from outside, a *step* computes a frame from frames, a *sink* stores the frame of
one step. A step that writes is a streaming query; one that does not is part of the queries that
read it. A step may read a sink: then it follows the query that writes it, through what is stored.
"""

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Final

import msgspec

from headrace.errors import HeadraceError

MODES: Final = ("append", "update", "complete")


class InvalidPipeline(HeadraceError, ValueError):
    """A pipeline that cannot run; the text has every reason."""


class Place(msgspec.Struct, frozen=True):
    """A source or a sink: a Spark format and its options."""

    name: str
    format: str
    options: Mapping[str, str] = {}
    is_stream: bool = True
    """Whether a source is read as a stream, or whole for every batch."""
    partition_by: tuple[str, ...] = ()
    """The columns that name the folders of a sink of files."""

    @property
    def kind(self) -> str:
        """The format, and the option that says where it is, for people."""
        where = next((self.options[key] for key in _WHERE if key in self.options), "")
        return f"{self.format} {where}".strip()


class Step(msgspec.Struct, frozen=True):
    """One step of a pipeline; `file` is relative to the pipeline's folder."""

    name: str
    file: str
    reads: tuple[str, ...]
    writes: str | None = None
    mode: str = "append"
    trigger: str | None = None
    """How often a batch begins, as Spark writes intervals; None: when the last one is done."""
    watermark: tuple[str, str] | None = None
    """A column of the step's frame, and how late its rows may come."""
    is_per_batch: bool = False
    """Whether a function of the user's writes each batch."""


class Pipeline(msgspec.Struct, frozen=True):
    """Everything by name, in the order in which it was defined."""

    name: str
    sources: Mapping[str, Place]
    steps: Mapping[str, Step]
    sinks: Mapping[str, Place]


class Query(msgspec.Struct, frozen=True):
    """A step that writes, and what it is computed from, down to what is read from outside."""

    step: Step
    through: tuple[str, ...]
    """The steps whose frames it is computed from, in order, itself last."""
    sources: tuple[str, ...]
    stored: tuple[str, ...]
    """The sinks that it reads."""


def check(pipeline: Pipeline) -> None:
    """Raise InvalidPipeline unless a pipeline can run."""
    if found := problems(pipeline):
        raise InvalidPipeline(f"pipeline {pipeline.name!r}: {'; '.join(found)}")


def problems(pipeline: Pipeline) -> list[str]:
    """Return what is wrong with a pipeline, in words that name the step and its file."""
    found = [*_collisions(pipeline), *_of_steps(pipeline), *_unused(pipeline)]
    if not pipeline.steps:
        found.append("it has no steps: write .sql or .py files into its folder steps")
    if not found and (cycle := _cycle(pipeline)):
        found.append(f"its steps read each other in a circle: {' -> '.join(cycle)}")
    return found


def queries(pipeline: Pipeline) -> list[Query]:
    """Return the queries of a sound pipeline."""
    return [_query(pipeline, step) for step in pipeline.steps.values() if step.writes is not None]


def stages(pipeline: Pipeline) -> list[list[Query]]:
    """Return the queries in stages: each reads only sinks that earlier stages write."""
    waiting = queries(pipeline)
    written: set[str] = set()
    found: list[list[Query]] = []
    while waiting:
        ready = [each for each in waiting if written.issuperset(each.stored)]
        assert ready, "a sound pipeline has no cycles"
        waiting = [each for each in waiting if each not in ready]
        written.update(each.step.writes for each in ready if each.step.writes)
        found.append(ready)
    return found


def edges(pipeline: Pipeline) -> Iterator[tuple[str, str]]:
    """Yield who feeds whom, with the kind in front of each name: `source:orders`, `step:clean`."""
    for step in pipeline.steps.values():
        for name in step.reads:
            yield f"{kind_of(pipeline, name)}:{name}", f"step:{step.name}"
        if step.writes is not None:
            yield f"step:{step.name}", f"sink:{step.writes}"


def kind_of(pipeline: Pipeline, name: str) -> str:
    """Return what a step reads by this name: a source, a sink, or the frame of a step."""
    if name in pipeline.sources:
        return "source"
    return "sink" if name in pipeline.sinks else "step"


def suggest(name: str, known: Iterable[str]) -> str:
    """Return the nearest name as a question, or nothing."""
    near = get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f", did you mean {near[0]!r}?" if near else ""


def _collisions(pipeline: Pipeline) -> Iterator[str]:
    for name in pipeline.sources:
        if name in pipeline.sinks or name in pipeline.steps:
            yield f"{name!r} is a source and also a {'sink' if name in pipeline.sinks else 'step'}"
    for name, step in pipeline.steps.items():
        if name in pipeline.sinks and step.writes != name:
            yield f"step {name!r} ({step.file}) has the name of a sink that it does not write"


def _of_steps(pipeline: Pipeline) -> Iterator[str]:
    writers: dict[str, Step] = {}
    readable = [*pipeline.sources, *pipeline.sinks, *pipeline.steps]
    for step in pipeline.steps.values():
        where = f"step {step.name!r} ({step.file})"
        if not step.reads:
            yield f"{where} reads nothing"
        for name in step.reads:
            if name not in readable:
                yield f"{where} reads {name!r}, which does not exist{suggest(name, readable)}"
            elif kind_of(pipeline, name) == "step" and pipeline.steps[name].is_per_batch:
                yield f"{where} reads step {name!r}, which has no frame: it writes by itself"
        if step.writes is not None and step.writes not in pipeline.sinks:
            meant = suggest(step.writes, pipeline.sinks)
            yield f"{where} writes {step.writes!r}, which is no sink{meant}"
        elif step.writes is not None and step.writes in writers:
            other = writers[step.writes]
            yield f"{where} and step {other.name!r} ({other.file}) both write {step.writes!r}"
        elif step.writes is not None:
            writers[step.writes] = step
        if step.mode not in MODES:
            yield f"{where} has the mode {step.mode!r}; it is one of {', '.join(MODES)}"
        if step.is_per_batch and (len(step.reads) != 1 or step.writes is None):
            yield f"{where} writes each batch by itself: it reads one frame and writes one sink"


def _unused(pipeline: Pipeline) -> Iterator[str]:
    read = {name for step in pipeline.steps.values() for name in step.reads}
    written = {step.writes for step in pipeline.steps.values()}
    for name in pipeline.sources:
        if name not in read:
            yield f"source {name!r} is read by no step"
    for name in pipeline.sinks:
        if name not in written:
            yield f"sink {name!r} is written by no step"
    for step in pipeline.steps.values():
        if step.writes is None and step.name not in read:
            yield f"step {step.name!r} ({step.file}) neither writes a sink nor is read by a step"


def _cycle(pipeline: Pipeline) -> list[str]:
    """Return names that feed each other in a circle, the first one again last; or nothing."""
    after: dict[str, list[str]] = {}
    for giver, taker in edges(pipeline):
        after.setdefault(giver, []).append(taker)
    done: set[str] = set()
    path: list[str] = []

    def visit(node: str) -> list[str]:
        if node in path:
            return [each.partition(":")[2] for each in [*path[path.index(node) :], node]]
        if node in done:
            return []
        path.append(node)
        for each in after.get(node, ()):
            if found := visit(each):
                return found
        done.add(path.pop())
        return []

    return next(filter(None, map(visit, list(after))), [])


def _query(pipeline: Pipeline, step: Step) -> Query:
    through: dict[str, None] = {}
    sources: dict[str, None] = {}
    stored: dict[str, None] = {}

    def visit(each: Step) -> None:
        if each.name in through:
            return
        for name in each.reads:
            kind = kind_of(pipeline, name)
            if kind == "source":
                sources[name] = None
            elif kind == "sink":
                stored[name] = None
            else:
                visit(pipeline.steps[name])
        through[each.name] = None

    visit(step)
    return Query(step, tuple(through), tuple(sources), tuple(stored))


_WHERE: Final = ("subscribe", "topic", "path", "table", "dbtable", "frame", "store")
