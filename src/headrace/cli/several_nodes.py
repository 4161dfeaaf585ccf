"""`headrace up --nodes N`: a cluster of node processes on this machine, under one Ctrl-C.

Node i listens for clients at the base port + 100 * (i - 1), for nodes at the port behind that, and
for HTTP at the one behind that: 9092, 9093, 9094; 9192, 9193, 9194; and so on. Its data is in
`DATA/node-i`.

On several machines: `--node-listen` is the node port of the first node here, which others reach,
`--seeds` the list for all machines, and `node.id` the first id here, different on each machine.
"""

import asyncio
import contextlib
import re
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from headrace import config
from headrace.cli.printable import printable_text
from headrace.cli.streams import tell
from headrace.config import InvalidSetting, Setting, Settings, Source
from headrace.log.checkpoints import META_PROPERTIES
from headrace.server.listeners import parse_listener

PORTS_APART: Final = 100
LOOPBACK: Final = "127.0.0.1"
STOP_SECONDS_MAX: Final = 30.0
"""How long nodes have to stop before they are killed."""
LINE_BYTES_MAX: Final = 1024 * 1024
_OWN: Final = (
    config.CONTROLLER_QUORUM_BOOTSTRAP_SERVERS,
    config.NODE_ADVERTISED,
    config.NODE_FETCH_PORT,
    config.HTTP_LISTEN,
    config.ADVERTISED_LISTENERS,
)
"""Settings that differ between the nodes, so that one value for all makes no sense."""
DECOMMISSIONED: Final = "was decommissioned"
"""What a node says that has left its cluster, and ends."""
_LISTENING: Final = re.compile(r"listening on (\S+:\d+) ")


def plan_nodes(settings: Settings, count: int) -> list[dict[str, str]]:
    """Return the settings of each node that differ; InvalidSetting if they cannot be."""
    for setting in _OWN:
        is_off = setting is config.HTTP_LISTEN and not settings[config.HTTP_LISTEN]
        if settings.source(setting.name) is not Source.DEFAULT and not is_off:
            raise InvalidSetting(
                f"{setting.name}: every node has its own, so it cannot be set with --nodes"
            )
    listeners = settings[config.LISTENERS]
    if len(listeners) != 1:
        raise InvalidSetting(f"{config.LISTENERS.name}: must be one address with --nodes")
    base = parse_listener(listeners[0])
    if base.port and base.port + PORTS_APART * (count - 1) + 2 > 65_535:
        raise InvalidSetting(
            f"{config.LISTENERS.name}: there are no {count} ports above {base.port}"
        )
    first = settings[config.NODE_ID] if _is_given(settings, config.NODE_ID) else 1
    numbers = range(first, first + count)
    node_host, first_node_port = _node_address(settings, base.port, count)
    data = Path(settings.data_folder)
    _check_folder(data, numbers)
    host = f"[{base.host}]" if ":" in base.host else base.host
    has_http = bool(settings[config.HTTP_LISTEN])
    plans = []
    for place, number in enumerate(numbers):
        port = base.port + PORTS_APART * place if base.port else 0
        node_port = first_node_port + PORTS_APART * place if first_node_port else _free_port()
        http_port = port + 2 if port else 0
        plans.append(
            {
                config.NODE_ID.name: str(number),
                config.LOG_DIRS.name: str(data / f"node-{number}"),
                config.LISTENERS.name: f"{base.name}://{host}:{port}",
                config.NODE_LISTEN.name: f"{node_host}:{node_port}",
                config.HTTP_LISTEN.name: f"127.0.0.1:{http_port}" if has_http else "",
            }
        )
    here = tuple(plan[config.NODE_LISTEN.name] for plan in plans)
    given = settings[config.SEEDS]
    seeds = ",".join(given or here)
    return [{**plan, config.SEEDS.name: seeds} for plan in plans]


def _node_address(settings: Settings, base_port: int, count: int) -> tuple[str, int]:
    """Return the host of all node ports, and the first port, zero for free ones."""
    if not _is_given(settings, config.NODE_LISTEN):
        if settings[config.SEEDS]:
            raise InvalidSetting(
                f"{config.SEEDS.name}: nodes of other machines must reach the nodes here: set "
                f"{config.NODE_LISTEN.name} to the HOST:PORT of the first one, too"
            )
        return LOOPBACK, base_port + 1 if base_port else 0
    host, _, text = settings[config.NODE_LISTEN].rpartition(":")
    port = int(text)
    if port == 0:
        raise InvalidSetting(f"{config.NODE_LISTEN.name}: must have a port with --nodes")
    if port + PORTS_APART * (count - 1) > 65_535:
        raise InvalidSetting(f"{config.NODE_LISTEN.name}: there are no {count} ports above {port}")
    if base_port and (port - base_port) % PORTS_APART in (0, 2):
        raise InvalidSetting(
            f"{config.NODE_LISTEN.name}: port {port} meets the ports for clients or HTTP, which "
            f"are {PORTS_APART} apart, too: take {base_port + 1}"
        )
    return host, port


def _is_given(settings: Settings, setting: Setting[Any]) -> bool:
    return settings.source(setting.name) is not Source.DEFAULT


def _check_folder(data: Path, numbers: range) -> None:
    if (data / META_PROPERTIES).exists():
        raise InvalidSetting(
            f"--data {data}: it is the data directory of a single node; choose another one"
        )
    left_out = [
        each.name
        for each in sorted(data.glob("node-*"))
        if each.name.removeprefix("node-").isdecimal()
        and int(each.name.removeprefix("node-")) not in numbers
    ]
    if left_out:
        tell(
            f"headrace: {', '.join(left_out)} in {data} will not run, as --nodes is {len(numbers)}"
        )


def _free_port() -> int:
    """Return a port of loopback that is free for both TCP and UDP."""
    while True:
        with socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
            tcp.bind(("127.0.0.1", 0))
            port = int(tcp.getsockname()[1])
            try:
                udp.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


class SeveralNodes:
    """The node processes, and what they say."""

    def __init__(self, plans: list[dict[str, str]], arguments: list[str]) -> None:
        """`arguments` of `headrace up` are for all nodes."""
        self._plans = plans
        self._arguments = arguments
        self._addresses: dict[int, str] = {}
        self._stopping = asyncio.Event()
        self._has_failed = False
        self._decommissioned: set[int] = set()

    async def run(self) -> bool:
        """Run until told to stop, or until no node is left; return whether all went well."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        running = [
            asyncio.ensure_future(self._run(int(plan[config.NODE_ID.name]), plan))
            for plan in self._plans
        ]
        await asyncio.gather(*running)
        return not self._has_failed

    async def _run(self, number: int, plan: Mapping[str, str]) -> None:
        pairs = [word for name, value in plan.items() for word in ("--set", f"{name}={value}")]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "headrace", "up", *self._arguments, *pairs),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
            limit=LINE_BYTES_MAX,
            process_group=0,  # Ctrl-C comes here first, and then to each node once
        )
        assert process.stdout is not None
        assert process.stderr is not None
        copying = asyncio.gather(
            self._copy(number, process.stdout, is_error=False),
            self._copy(number, process.stderr, is_error=True),
        )
        status = await self._wait(number, process)
        await copying
        if status != 0:
            self._has_failed = True
            tell(f"headrace: node {number} has ended with {_status(status)}")
        elif number in self._decommissioned:
            tell(f"headrace: node {number} has left the cluster; the others go on")
        elif not self._stopping.is_set():
            self._has_failed = True
            tell(f"headrace: node {number} has stopped; the others go on")

    async def _wait(self, number: int, process: Process) -> int:
        """Return the exit status; once told to stop, pass it on and wait, but not for ever."""
        ended = asyncio.ensure_future(process.wait())
        told = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait({ended, told}, return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
        if ended.done():
            return ended.result()
        process.terminate()
        await asyncio.wait({ended}, timeout=STOP_SECONDS_MAX)
        if not ended.done():
            tell(f"headrace: node {number} does not stop and is killed")
            process.kill()
            await ended
            return -signal.SIGKILL
        status = ended.result()
        # It may not have come to the point where it takes signals.
        return 0 if status == -signal.SIGTERM else status

    async def _copy(self, number: int, lines: asyncio.StreamReader, *, is_error: bool) -> None:
        while True:
            try:
                line = await lines.readline()
            except ValueError:  # a line that is too long, of which a part was dropped
                continue
            if not line:
                return
            text = line.decode(errors="replace").rstrip("\n")
            _write(f"node-{number} | {text}", is_error=is_error)
            if text.startswith(f"node {number} {DECOMMISSIONED}"):
                self._decommissioned.add(number)
            if number not in self._addresses and (found := _LISTENING.search(text)):
                self._addresses[number] = found[1]
                if len(self._addresses) == len(self._plans):
                    bootstrap = ",".join(each for _, each in sorted(self._addresses.items()))
                    _write(f"{len(self._plans)} nodes serve: {bootstrap}")


def _write(text: str, *, is_error: bool = False) -> None:
    """Print a line; the nodes run on if that is not possible."""
    with contextlib.suppress(OSError, ValueError):
        print(printable_text(text), file=sys.stderr if is_error else sys.stdout, flush=True)


def _status(status: int) -> str:
    if status < 0:
        return f"signal {signal.Signals(-status).name}; the others go on"
    return f"exit code {status}; the others go on"
