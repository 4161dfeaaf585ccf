"""`headrace up`: a node in this process, until it is stopped."""

import asyncio
import logging
import os
import signal
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click
from click.exceptions import Exit

from headrace import config
from headrace.cli.log_lines import write_log_lines
from headrace.cli.memory import keep_large_blocks, settle_collector
from headrace.cli.options import FilePath
from headrace.cli.running import usage_error
from headrace.cli.streams import discard_output, tell
from headrace.config import InvalidSetting, Settings, load_settings
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.node.node import Node
    from headrace.web.server import WebServer

EXIT_CANNOT_START = 1
NODES_MAX = 64
"""The most nodes of --nodes."""


class NodeFailed(HeadraceError):
    """A node that stopped because of an error."""


logger = logging.getLogger(__name__)


@click.command()
@click.option(
    "--data",
    type=FilePath(),
    help="The data directory; created if missing.",
)
@click.option("--listen", help="HOST:PORT for clients; port 0 picks a free one.")
@click.option("--node-listen", help="HOST:PORT for other nodes; port 0 picks a free one.")
@click.option("--seeds", help="HOST:PORT,... of the nodes that form the cluster: their node ports.")
@click.option(
    "--config",
    "config_file",
    type=FilePath(),
    help="A server.properties or a TOML file.",
)
@click.option(
    "--nodes",
    type=click.IntRange(1, NODES_MAX),
    help="Start so many nodes on this machine, on ports 100 apart; with --seeds they join others.",
)
@click.option("--set", "pairs", multiple=True, help="key=value, by Kafka's names; repeatable.")
def up(  # noqa: PLR0917  one for each option
    data: Path | None,
    listen: str | None,
    node_listen: str | None,
    seeds: str | None,
    config_file: Path | None,
    nodes: int | None,
    pairs: tuple[str, ...],
) -> None:
    """Start a node: clients on 127.0.0.1:9092, HTTP on 9094, data in ./headrace-data.

    With --seeds it forms a cluster with the nodes there, or joins theirs. With --nodes it starts
    several processes, each with a folder in the data directory, and a Ctrl-C stops them all.
    """
    given = {
        config.LOG_DIRS.name: None if data is None else str(data),
        config.LISTENERS.name: None if listen is None else f"PLAINTEXT://{listen}",
        config.NODE_LISTEN.name: node_listen,
        config.SEEDS.name: seeds,
    }
    try:
        settings = load_settings(config_file, os.environ, _overrides(given, pairs))
    except InvalidSetting as error:
        usage_error(str(error))
    except OSError as error:
        _give_up(_described(error))
    if nodes is not None:
        _run_several(settings, nodes, config_file, pairs)
        return
    write_log_lines(as_json=settings[config.LOG_FORMAT] == "json")
    for note in settings.notes:
        logger.warning("%s", note)
    keep_large_blocks()
    import uvloop  # noqa: PLC0415  only this command needs it

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run(settings))
    except HeadraceError as error:
        _give_up(str(error))
    except OSError as error:
        _give_up(_described(error))


def _run_several(
    settings: Settings, count: int, config_file: Path | None, pairs: tuple[str, ...]
) -> None:
    """Run a cluster on this machine; every node reads the same file and options."""
    from headrace.cli.several_nodes import SeveralNodes, plan_nodes  # noqa: PLC0415  rare

    try:
        plans = plan_nodes(settings, count)
    except InvalidSetting as error:
        usage_error(str(error))
    arguments = [] if config_file is None else ["--config", str(config_file)]
    arguments += [word for pair in pairs for word in ("--set", pair)]
    if not asyncio.run(SeveralNodes(plans, arguments).run()):
        raise Exit(EXIT_CANNOT_START)


async def _run(settings: Settings) -> None:
    from headrace.node.node import Node  # noqa: PLC0415  after logging is set up

    settle_collector()
    node = Node(settings)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    starting = asyncio.ensure_future(_start(node, stopping))
    web = await _serve_pages(node, starting)
    try:
        if not await starting:
            return
        await _serve(node, stopping)
    finally:
        if web is not None:
            await web.stop()


async def _serve_pages(node: "Node", starting: "asyncio.Future[bool]") -> "WebServer | None":
    """Serve HTTP as soon as the node has its folder and ports: it may wait for its cluster."""
    if not node.settings[config.HTTP_LISTEN]:
        return None
    opened: asyncio.Future[bool] = asyncio.ensure_future(node.opened.wait())
    await asyncio.wait({starting, opened}, return_when=asyncio.FIRST_COMPLETED)
    opened.cancel()
    if not node.opened.is_set():
        return None
    from headrace.web.server import WebServer  # noqa: PLC0415  heavy, and may be off

    web = WebServer(node)
    try:
        port = await web.start()
    except BaseException:
        await _end_start(node, starting)
        raise
    _announce(f"http on port {port}: /healthz /readyz /metrics")
    return web


async def _end_start(node: "Node", starting: "asyncio.Future[bool]") -> None:
    """Stop a node that has started, or let it not start."""
    starting.cancel()
    await asyncio.wait({starting})
    if not starting.cancelled() and starting.exception() is None and starting.result():
        await node.stop()


async def _serve(node: "Node", stopping: asyncio.Event) -> None:
    """Announce the ports, and serve until the node is to stop or fails."""
    from headrace.node.apis import load_handlers  # noqa: PLC0415  loaded with the node

    for listener in node.listeners:
        _announce(f"listening on {listener.host}:{listener.port} ({listener.name})")
    _announce(f"node port {node.node_port}")
    # A first OffsetCommit would import for a tenth of a second, while all other clients wait.
    asyncio.get_running_loop().run_in_executor(None, load_handlers)
    failure = await _wait_for_end(node, stopping)
    await node.stop()
    if node.decommissioned.is_set():
        from headrace.cli.several_nodes import DECOMMISSIONED  # noqa: PLC0415  rare

        _announce(f"node {node.node_id} {DECOMMISSIONED}: it can be switched off")
    if failure is not None:
        raise NodeFailed(f"the metadata log has failed, so the node has stopped: {failure}")


async def _start(node: "Node", stopping: asyncio.Event) -> bool:
    """Start a node, which may wait for its cluster; return whether it was not told to stop."""
    starting = asyncio.ensure_future(node.start())
    told = asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait({starting, told}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            return True
    finally:
        told.cancel()
        if not starting.done():
            starting.cancel()
            await asyncio.wait({starting})
    return False


def _announce(text: str) -> None:
    """Print a line that scripts wait for; the node serves even if it cannot be printed."""
    try:
        print(text, flush=True)
    except OSError as error:
        logger.warning("%s (standard output cannot be written: %s)", text, error.strerror)
        discard_output()


async def _wait_for_end(node: "Node", stopping: asyncio.Event) -> str | None:
    """Return when the node is told to stop or has left, or with the error if it cannot go on."""
    told = asyncio.ensure_future(stopping.wait())
    left = asyncio.ensure_future(node.decommissioned.wait())
    failed = asyncio.ensure_future(node.broker.quorum.driver.wait_stopped())
    await asyncio.wait({told, left, failed}, return_when=asyncio.FIRST_COMPLETED)
    is_wanted = told.done() or left.done()
    failure = failed.result() if failed.done() and not is_wanted else None
    for each in (told, left, failed):
        each.cancel()
    return failure


def _overrides(given: Mapping[str, str | None], pairs: Iterable[str]) -> dict[str, str]:
    overrides = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator:
            raise InvalidSetting(f"--set {pair}: write it as key=value")
        overrides[name.strip()] = value.strip()
    overrides |= {name: text for name, text in given.items() if text is not None}
    return overrides


def _described(error: OSError) -> str:
    """Return the message of an error; of one about a file, without the number."""
    return str(error) if error.filename is None else f"{error.filename}: {error.strerror}"


def _give_up(message: str) -> NoReturn:
    tell(f"headrace: {message}")
    raise Exit(EXIT_CANNOT_START)
