"""`headrace cluster token`: the tokens with which nodes of other machines join."""

import time
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Final

import click

from headrace.cli.node_calls import (
    NodeCalls,
    node_option,
    parse_nodes,
    read_secret_file,
    secret_option,
)
from headrace.cli.options import CommandGroup, json_option
from headrace.cli.output import print_json, print_table
from headrace.cli.running import complete, usage_error
from headrace.cli.streams import say
from headrace.cli.whole_numbers import whole_number
from headrace.cluster import operator_words as words
from headrace.config import INT32_MAX

UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
EXPIRES_SECONDS_MAX: Final = 366 * 86_400
SHOWN_HASH_BYTES: Final = 8
TOKEN_CHARACTERS: Final = 96
_STATES: Final = {
    "ISSUED": "unused",
    "IN_FLIGHT": "joining",
    "CONSUMED": "used",
    "EXPIRED": "expired",
    "ABORTED": "revoked",
}


@click.group(cls=CommandGroup)
def token() -> None:
    """Manage the tokens with which nodes of other machines join the cluster."""


@token.command()
@click.option(
    "--node-id",
    type=click.IntRange(0, INT32_MAX - 1),
    required=True,
    help="The node.id of the node that is to join.",
)
@click.option("--expires", default="1h", help="How long it is valid: a number and s, m, h or d.")
@json_option
@node_option
@secret_option
def create(
    *, node_id: int, expires: str, as_json: bool, node: str, secret_file: Path | None
) -> None:
    """Print a token with which one node joins, once, and the pin of the CA that it is to trust.

    All lines go into the file that headrace.join.token.file names. There is a pin where nodes speak
    TLS to each other.
    """
    from headrace.cluster.tokens import create_token, read_token  # noqa: PLC0415  only here

    secret = read_secret_file(secret_file)
    if secret is None:
        usage_error(
            "--secret-file: a token is signed with the secret of the cluster, name its file"
        )
    now_ms = int(time.time() * 1000)
    wanted_s = now_ms // 1000 + _seconds(expires)

    async def work() -> tuple[words.Response, str, bytes, int]:
        nodes = parse_nodes(node)
        async with NodeCalls(secret) as calls:
            listed = await calls.ask_any(nodes, words.ListTokens())
            rows = listed.tokens if isinstance(listed, words.Tokens) else ()
            known = {row.token_hash for row in rows}
            # Tokens of a node that end in the same second are the same token.
            for expires_at_s in count(wanted_s):
                text = create_token(secret, node_id, expires_at_s)
                token_hash = read_token(text, secret, now_ms).token_hash
                if token_hash not in known:
                    break
            done = await calls.ask_any(nodes, words.RegisterToken(token_hash, expires_at_s))
            return done, text, token_hash, expires_at_s

    done, text, token_hash, expires_at_s = complete(work())
    pins = done.pins if isinstance(done, words.Done) else ()
    if as_json:
        print_json(
            {
                "token": text,
                "ca_pins": list(pins),
                "hash": token_hash.hex(),
                "node_id": node_id,
                "expires_at_ms": expires_at_s * 1000,
            }
        )
    else:
        for line in (text, *pins):
            say(line)


@token.command("list")
@json_option
@node_option
@secret_option
def list_tokens(*, as_json: bool, node: str, secret_file: Path | None) -> None:
    """Show the tokens, until a day after they expire. A token itself is not shown."""

    async def work() -> words.Response:
        async with NodeCalls(read_secret_file(secret_file)) as calls:
            return await calls.ask_any(parse_nodes(node), words.ListTokens())

    listed = complete(work())
    rows = listed.tokens if isinstance(listed, words.Tokens) else ()
    now_ms = int(time.time() * 1000)
    if as_json:
        print_json(
            [
                {
                    "hash": row.token_hash.hex(),
                    "state": _state(row, now_ms),
                    "expires_at_ms": row.expires_at_ms,
                    "node_id": None if row.node == words.NOBODY else row.node,
                    "used_by": row.address or None,
                }
                for row in rows
            ]
        )
        return
    print_table(
        ("hash", "state", "expires", "node", "used by"),
        [
            (
                row.token_hash[:SHOWN_HASH_BYTES].hex(),
                _state(row, now_ms),
                datetime.fromtimestamp(row.expires_at_ms // 1000, UTC).isoformat(" "),
                None if row.node == words.NOBODY else row.node,
                row.address or None,
            )
            for row in rows
        ],
    )


@token.command()
@click.argument("which", metavar="HASH_OR_TOKEN")
@json_option
@node_option
@secret_option
def revoke(*, which: str, as_json: bool, node: str, secret_file: Path | None) -> None:
    """Revoke a token; the first 8 digits of its hash are enough."""
    secret = read_secret_file(secret_file)
    request = _revocation(which.strip(), secret)

    async def work() -> words.Response:
        async with NodeCalls(secret) as calls:
            return await calls.ask_any(parse_nodes(node), request)

    done = complete(work())
    token_hash = done.token_hash.hex() if isinstance(done, words.Done) else ""
    if as_json:
        print_json({"hash": token_hash, "revoked": True})
    else:
        say(f"revoked {token_hash[: 2 * SHOWN_HASH_BYTES]}")


def _revocation(which: str, secret: bytes | None) -> words.RevokeToken:
    from headrace.cluster.tokens import read_token  # noqa: PLC0415  only here

    if len(which) == TOKEN_CHARACTERS:
        if secret is None:
            usage_error("--secret-file: needed to read a token; or give its hash")
        claim = read_token(which, secret, int(time.time() * 1000))
        return words.RevokeToken(claim.token_hash, claim.expires_at_s)
    try:
        prefix = bytes.fromhex(which)
    except ValueError:
        prefix = b""
    if not words.HASH_PREFIX_BYTES_MIN <= len(prefix) <= words.HASH_BYTES:
        usage_error(
            f"{which!r} is neither a token nor a hash: give an even number of hexadecimal digits, "
            "at least 8, as `headrace cluster token list` shows them"
        )
    return words.RevokeToken(prefix)


def _seconds(text: str) -> int:
    number, unit = whole_number(text[:-1]), text[-1:]
    if number is None or unit not in UNITS:
        usage_error(f"--expires {text}: write it as 30m, 1h or 7d")
    seconds = number * UNITS[unit]
    if not 0 < seconds <= EXPIRES_SECONDS_MAX:
        usage_error(f"--expires {text}: must be between 1s and 366d")
    return seconds


def _state(row: words.TokenRow, now_ms: int) -> str:
    is_over = row.status in ("ISSUED", "IN_FLIGHT") and row.expires_at_ms < now_ms
    return "expired" if is_over else _STATES.get(row.status, row.status.lower())
