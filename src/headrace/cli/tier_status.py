"""`headrace tier status` and `headrace tier cost`: what the nodes say of their tier."""

from pathlib import Path

import click
import msgspec

from headrace.cli.client_config import client_settings
from headrace.cli.options import FilePath, bootstrap_option, json_option
from headrace.cli.output import print_json, print_table
from headrace.cli.running import complete, usage_error
from headrace.cli.streams import say
from headrace.client.cluster import Cluster
from headrace.client.node_pages import NoPage, Pages, find_page, get_page, pages_at
from headrace.remote.prices import PRICES, CostRow, Prices, cost_of
from headrace.remote.tier_status import PATH, TierStatus, leaders_first

http_option = click.option(
    "--http",
    metavar="HOST:PORT",
    envvar="HEADRACE_HTTP",
    show_envvar=True,
    help="The HTTP port of one node; https://HOST:PORT with TLS.  [default: those of all nodes]",
)


@click.command()
@click.option("--topic", metavar="NAME", help="Only this topic's partitions.")
@http_option
@json_option
@bootstrap_option
def status(topic: str | None, *, http: str | None, as_json: bool, bootstrap: str) -> None:
    """Show what is in the tier: lag, bytes here and there, rates, errors.

    Of each partition its leader's word counts.
    """
    found = _ask(http, bootstrap)
    rows = [
        (node, row) for node, row in leaders_first(found) if topic is None or row.topic == topic
    ]
    if as_json:
        print_json({"nodes": found, "partitions": [row for _, row in rows]})
        return
    print_table(
        (
            *("topic", "partition", "leader", "start", "local start", "tier end", "end"),
            *("tier segments", "tier bytes", "local bytes", "lag segments", "lag bytes", "state"),
        ),
        [
            (
                row.topic,
                row.partition,
                node if row.is_leader else None,
                row.start_offset,
                row.local_start_offset,
                row.remote_end_offset,
                row.end_offset,
                row.remote_segments,
                row.remote_bytes,
                row.local_bytes,
                row.lag_segments,
                row.lag_bytes,
                _state(row.is_ready, row.is_copying, row.problem),
            )
            for node, row in rows
        ],
        title="partitions",
    )
    _print_nodes(found)


def _print_nodes(found: list[TierStatus]) -> None:
    print_table(
        (
            *("node", "store", "copied", "copied bytes/s", "copy errors", "read", "read bytes/s"),
            *("read errors", "deleted", "delete errors", "store errors"),
        ),
        [
            (
                each.node,
                each.store,
                each.copied.requests,
                _per_second(each.copied.bytes, each.uptime_ms),
                each.copied.errors,
                each.fetched.requests,
                _per_second(each.fetched.bytes, each.uptime_ms),
                each.fetched.errors,
                each.deleted.requests,
                each.deleted.errors,
                each.store_errors,
            )
            for each in found
        ],
        title="nodes, since their start",
    )
    for each in found:
        for problem in each.problems:
            say(f"node {each.node}: {problem}")


@click.command()
@click.option(
    "--prices",
    metavar="NAME|FILE",
    default=None,
    help=f"One of {', '.join(PRICES)}, or a TOML file with the fields of one."
    "  [default: by the store]",
)
@http_option
@json_option
@bootstrap_option
def cost(prices: str | None, *, http: str | None, as_json: bool, bootstrap: str) -> None:
    """Show what the tier costs: requests and bytes against a table of prices.

    Requests are counted since the nodes started, and stretched to a month.
    """
    found = _ask(http, bootstrap)
    table = _prices(prices, found[0].store)
    rows = cost_of(found, table)
    if as_json:
        print_json({"prices": table, "rows": [row._asdict() for row in rows]})
        return
    print_table(
        ("what", "amount", "unit", "dollars so far", "dollars per month"),
        [_cost_cells(row) for row in rows],
        title="the tier",
    )
    say(f"per month in all: {sum(row.per_month for row in rows):.2f} dollars")


def _ask(http: str | None, bootstrap: str) -> list[TierStatus]:
    """Return what one node says, or all that have a tier; NoPage if none has."""
    if http is not None:
        return [_read(pages_at(http, client_settings().security))]

    async def work() -> list[Pages]:
        async with Cluster(bootstrap, client_settings()) as cluster:
            return [await find_page(cluster, node) for node in sorted(cluster.view.nodes)]

    found, refusals = [], []
    for pages in complete(work()):
        try:
            found.append(_read(pages))
        except NoPage as refusal:
            refusals.append(refusal)
    if not found:
        raise refusals[0]
    return found


def _read(pages: Pages) -> TierStatus:
    page = get_page(pages, PATH)
    try:
        return msgspec.json.decode(page, type=TierStatus)
    except msgspec.MsgspecError:
        raise NoPage(f"{pages} returned another page; is it Headrace?") from None


def _prices(given: str | None, store: str) -> Prices:
    if given is None:
        return PRICES.get(store.partition("://")[0], PRICES["free"])
    if given in PRICES:
        return PRICES[given]
    path = Path(FilePath().convert(given, None, None))
    try:
        return msgspec.toml.decode(path.read_bytes(), type=Prices)
    except OSError as error:
        usage_error(f"--prices {given}: neither one of {', '.join(PRICES)} nor a file ({error})")
    except msgspec.MsgspecError as error:
        usage_error(f"--prices {given}: {error}")


def _cost_cells(row: CostRow) -> tuple[object, ...]:
    amount = f"{row.amount:.0f}" if row.unit == "requests" else f"{row.amount:.3f}"
    so_far = None if row.so_far is None else f"{row.so_far:.4f}"
    return row.what, amount, row.unit, so_far, f"{row.per_month:.2f}"


def _state(is_ready: bool, is_copying: bool, problem: str | None) -> str:
    if problem is not None:
        return problem
    if not is_ready:
        return "not ready"
    return "copying" if is_copying else "ok"


def _per_second(byte_count: int, uptime_ms: int) -> int:
    return byte_count * 1000 // max(uptime_ms, 1)
