"""`headrace pipeline`: init, run, status, graph, test."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.exceptions import Exit

from headrace.cli.options import CommandGroup, FilePath, json_option, parse_pairs
from headrace.cli.output import print_json, print_table
from headrace.cli.running import EXIT_REFUSED, usage_error
from headrace.cli.streams import say

if TYPE_CHECKING:
    from headrace.spark.pipelines.definition import Defined

folder_argument = click.argument("folder", metavar="DIR", type=FilePath(), default=".")
set_option = click.option(
    "--set", "pairs", multiple=True, metavar="NAME=VALUE", help="A parameter; repeatable."
)


@click.group(cls=CommandGroup)
def pipeline() -> None:
    """Run a folder of SQL and Python steps on Spark. Needs headrace[spark]."""


@pipeline.command()
@click.argument("folder", metavar="DIR", type=FilePath())
def init(folder: Path) -> None:
    """Write a small pipeline that runs, with a test, into a new folder."""
    from headrace.spark.pipelines.example import write_example  # noqa: PLC0415  needs Spark

    for path in write_example(folder):
        say(f"wrote {path}")


@pipeline.command()
@folder_argument
@click.option("--once", is_flag=True, help="Run to the end of what there is, then exit.")
@click.option("--master", metavar="MASTER", help="Where Spark runs.  [default: local[*]]")
@click.option("--remote", metavar="sc://HOST:PORT", help="A server of Spark Connect.")
@click.option(
    "--reset", "resets", multiple=True, metavar="STEP", help="Begin this step anew; repeatable."
)
@set_option
@json_option
def run(
    folder: Path,
    *,
    once: bool,
    master: str | None,
    remote: str | None,
    resets: tuple[str, ...],
    pairs: tuple[str, ...],
    as_json: bool,
) -> None:
    """Run a pipeline until Ctrl-C or SIGTERM; it continues where it was the next time.

    Exit code 0 when it is done or was stopped, 1 if a step failed.
    """
    if master and remote:
        usage_error("--master and --remote are two places to run: choose one")
    if remote and not remote.startswith("sc://"):
        usage_error(f"--remote {remote}: an address of Spark Connect begins with sc://")
    defined = _load(folder, pairs)
    from headrace.cli.pipeline_progress import printer  # noqa: PLC0415  needs Spark
    from headrace.spark.pipelines.running import Run  # noqa: PLC0415
    from headrace.spark.pipelines.state import claim, hold  # noqa: PLC0415
    from headrace.spark.session import session  # noqa: PLC0415

    with hold(defined):
        claim(defined, resets)
        name = f"headrace pipeline {defined.pipeline.name}"
        spark = session(remote or master, app_name=name, config=defined.spark, banner=False)
        try:
            work = Run(defined, spark, is_once=once)
            with printer(as_json=as_json) as show, _stopping(work.stop):
                state = work.go(show, pid=os.getpid())
        finally:
            spark.stop()
    if as_json:
        print_json({"state": state, "steps": [each.plain() for each in work.steps.values()]})
    else:
        say(f"pipeline {defined.pipeline.name} {state}")


@pipeline.command()
@folder_argument
@set_option
@json_option
def status(folder: Path, *, pairs: tuple[str, ...], as_json: bool) -> None:
    """Show how a pipeline does, or how its last run ended."""
    defined = _load(folder, pairs)
    from headrace.spark.pipelines.state import is_held, read_status  # noqa: PLC0415  needs Spark

    found, is_running = read_status(defined), is_held(defined)
    if found is None:
        if as_json:
            print_json({"pipeline": defined.pipeline.name, "state": "never run", "steps": []})
        else:
            say(f"pipeline {defined.pipeline.name} has not run yet")
        return
    state = found.state
    if state == "running" and not is_running:
        state = "killed"  # it could not say that it ended
    if as_json:
        print_json(
            {
                "pipeline": found.pipeline,
                "state": state,
                "pid": found.pid if is_running else None,
                "started_ms": found.started_ms,
                "updated_ms": found.updated_ms,
                "steps": found.steps,
                "problem": found.problem,
            }
        )
        return
    updated = datetime.fromtimestamp(found.updated_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    print_table(
        ("step", "state", "batch", "rows", "rows/s", "left"),
        [
            tuple(
                each.get(key)
                for key in ("step", "state", "batch", "rows", "rows_per_second", "left")
            )
            for each in found.steps
        ],
        title=f"{found.pipeline}  {state}  as of {updated} UTC",
    )
    if found.problem:
        say(found.problem)


@pipeline.command()
@folder_argument
@click.option("--svg", type=FilePath(), metavar="FILE", help="Write a drawing to this file.")
@set_option
@json_option
def graph(folder: Path, *, svg: Path | None, pairs: tuple[str, ...], as_json: bool) -> None:
    """Show what feeds what: as Mermaid text, as a drawing (SVG), or as JSON."""
    defined = _load(folder, pairs)
    from headrace.spark.pipelines.drawing import mermaid  # noqa: PLC0415  needs Spark
    from headrace.spark.pipelines.drawing import svg as draw  # noqa: PLC0415
    from headrace.spark.pipelines.model import edges, stages  # noqa: PLC0415

    if svg is not None:
        svg.write_text(draw(defined.pipeline))
        say(f"wrote {svg}")
    elif as_json:
        print_json(
            {
                "pipeline": defined.pipeline.name,
                "edges": list(edges(defined.pipeline)),
                "stages": [
                    [each.step.name for each in stage] for stage in stages(defined.pipeline)
                ],
            }
        )
    else:
        say(mermaid(defined.pipeline).rstrip())


@pipeline.command(context_settings={"ignore_unknown_options": True})
@folder_argument
@click.argument("pytest_options", nargs=-1, type=click.UNPROCESSED, metavar="[PYTEST OPTIONS]...")
def test(folder: Path, pytest_options: tuple[str, ...]) -> None:
    """Run the tests in a pipeline's folder `tests` with pytest, on brokers of their own."""
    _load(folder, ())
    if not (folder / "tests").is_dir():
        usage_error(f"{folder / 'tests'} does not exist: docs/pipelines.md shows a test")
    try:
        import pytest  # noqa: F401, PLC0415  only to know that it is there
    except ImportError:
        usage_error("tests need pytest: pip install pytest")
    command = [sys.executable, "-m", "pytest", *pytest_options, "tests"]
    done = subprocess.run(command, cwd=folder, check=False)
    if done.returncode:
        raise Exit(EXIT_REFUSED)


def _load(folder: Path, pairs: tuple[str, ...]) -> "Defined":
    try:
        from headrace.spark.pipelines.definition import load  # noqa: PLC0415  needs Spark
    except ImportError:
        usage_error("pipelines need Spark: pip install 'headrace[spark]'")
    return load(folder, parse_pairs(pairs, "--set"))


class _stopping:  # noqa: N801  used as a function
    """Stop a run on Ctrl-C and SIGTERM instead of ending the process."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop = stop
        self._before: dict[int, Any] = {}

    def __enter__(self) -> None:
        for each in (signal.SIGINT, signal.SIGTERM):
            self._before[each] = signal.signal(each, lambda *_: self._stop())

    def __exit__(self, *exception: object) -> None:
        for each, handler in self._before.items():
            signal.signal(each, handler)
