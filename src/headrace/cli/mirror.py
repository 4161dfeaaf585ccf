"""`headrace mirror`: topics of any Kafka cluster, with their offsets, and positions of groups."""

import time
from typing import Final

import click
from click.exceptions import Exit

from headrace.cli.mirror_options import (
    ByteRate,
    Config,
    choice_options,
    cluster_options,
    group_choice,
    groups_option,
    need_clusters,
    topic_choice,
)
from headrace.cli.mirror_views import promote, status, verify
from headrace.cli.options import CommandGroup, json_option, parse_pairs
from headrace.cli.output import print_json
from headrace.cli.printable import printable
from headrace.cli.running import EXIT_REFUSED, complete, usage_error
from headrace.cli.streams import say, tell
from headrace.client.mirror.mirror import Mirror, MirrorOptions
from headrace.client.mirror.progress import Phase
from headrace.client.topics import BROKERS_DEFAULT

REPORT_SECONDS: Final = 5.0


@click.group(cls=CommandGroup, invoke_without_command=True)
@cluster_options
@choice_options
@groups_option
@click.option("--once", is_flag=True, help="End when all is copied that the source has now.")
@click.option("--rate", type=ByteRate(), metavar="BYTES/S", help="At most so much, as in 20M.")
@click.option(
    "--topic-config",
    "-c",
    "pairs",
    metavar="KEY=VALUE",
    multiple=True,
    help="A config of all mirrors, instead of the source's.",
)
@click.option("--replication-factor", "-r", type=int, help="Of new topics. Default: the broker's.")
@click.option("--skip-lost", is_flag=True, help="Go on behind records deleted before the copy.")
@click.option("--force-groups", is_flag=True, help="Move positions of groups back, too.")
@click.option("--dry-run", is_flag=True, help="Show what would be created and copied.")
@json_option
@click.pass_context
def mirror(  # noqa: PLR0913  an option each
    ctx: click.Context,
    *,
    source: str | None,
    target: str | None,
    from_config: Config,
    to_config: Config,
    wanted: tuple[str, ...],
    excluded: tuple[str, ...],
    groups: tuple[str, ...],
    once: bool,
    rate: int | None,
    pairs: tuple[str, ...],
    replication_factor: int | None,
    skip_lost: bool,
    force_groups: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Copy topics of a Kafka cluster with offsets, configs and positions of groups.

    Runs until it is stopped, or with --once until all is copied. It may be stopped or killed at any
    time and started again: it goes on where the target ends. Mirrors take no records of producers
    until they are promoted.
    """
    if ctx.invoked_subcommand is not None:
        if source or target:
            usage_error(f"write the options behind `{ctx.invoked_subcommand}`")
        return
    here, there = need_clusters(source, from_config, target, to_config)
    options = MirrorOptions(
        topics=topic_choice(wanted, excluded),
        groups=group_choice(groups),
        configs=parse_pairs(pairs, "--topic-config"),
        replication_factor=BROKERS_DEFAULT if replication_factor is None else replication_factor,
        bytes_per_second=rate,
        skips_lost=skip_lost,
        moves_groups_back=force_groups,
        is_dry_run=dry_run,
    )

    async def work() -> bool:
        running = Mirror(
            here.bootstrap,
            there.bootstrap,
            options,
            source_settings=here.settings,
            target_settings=there.settings,
        )
        async with running:
            reports = Reports(running, as_json=as_json)
            if dry_run:
                await running.refresh_topics()
                reports.print_plan()
            elif once:
                await running.run_once(reports.on_progress)
                reports.print_now()
            else:
                await running.run(reports.on_progress)
            return not any(copy.phase is Phase.HALTED for copy in running.copies) and not any(
                topic.problem for topic in running.topics
            )

    if not complete(work(), is_busy=True):
        raise Exit(EXIT_REFUSED)


mirror.add_command(status)
mirror.add_command(verify)
mirror.add_command(promote)


class Reports:
    """What a running mirror prints: a line from time to time, and each problem once."""

    def __init__(self, running: Mirror, *, as_json: bool) -> None:
        self._mirror = running
        self._as_json = as_json
        self._printed_at = time.monotonic()
        self._printed_bytes = 0
        self._told: dict[str, str] = {}
        self._noted: set[str] = set()

    def on_progress(self) -> None:
        self._tell_problems()
        if time.monotonic() - self._printed_at >= REPORT_SECONDS:
            self.print_now()

    def print_now(self) -> None:
        """Print how far the mirror is."""
        self._tell_problems()
        copies, now = self._mirror.copies, time.monotonic()
        copied = sum(copy.copied_bytes for copy in copies)
        seconds = max(now - self._printed_at, 0.001)
        rate = int((copied - self._printed_bytes) / seconds)
        self._printed_at, self._printed_bytes = now, copied
        halted = sum(copy.phase is Phase.HALTED for copy in copies)
        lag = sum(copy.lag for copy in copies)
        if self._as_json:
            print_json(
                {
                    "partitions": len(copies),
                    "halted": halted,
                    "lag": lag,
                    "copied_bytes": copied,
                    "bytes_per_second": rate,
                    "groups": len(self._mirror.groups),
                    "problems": self._told,
                }
            )
            return
        say(
            f"{len(copies)} partitions, {halted} halted, {lag} offsets behind; copied "
            f"{copied / 1e6:.1f} MB ({rate / 1e6:.1f} MB/s), {len(self._mirror.groups)} groups"
        )

    def print_plan(self) -> None:
        """Print what would be done."""
        if self._as_json:
            print_json(self._mirror.topics)
            return
        for topic in self._mirror.topics:
            what = topic.problem or "; ".join(topic.notes) or "nothing to change"
            say(printable(f"{topic.name}: {what}"))
        say("not copied: ACLs, quotas, users, share and streams groups, transactional ids")

    def _tell_problems(self) -> None:
        """Print what was done to topics, and to standard error problems, each once."""
        found = {topic.name: topic.problem for topic in self._mirror.topics if topic.problem}
        found |= {
            str(copy.partition): copy.problem
            for copy in self._mirror.copies
            if copy.problem and copy.partition.topic not in found
        }
        found |= {
            f"group {group.group_id}": group.problem
            for group in self._mirror.groups
            if group.problem
        }
        if self._mirror.trouble:
            found["comparison of topics and groups"] = self._mirror.trouble
        if not self._as_json:
            for topic in self._mirror.topics:
                for note in topic.notes:
                    if (line := f"{topic.name}: {note}") not in self._noted:
                        self._noted.add(line)
                        say(printable(line))
        for name, problem in found.items():
            if self._told.get(name) != problem:
                tell(f"headrace: {printable(name)}: {printable(problem)}")
        self._told = found
