"""`headrace tokens`: delegation tokens, which stand in for users' passwords for a while."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from headrace.cli.client_config import client_settings
from headrace.cli.durations import Duration
from headrace.cli.options import CommandGroup, FilePath, bootstrap_option, json_option, yes_option
from headrace.cli.output import print_json, print_table
from headrace.cli.running import complete, make_sure, usage_error
from headrace.cli.streams import say
from headrace.client.admin import Admin
from headrace.client.delegation_tokens import NOT_SAID, DelegationToken

JAAS: Final = (
    "org.apache.kafka.common.security.scram.ScramLoginModule required "
    'username="{id}" password="{password}" tokenauth="true";'
)
token_argument: Final = click.argument(
    "token_id", metavar="TOKEN", help="The id of the token, as `headrace tokens list` shows it."
)


@click.group(cls=CommandGroup)
def tokens() -> None:
    """Create, list, renew and expire delegation tokens.

    A job that logs in with a token instead of a password is the token's owner until the token ends.
    """


@tokens.command()
@click.option("--owner", help="Whose token it is to be; by default one's own.")
@click.option("--renewer", "renewers", multiple=True, help="Who may renew it, too; repeatable.")
@click.option(
    "--lifetime", type=Duration(), help="How long it can be renewed; by default what nodes allow."
)
@click.option(
    "--output",
    type=FilePath(),
    help="Write the sasl.jaas.config of a client to this file, which only its user can read.",
)
@json_option
@bootstrap_option
def create(
    *,
    owner: str | None,
    renewers: tuple[str, ...],
    lifetime: int | None,
    output: Path | None,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Create a token, and print its secret or write it to a file."""

    async def work() -> DelegationToken:
        async with Admin(bootstrap, client_settings()) as admin:
            return await admin.create_token(
                owner=None if owner is None else _principal(owner),
                renewers=[_principal(each) for each in renewers],
                max_lifetime_ms=lifetime or NOT_SAID,
            )

    made = complete(work())
    password = made.password.reveal()
    if output is not None:
        _write(output, made)
    if as_json:
        print_json(_row(made) | ({} if output is not None else {"hmac": password}))
        return
    say(f"token {made.token_id} of {made.owner}, until {_time(made.expires_ms)}")
    say(f"can be renewed until {_time(made.max_ms)}")
    if output is None:
        say(f"sasl.jaas.config={JAAS.format(id=made.token_id, password=password)}")
    else:
        say(f"{output} has the sasl.jaas.config of a client that logs in with it")


@tokens.command("list")
@click.option("--owner", "owners", multiple=True, help="Only those of this user; repeatable.")
@json_option
@bootstrap_option
def list_(*, owners: tuple[str, ...], as_json: bool, bootstrap: str) -> None:
    """List tokens, without their secrets."""
    wanted = [_principal(each) for each in owners] or None

    async def work() -> list[DelegationToken]:
        async with Admin(bootstrap, client_settings()) as admin:
            return await admin.list_tokens(wanted)

    found = sorted(complete(work()), key=lambda token: (token.owner, token.expires_ms))
    if as_json:
        print_json([_row(token) for token in found])
        return
    print_table(
        ("token", "owner", "requester", "renewers", "expires", "ends"),
        [
            (
                token.token_id,
                token.owner,
                token.requester,
                ", ".join(token.renewers),
                _time(token.expires_ms),
                _time(token.max_ms),
            )
            for token in found
        ],
    )


@tokens.command()
@token_argument
@click.option("--for", "period", type=Duration(), help="How long; by default what nodes allow.")
@json_option
@bootstrap_option
def renew(token_id: str, *, period: int | None, as_json: bool, bootstrap: str) -> None:
    """Renew a token."""

    async def work() -> int:
        async with Admin(bootstrap, client_settings()) as admin:
            token = _find(await admin.list_tokens(), token_id)
            return await admin.renew_token(token.password, period or NOT_SAID)

    _print_end(token_id, complete(work()), as_json=as_json)


@tokens.command()
@token_argument
@click.option("--in", "period", type=Duration(), help="When; by default at once.")
@yes_option
@json_option
@bootstrap_option
def expire(token_id: str, *, period: int | None, yes: bool, as_json: bool, bootstrap: str) -> None:
    """End a token; sessions that it began stay until they would have ended anyway."""
    make_sure(f"End token {token_id}?", is_sure=yes)

    async def work() -> int:
        async with Admin(bootstrap, client_settings()) as admin:
            token = _find(await admin.list_tokens(), token_id)
            return await admin.expire_token(token.password, NOT_SAID if period is None else period)

    _print_end(token_id, complete(work()), as_json=as_json)


def _find(found: Sequence[DelegationToken], token_id: str) -> DelegationToken:
    """Return a token by its id; usage error if there is none that one may see."""
    named = [token for token in found if token.token_id == token_id]
    if not named:
        usage_error(f"{token_id}: there is no such token, or none that you may see")
    return named[0]


def _print_end(token_id: str, expires_ms: int, *, as_json: bool) -> None:
    if as_json:
        print_json({"token": token_id, "expires_ms": expires_ms})
    else:
        say(f"token {token_id} ends at {_time(expires_ms)}")


def _write(path: Path, token: DelegationToken) -> None:
    """Write the file; nobody else can read it from the start."""
    line = JAAS.format(id=token.token_id, password=token.password.reveal())
    try:
        path.touch(mode=0o600)
        path.chmod(0o600)
        path.write_text(f"sasl.jaas.config={line}\n")
    except OSError as error:
        usage_error(f"--output {path}: {error.strerror}; the token is {token.token_id}: expire it")


def _row(token: DelegationToken) -> dict[str, Any]:
    return {
        "token": token.token_id,
        "owner": token.owner,
        "requester": token.requester,
        "renewers": list(token.renewers),
        "issued_ms": token.issued_ms,
        "expires_ms": token.expires_ms,
        "max_ms": token.max_ms,
    }


def _principal(text: str) -> str:
    """Return a principal; a name without a type is a user's."""
    return text if ":" in text else f"User:{text}"


def _time(time_ms: int) -> str:
    seconds = min(time_ms // 1000, 253_402_300_799)
    return datetime.fromtimestamp(seconds, UTC).isoformat(" ", "seconds")
