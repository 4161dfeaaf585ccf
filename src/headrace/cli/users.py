"""`headrace users`: add, remove and list the users of SCRAM."""

from pathlib import Path

import click

from headrace.cli.client_config import client_settings
from headrace.cli.options import CommandGroup, bootstrap_option, json_option, yes_option
from headrace.cli.output import print_json, print_table
from headrace.cli.passwords import password_option, read_password
from headrace.cli.running import complete, make_sure
from headrace.cli.streams import say
from headrace.client.admin import Admin
from headrace.client.users import MECHANISMS

user_argument = click.argument("user", metavar="USER", help="The name, without User: before it.")


@click.group(cls=CommandGroup)
def users() -> None:
    """Add, remove and list users that authenticate with SCRAM.

    The first user of a cluster is made with `headrace cluster init-admin`.
    """


@users.command()
@user_argument
@click.option(
    "--mechanism",
    "mechanisms",
    multiple=True,
    type=click.Choice(MECHANISMS),
    help="Only this one; repeatable. By default all of them.",
)
@password_option
@json_option
@bootstrap_option
def add(
    user: str,
    *,
    mechanisms: tuple[str, ...],
    password_file: Path | None,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Add a user, or give one another password.

    The password is not sent: nodes get what follows from it.
    """
    password = read_password(password_file, user)

    async def work() -> None:
        async with Admin(bootstrap, client_settings()) as admin:
            await admin.set_password(user, password, mechanisms or MECHANISMS)

    complete(work())
    if as_json:
        print_json({"user": user, "mechanisms": list(mechanisms or MECHANISMS)})
    else:
        say(f"{user} can authenticate with {', '.join(mechanisms or MECHANISMS)}")


@users.command()
@user_argument
@yes_option
@json_option
@bootstrap_option
def remove(user: str, *, yes: bool, as_json: bool, bootstrap: str) -> None:
    """Remove a user; its connections stay until they end, its ACLs until they are removed."""
    make_sure(f"Remove user {user}?", is_sure=yes)

    async def work() -> None:
        async with Admin(bootstrap, client_settings()) as admin:
            await admin.remove_user(user)

    complete(work())
    if as_json:
        print_json({"user": user, "removed": True})
    else:
        say(f"user {user} is removed")


@users.command("list")
@json_option
@bootstrap_option
def list_(*, as_json: bool, bootstrap: str) -> None:
    """List users and their mechanisms."""

    async def work() -> dict[str, dict[str, int]]:
        async with Admin(bootstrap, client_settings()) as admin:
            return await admin.list_users()

    found = complete(work())
    if as_json:
        print_json([{"user": name, "mechanisms": infos} for name, infos in sorted(found.items())])
        return
    print_table(
        ("user", "mechanisms"), [(name, ", ".join(infos)) for name, infos in sorted(found.items())]
    )
