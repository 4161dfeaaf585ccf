"""`headrace acls`: list, add, remove and explain who may do what."""

from collections.abc import Sequence
from typing import Final

import click

from headrace.cli.client_config import client_settings
from headrace.cli.options import CommandGroup, bootstrap_option, json_option
from headrace.cli.output import print_json, print_table
from headrace.cli.running import complete, usage_error
from headrace.cli.streams import say
from headrace.client.acls import AccessRule, AclOperation, AclResource
from headrace.client.admin import Admin
from headrace.client.configs import Resource, ResourceType
from headrace.client.outcomes import values_of
from headrace.config import ALLOW_EVERYONE_IF_NO_ACL_FOUND, SUPER_USERS, super_users

CLUSTER: Final = "kafka-cluster"
OPERATIONS: Final = {each.name.lower().replace("_", "-"): each for each in AclOperation}
RESOURCES: Final = {each.name.lower().replace("_", "-"): each for each in AclResource}

principal_argument: Final = click.argument(
    "principal", metavar="PRINCIPAL", help="A user, as User:alice or alice; User:* is everybody."
)
operation_argument: Final = click.argument(
    "operation",
    metavar="OPERATION",
    type=click.Choice(list(OPERATIONS), case_sensitive=False),
    help=", ".join(OPERATIONS),
)
resource_argument: Final = click.argument(
    "resource",
    metavar="RESOURCE",
    help="topic:NAME, group:NAME, transactional-id:NAME, user:NAME, delegation-token:ID or "
    "cluster; the name * is every one.",
)
host_option: Final = click.option("--host", default="*", help="The client's address; * is any.")
deny_option: Final = click.option("--deny", is_flag=True, help="Deny it; a deny wins over all.")
prefixed_option: Final = click.option(
    "--prefixed", is_flag=True, help="Every resource whose name begins with NAME."
)


@click.group(cls=CommandGroup)
def acls() -> None:
    """List, add, remove and explain ACLs: who may do what."""


@acls.command("list")
@click.option("--principal", help="Only those of this one.")
@json_option
@bootstrap_option
def list_(*, principal: str | None, as_json: bool, bootstrap: str) -> None:
    """List ACLs."""
    wanted = None if principal is None else _principal(principal)

    async def work() -> list[AccessRule]:
        async with Admin(bootstrap, client_settings()) as admin:
            return await admin.describe_acls(principal=wanted)

    found = sorted(complete(work()), key=lambda rule: (rule.resource, rule.name, rule.principal))
    if as_json:
        print_json([_row(rule) for rule in found])
        return
    print_table(
        ("principal", "permission", "operation", "resource", "host"),
        [
            (
                rule.principal,
                "deny" if rule.is_denied else "allow",
                _word(rule.operation),
                _resource_text(rule),
                rule.host,
            )
            for rule in found
        ],
    )


@acls.command()
@principal_argument
@operation_argument
@resource_argument
@deny_option
@prefixed_option
@host_option
@json_option
@bootstrap_option
def add(
    principal: str,
    operation: str,
    resource: str,
    *,
    deny: bool,
    prefixed: bool,
    host: str,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Allow a principal something, or deny it."""
    rule = _rule(principal, operation, resource, deny=deny, prefixed=prefixed, host=host)

    async def work() -> None:
        async with Admin(bootstrap, client_settings()) as admin:
            await admin.create_acls([rule])

    complete(work())
    if as_json:
        print_json(_row(rule))
    else:
        say(_text(rule))


@acls.command()
@principal_argument
@operation_argument
@resource_argument
@deny_option
@prefixed_option
@host_option
@json_option
@bootstrap_option
def remove(
    principal: str,
    operation: str,
    resource: str,
    *,
    deny: bool,
    prefixed: bool,
    host: str,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Remove exactly this ACL."""
    rule = _rule(principal, operation, resource, deny=deny, prefixed=prefixed, host=host)

    async def work() -> int:
        async with Admin(bootstrap, client_settings()) as admin:
            return await admin.delete_acls([rule])

    count = complete(work())
    if as_json:
        print_json({**_row(rule), "removed": bool(count)})
    else:
        say(f"removed: {_text(rule)}" if count else f"there is no such ACL: {_text(rule)}")


@acls.command()
@principal_argument
@operation_argument
@resource_argument
@host_option
@json_option
@bootstrap_option
def explain(
    principal: str, operation: str, resource: str, *, host: str, as_json: bool, bootstrap: str
) -> None:
    """Explain whether a principal may do something, and which rule decides it."""
    rule = _rule(principal, operation, resource, deny=False, prefixed=False, host=host)

    async def work() -> tuple[list[AccessRule], tuple[str, ...], bool]:
        async with Admin(bootstrap, client_settings()) as admin:
            rules = await admin.describe_acls()
            described = await admin.describe_cluster()
            asked = Resource(ResourceType.BROKER, str(described.nodes[0].node_id))
            configs = values_of(await admin.describe_configs([asked]))[asked]
        values = {each.name: each.value or "" for each in configs}
        users = super_users(values.get(SUPER_USERS.name, ""))
        is_open = values.get(ALLOW_EVERYONE_IF_NO_ACL_FOUND.name) == "true"
        return rules, users, is_open

    is_allowed, why = _decide(rule, *complete(work()))
    if as_json:
        print_json({**_row(rule), "allowed": is_allowed, "rule": why})
    else:
        verb = "may" if is_allowed else "may not"
        what = f"{_word(rule.operation)} {_resource_text(rule)}"
        say(f"{rule.principal} {verb} {what}: {why}")


def _decide(
    asked: AccessRule, rules: Sequence[AccessRule], users: tuple[str, ...], is_open: bool
) -> tuple[bool, str]:
    """Return whether something is allowed and why, as a node decides it."""
    from headrace.metadata.ddl import AddAcls  # noqa: PLC0415  only here
    from headrace.metadata.image import Image  # noqa: PLC0415
    from headrace.metadata.rights import add_acls  # noqa: PLC0415
    from headrace.metadata.state import Acl, AclPattern  # noqa: PLC0415
    from headrace.security.authorizer import Authorizer, describe_acl  # noqa: PLC0415

    image = Image()
    add_acls(
        image,
        AddAcls(
            tuple(
                Acl(
                    AclPattern(int(each.resource), 4 if each.is_prefixed else 3, each.name),
                    each.principal,
                    each.host,
                    int(each.operation),
                    2 if each.is_denied else 3,
                )
                for each in rules
            )
        ),
    )
    authorizer = Authorizer(lambda: image, users, allows_without_acls=is_open)
    decision = authorizer.explain(
        asked.principal, asked.host, int(asked.operation), int(asked.resource), asked.name
    )
    acl = "" if decision.acl is None else f" ({describe_acl(decision.acl)})"
    return decision.is_allowed, f"{decision.rule}{acl}"


def _rule(
    principal: str, operation: str, resource: str, *, deny: bool, prefixed: bool, host: str
) -> AccessRule:
    kind, colon, name = resource.partition(":")
    found = RESOURCES.get(kind.lower())
    if found is None:
        usage_error(f"RESOURCE {resource!r}: begins with one of {', '.join(RESOURCES)}")
    if found is AclResource.CLUSTER:
        if name not in ("", CLUSTER):
            usage_error(f"RESOURCE {resource!r}: there is one cluster, write cluster")
        name = CLUSTER
    elif not colon or not name:
        usage_error(f"RESOURCE {resource!r}: write it as {kind}:NAME")
    elif found is AclResource.USER and name != "*" and not prefixed:
        name = _principal(name)
    return AccessRule(
        principal=_principal(principal),
        operation=OPERATIONS[operation.lower()],
        resource=found,
        name=name,
        is_prefixed=prefixed,
        is_denied=deny,
        host=host,
    )


def _principal(text: str) -> str:
    return text if ":" in text else f"User:{text}"


def _word(operation: AclOperation) -> str:
    return operation.name.lower().replace("_", "-")


def _resource_text(rule: AccessRule) -> str:
    kind = rule.resource.name.lower().replace("_", "-")
    if rule.resource is AclResource.CLUSTER:
        return kind
    return f"{kind}:{rule.name}" + (" (prefixed)" if rule.is_prefixed else "")


def _text(rule: AccessRule) -> str:
    verb = "is denied" if rule.is_denied else "is allowed"
    where = "" if rule.host == "*" else f" from {rule.host}"
    return f"{rule.principal} {verb} {_word(rule.operation)} on {_resource_text(rule)}{where}"


def _row(rule: AccessRule) -> dict[str, object]:
    return {
        "principal": rule.principal,
        "permission": "deny" if rule.is_denied else "allow",
        "operation": _word(rule.operation),
        "resource": rule.resource.name.lower().replace("_", "-"),
        "name": rule.name,
        "pattern": "prefixed" if rule.is_prefixed else "literal",
        "host": rule.host,
    }
