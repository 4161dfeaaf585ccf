"""Whether the copies of a partition are the same: by their bytes, by Kafka's tools and by ours."""

import re
from pathlib import Path

from click.testing import CliRunner

from headrace.cli.program import headrace
from tests.jvm.kafka_tools import TOOLS, run_well, running_tool
from tests.jvm.replicated_nodes import NODES, ReplicatedNodes
from tests.process_cluster import wait_for


def batches_of(folder: Path) -> tuple[list[str], str]:
    """Return what Kafka's tool and ours print of a partition's segments."""
    files = sorted(map(str, folder.glob("*.log")))
    theirs = run_well(f"{TOOLS}.DumpLogSegments", "--print-data-log", "--files", ",".join(files))
    assert not re.search("invalid|corrupt|isvalid: false", theirs.stdout)
    lines = [line for line in theirs.lines if not line.startswith("Dumping ")]
    ours = CliRunner().invoke(headrace, ["log", "dump", "--records", "--json", *files])
    assert ours.exit_code == 0, ours.output
    return lines, ours.output.replace(str(folder), "")


def assert_copies_are_the_same(
    cluster: ReplicatedNodes, topic: str, partition: int, nodes: tuple[int, ...] = NODES
) -> None:
    folders = [cluster.folder / str(number) / f"{topic}-{partition}" for number in nodes]

    def contents() -> list[bytes]:
        return [b"".join(f.read_bytes() for f in sorted(d.glob("*.log"))) for d in folders]

    wait_for(lambda: len(set(contents())) == 1, f"equal bytes of {topic}-{partition}")
    assert contents()[0]
    first, *others = map(batches_of, folders)
    for other in others:
        assert other == first


def assert_verification_finds_no_lag(cluster: ReplicatedNodes, topic: str) -> None:
    """Read reports of the tool, which never ends, until it has compared everything."""
    arguments = ("--broker-list", cluster.bootstrap, "--topics-include", topic, "--time", "-2")
    quick = ("--report-interval-ms", "100", "--max-wait-ms", "50")
    nothing = re.compile(r"max lag is 0 for partition .* among 3 partitions")
    with running_tool(f"{TOOLS}.ReplicaVerificationTool", *arguments, *quick) as tool:
        tool.wait_for(lambda: len(list(filter(nothing.search, tool.lines))) >= 3, "three reports")
        found = tool.lines
    assert not [line for line in found if "match" in line]
    reports = [line for line in found if "max lag" in line]
    assert all(map(nothing.search, reports[-2:]))
