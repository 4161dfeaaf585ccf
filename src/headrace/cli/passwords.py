"""Passwords for commands: asked for, or from a file; never in arguments, which others see."""

import sys
from pathlib import Path
from typing import Final

import click

from headrace.cli.running import usage_error

PASSWORD_BYTES_MAX: Final = 4096

password_option: Final = click.option(
    "--password-file",
    type=click.Path(path_type=Path, allow_dash=True),
    help="A file with the password in its first line, - for standard input; else it is asked for.",
)


def read_password(path: Path | None, user: str) -> str:
    """Return a user's new password; usage error if there is none."""
    if path is None:
        if not sys.stdin.isatty():
            usage_error("there is nobody to ask for the password: use --password-file")
        password = str(
            click.prompt(f"password of {user}", hide_input=True, confirmation_prompt=True, err=True)
        )
    elif str(path) == "-":
        password = sys.stdin.readline(PASSWORD_BYTES_MAX)
    else:
        try:
            with path.open() as file:
                password = file.readline(PASSWORD_BYTES_MAX)
        except (OSError, UnicodeDecodeError) as error:
            usage_error(f"--password-file {path}: {getattr(error, 'strerror', 'not text')}")
    password = password.rstrip("\r\n")
    if not password:
        usage_error("a password must not be empty")
    return password
