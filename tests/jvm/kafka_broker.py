"""Apache Kafka itself, as a process of its own: one node, in a folder, on loopback."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tools.jvm.harness import JVM_OPTIONS, jars
from tools.ports import free_port

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
START_SECONDS_MAX = 120
STOP_SECONDS_MAX = 60
POLL_SECONDS = 0.05


@contextmanager
def kafka(
    folder: Path,
    *,
    is_killed: bool = False,
    extra: Mapping[str, str] | None = None,
    port: int = 0,
    more_jars: Path | None = None,
    more_listeners: Mapping[str, int] | None = None,
    format_options: Sequence[str] = (),
    java_options: Sequence[str] = (),
) -> Iterator[str]:
    """Run a broker on the folder, formatted if it is new; give its address.

    At the end it is stopped cleanly, or killed as a crash does. `extra` has more of its settings.
    `port` 0 takes a free one; a broker that is to come back under the same address names it.
    `more_jars` is a folder of jars besides Kafka's. `more_listeners` has names and ports of further
    listeners, `format_options` is for StorageTool.
    """
    settings = folder.with_name(f"{folder.name}.properties")
    more = "\n".join(f"{name}={value}" for name, value in (extra or {}).items())
    port = port or free_port()
    controller_port = free_port()
    others = "".join(
        f",{name}://127.0.0.1:{number}" for name, number in (more_listeners or {}).items()
    )
    settings.write_text(
        f"""
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}{others}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}{others}
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:{controller_port}
log.dirs={folder}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
{more}
"""
    )
    if not folder.exists():
        _java(
            *("kafka.tools.StorageTool", "format", "--standalone", "-t", CLUSTER_ID),
            *("-c", settings, *format_options),
        )
    output = folder.with_name(f"{folder.name}.out")
    with output.open("ab") as file:
        broker = subprocess.Popen(
            [*_command("kafka.Kafka", more_jars, java_options), str(settings)],
            stdout=file,
            stderr=file,
        )
    try:
        _wait_for(port, broker, output)
        yield f"127.0.0.1:{port}"
        broker.send_signal(signal.SIGKILL if is_killed else signal.SIGTERM)
        broker.wait(STOP_SECONDS_MAX)
    finally:
        if broker.poll() is None:
            broker.kill()
            broker.wait(STOP_SECONDS_MAX)


def _command(
    main: str, more_jars: Path | None = None, java_options: Sequence[str] = ()
) -> list[str]:
    folders = [jars(), *([] if more_jars is None else [more_jars])]
    path = os.pathsep.join(f"{folder}{os.sep}*" for folder in folders)
    return ["java", *JVM_OPTIONS, *java_options, "-cp", path, main]


def _java(main: str, *arguments: object) -> None:
    done = subprocess.run(
        [*_command(main), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=START_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _wait_for(port: int, broker: "subprocess.Popen[bytes]", output: Path) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        assert broker.poll() is None, output.read_text()[-4000:]
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(POLL_SECONDS)  # polls, up to the deadline
    raise AssertionError(f"Kafka did not listen on port {port}:\n{output.read_text()[-4000:]}")
