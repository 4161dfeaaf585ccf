"""`--config client.properties`: how commands connect, by Kafka's names; and where to.

A command that takes `--bootstrap` takes this too, and passes `client_settings()` to its client. The
file has what Kafka's `--command-config` has: security, timeouts, and `bootstrap.servers` for when
`--bootstrap` is not given. A name without effect is refused.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.core import ParameterSource

from headrace.cli.running import usage_error
from headrace.cli.whole_numbers import whole_number
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.client.settings import ClientSettings

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
ENVIRONMENT: Final = "HEADRACE_CLIENT_CONFIG"
_META: Final = "headrace.client_config"
_NUMBERS: Final = {
    "default.api.timeout.ms": "api_timeout_ms",
    "metadata.max.age.ms": "metadata_max_age_ms",
    "receive.buffer.bytes": "receive_buffer_bytes",
    "request.timeout.ms": "request_timeout_ms",
    "retry.backoff.max.ms": "retry_backoff_max_ms",
    "retry.backoff.ms": "retry_backoff_ms",
    "socket.connection.setup.timeout.ms": "connect_timeout_ms",
}
NAMES: Final = ("bootstrap.servers", "client.id", *_NUMBERS)
"""The accepted names besides those of security."""


def client_settings() -> "ClientSettings":
    """Return how the running command connects."""
    from headrace.client.settings import ClientSettings  # noqa: PLC0415  not for all

    context = click.get_current_context(silent=True)
    found = None if context is None else context.meta.get(_META)
    return ClientSettings() if found is None else found[0]


def bootstrap_options(*config_names: str) -> Callable[[F], F]:
    """Return a decorator that adds `--bootstrap` and, under these names, `--config`."""
    bootstrap = click.option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT",
        default=DEFAULT_BOOTSTRAP,
        envvar="HEADRACE_BOOTSTRAP",
        show_envvar=True,
        callback=_choose_bootstrap,
        help="A node of the cluster; comma-separated for several.",
    )
    config = click.option(
        *config_names,
        "client_config",
        metavar="FILE",
        type=click.Path(path_type=Path),
        envvar=ENVIRONMENT,
        show_envvar=True,
        is_eager=True,
        expose_value=False,
        callback=_read_config,
        help="How to connect: properties by Kafka's names, such as security.protocol.",
    )
    return lambda command: bootstrap(config(command))


def read_client_config(values: dict[str, str]) -> "tuple[ClientSettings, str | None]":
    """Return the settings and the bootstrap servers that properties name; InvalidSecurity."""
    from headrace.client.errors import InvalidSecurity  # noqa: PLC0415  not for all
    from headrace.client.security.names import is_security_name  # noqa: PLC0415
    from headrace.client.settings import ClientSettings, secured  # noqa: PLC0415

    given: dict[str, Any] = {}
    for name, value in values.items():
        if name in _NUMBERS:
            number = -1 if value.strip() == "-1" else whole_number(value.strip())
            if number is None:
                raise InvalidSecurity(f"{name}={value}: is not a number of that kind")
            given[_NUMBERS[name]] = number
        elif name == "client.id":
            given["client_id"] = value
        elif name not in NAMES and not is_security_name(name):
            raise InvalidSecurity(f"{name}: has no effect on a command; remove it from the file")
    security = {name: value for name, value in values.items() if is_security_name(name)}
    return secured(ClientSettings(**given), security), values.get("bootstrap.servers")


def _read_config(context: click.Context, _: click.Parameter, path: Path | None) -> None:
    if path is None:
        return
    from headrace.config.properties import read_file  # noqa: PLC0415  not for all

    try:
        context.meta[_META] = read_client_config(read_file(path))
    except HeadraceError as error:
        text = str(error)
        usage_error(text if text.startswith(str(path)) else f"{path}: {text}")


def _choose_bootstrap(context: click.Context, parameter: click.Parameter, value: str) -> str:
    found = context.meta.get(_META)
    source = context.get_parameter_source(parameter.name or "")
    if found is not None and found[1] and source == ParameterSource.DEFAULT:
        return str(found[1])
    return value
