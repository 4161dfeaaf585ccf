"""`headrace cluster moves`: partitions that move between nodes, and how a move is undone."""

import asyncio
from pathlib import Path
from typing import Final

import click
import msgspec
from click.exceptions import Exit

from headrace.cli.move_progress import Move, Progress, gather, progress
from headrace.cli.node_calls import (
    VIEW_TIMEOUT_MS,
    NodeCalls,
    ask_all,
    node_option,
    parse_nodes,
    read_secret_file,
    secret_option,
)
from headrace.cli.options import CommandGroup, json_option
from headrace.cli.output import print_json, print_table
from headrace.cli.running import EXIT_REFUSED, complete, usage_error
from headrace.cli.streams import say, tell
from headrace.client.errors import NotReachable
from headrace.cluster import operator_words as words
from headrace.errors import ErrorCode, KafkaError

SAMPLE_SECONDS: Final = 1.0
"""Between the two looks from which rates are taken."""
UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB")
ID_CHARACTERS: Final = 36
SOME_NODES: Final = "some nodes cannot be asked, so figures may be missing: {}"


@click.group(cls=CommandGroup, invoke_without_command=True)
@json_option
@node_option
@secret_option
@click.pass_context
def moves(ctx: click.Context, *, as_json: bool, node: str, secret_file: Path | None) -> None:
    """Show partitions that move between nodes, or undo moves.

    Moves begin with `kafka-reassign-partitions` or an admin client. They go on by themselves after
    a crash of any node, and a stuck one says what it waits for.
    """
    if ctx.invoked_subcommand is None:
        _list(as_json=as_json, node=node, secret_file=secret_file)


@moves.command("list")
@json_option
@node_option
@secret_option
def list_moves(*, as_json: bool, node: str, secret_file: Path | None) -> None:
    """Show each move: phase, bytes, lag, rate, time left, and what it waits for."""
    _list(as_json=as_json, node=node, secret_file=secret_file)


@moves.command()
@click.argument("which", metavar="TOPIC[:PARTITION]|ID")
@json_option
@node_option
@secret_option
def abort(which: str, *, as_json: bool, node: str, secret_file: Path | None) -> None:
    """Undo a move: nodes that come are dropped with their files, nodes that leave stay.

    The former leader leads again. A move past its Cutover is over, and cannot be undone.
    """
    request = _request(which)

    async def work() -> list[words.AbortedRow]:
        async with NodeCalls(read_secret_file(secret_file)) as calls:
            return await _abort_all(calls, parse_nodes(node), request)

    rows = complete(work())
    refused = [row for row in rows if row.refusal]
    if as_json:
        print_json(
            [
                {
                    "topic": row.topic,
                    "partition": row.partition,
                    "aborted": not row.refusal,
                    "reason": row.refusal or None,
                }
                for row in rows
            ]
        )
    else:
        for row in rows:
            say(f"{row.topic}:{row.partition} {row.refusal or 'is aborted'}")
    if refused:
        raise Exit(EXIT_REFUSED)


async def _abort_all(
    calls: NodeCalls, addresses: list[str], request: words.AbortMoves
) -> list[words.AbortedRow]:
    """Ask until nothing is left that can be undone: a node undoes some moves of a topic at a time.

    What was refused comes again with each response, so the last reason counts.
    """
    found: dict[tuple[str, int], words.AbortedRow] = {}
    while True:
        try:
            answer = await calls.ask_any(addresses, request)
        except KafkaError as error:
            if found and error.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS:
                return list(found.values())
            raise
        rows = answer.rows if isinstance(answer, words.Aborted) else ()
        found.update(((row.topic, row.partition), row) for row in rows)
        if len(rows) < words.ABORTED_AT_ONCE or all(row.refusal for row in rows):
            return list(found.values())


def _request(which: str) -> words.AbortMoves:
    if len(which) == ID_CHARACTERS and which.count("-") == 4 and ":" not in which:
        return words.AbortMoves(migration_id=which)
    topic, colon, index = which.rpartition(":")
    if not colon:
        return words.AbortMoves(topic=which)
    if not topic or not index.isdecimal() or len(index) > 10:
        usage_error(f"{which!r}: write it as TOPIC, TOPIC:PARTITION or the id of a move")
    return words.AbortMoves(topic=topic, partition=int(index))


def _list(*, as_json: bool, node: str, secret_file: Path | None) -> None:
    async def work() -> tuple[list[Progress], list[str], bool]:
        async with NodeCalls(read_secret_file(secret_file)) as calls:
            views = await ask_all(calls, parse_nodes(node))
            addresses = [view.address for view in views.seen.values()]
            before, is_complete = await _look(calls, addresses)
            if not before:
                return [], sorted(views.failed), is_complete
            loop = asyncio.get_running_loop()
            begun = loop.time()
            await asyncio.sleep(SAMPLE_SECONDS)
            now, is_complete = await _look(calls, addresses)
            return progress(before, now, loop.time() - begun), sorted(views.failed), is_complete

    rows, failed, is_complete = complete(work())
    if as_json:
        print_json([msgspec.structs.asdict(row) for row in rows])
        return
    if failed:
        tell(SOME_NODES.format(", ".join(failed)))
    if not rows:
        say("no partition is on the move")
        return
    print_table(
        ("partition", "phase", "from", "to", "copied", "of", "lag", "rate", "left", "state", "id"),
        [_cells(row) for row in rows],
    )
    if not is_complete:
        say("there are more moves than these")


async def _look(calls: NodeCalls, addresses: list[str]) -> tuple[dict[tuple[str, int], Move], bool]:
    async def ask(address: str) -> words.Response | None:
        try:
            return await calls.ask(address, words.ListMoves(), VIEW_TIMEOUT_MS)
        except (NotReachable, KafkaError):
            return None

    answers = await asyncio.gather(*map(ask, addresses))
    views = [each for each in answers if isinstance(each, words.Moves)]
    return gather(views), all(each.is_complete for each in views)


def _cells(row: Progress) -> tuple[object, ...]:
    rate = None if row.bytes_per_second is None else f"{_bytes(row.bytes_per_second)}/s"
    return (
        f"{row.topic}:{row.partition}",
        row.phase or None,
        ",".join(map(str, row.source)) or None,
        row.target,
        _bytes(row.copied_bytes),
        _bytes(row.total_bytes),
        row.lag,
        rate,
        _duration(row.seconds_left),
        row.state,
        row.migration_id or None,
    )


def _bytes(count: float | None) -> str | None:
    if count is None:
        return None
    for unit in UNITS:
        if count < 1000 or unit == UNITS[-1]:
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == UNITS[0] else f"{count:.1f} {unit}"


def _duration(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h {minutes}m"
    return f"{minutes}m {rest}s" if minutes else f"{rest}s"
