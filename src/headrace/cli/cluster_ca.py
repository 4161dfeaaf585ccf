"""`headrace cluster ca`: the CA that signs the certificates of nodes, and its replacement."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from headrace.cli.node_calls import (
    NodeCalls,
    ask_all,
    node_option,
    parse_nodes,
    read_secret_file,
    secret_option,
)
from headrace.cli.options import CommandGroup, json_option
from headrace.cli.output import print_json, print_table
from headrace.cli.running import complete
from headrace.cli.streams import say, tell
from headrace.client.errors import NotReachable
from headrace.cluster import operator_words as words
from headrace.errors import ErrorCode, KafkaError

SHOWN_BYTES: Final = 8
POLL_SECONDS: Final = 0.5


@click.group(cls=CommandGroup)
def ca() -> None:
    """The CA that signs the certificates of nodes, where they speak TLS to each other."""


@ca.command()
@json_option
@node_option
@secret_option
def show(*, as_json: bool, node: str, secret_file: Path | None) -> None:
    """Show the CAs that nodes trust, with their pins, and the certificate of each node."""

    async def work() -> words.Response:
        async with NodeCalls(read_secret_file(secret_file)) as calls:
            return await calls.ask_any(parse_nodes(node), words.ShowCa())

    _print(complete(work()), as_json=as_json)


@ca.command()
@json_option
@node_option
@secret_option
def rotate(*, as_json: bool, node: str, secret_file: Path | None) -> None:
    """Replace the CA: a new one signs the certificates of all nodes, then the old one is dropped.

    Returns when that is done. It is the cluster that does it, so it goes on if this command is
    stopped, and running it again waits for the rest. Every node has to be up.
    """

    async def work() -> words.Response:
        async with NodeCalls(read_secret_file(secret_file)) as calls:
            addresses = parse_nodes(node)
            shown = await _begin(calls, addresses)
            told: tuple[str, ...] = ()
            while isinstance(shown, words.Ca) and len(shown.authorities) > 1:
                if shown.waiting != told:
                    told = shown.waiting
                    tell("; ".join(told))
                await asyncio.sleep(POLL_SECONDS)
                try:
                    shown = await calls.ask_any(addresses, words.ShowCa())
                except (NotReachable, KafkaError) as error:
                    tell(f"waiting: {error}")
            return shown

    _print(complete(work()), as_json=as_json)


async def _begin(calls: NodeCalls, addresses: list[str]) -> words.Response:
    """Ask the controller, which may be another one than a moment ago."""
    views = await ask_all(calls, addresses)
    leading = [each.address for each in views.seen.values() if each.is_controller]
    if not leading:
        raise KafkaError(
            ErrorCode.NOT_CONTROLLER,
            "no node that can be asked leads the metadata log: `headrace quorum explain` says why",
        )
    return await calls.ask(leading[-1], words.RotateCa())


def _print(shown: words.Response, *, as_json: bool) -> None:
    if not isinstance(shown, words.Ca):
        return
    if as_json:
        print_json(
            {
                "authorities": [
                    {
                        "fingerprint": each.fingerprint.hex(),
                        "pin": each.pin,
                        "begins_at_ms": each.begins_s * 1000,
                        "expires_at_ms": each.expires_s * 1000,
                    }
                    for each in shown.authorities
                ],
                "nodes": [
                    {
                        "node_id": each.node,
                        "signed_by": each.signer.hex() or None,
                        "expires_at_ms": each.expires_s * 1000 or None,
                        "has_key": each.has_key,
                    }
                    for each in shown.nodes
                ],
                "waiting": list(shown.waiting),
            }
        )
        return
    print_table(
        ("fingerprint", "expires", "pin"),
        [
            (each.fingerprint[:SHOWN_BYTES].hex(), _time(each.expires_s), each.pin)
            for each in shown.authorities
        ],
    )
    say("")
    print_table(
        ("node", "signed by", "expires", "has the CA's key"),
        [
            (
                each.node,
                each.signer[:SHOWN_BYTES].hex() or None,
                _time(each.expires_s) if each.expires_s else None,
                "yes" if each.has_key else None,
            )
            for each in shown.nodes
        ],
    )
    for reason in shown.waiting:
        say(f"the CA is being replaced: {reason}")


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(" ")
