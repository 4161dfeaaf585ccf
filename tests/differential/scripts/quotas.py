"""Quotas of users, client ids and addresses: what is refused, what filters find, and limits."""

import time
from collections.abc import Mapping
from typing import Final

from headrace.wire.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from headrace.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from headrace.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from headrace.wire.messages.describe_client_quotas_request import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from tests.differential.connection import CLIENT_ID
from tests.differential.conversation import (
    SETTLE_POLL_SECONDS,
    SETTLE_SECONDS_MAX,
    Conversation,
)

EXACT, DEFAULT, ANY = 0, 1, 2
Names = Mapping[str, str | None]
PRODUCE: Final = "producer_byte_rate"
MANY: Final = 1e15


def _entity(names: Names) -> list[EntityData]:
    return [EntityData(kind, name) for kind, name in names.items()]


def _alter(
    names: Names, *ops: tuple[str, float | None], validate_only: bool = False
) -> AlterClientQuotasRequest:
    rows = [OpData(key, value or 0.0, remove=value is None) for key, value in ops]
    return AlterClientQuotasRequest([EntryData(_entity(names), rows)], validate_only)


def _describe(
    *components: tuple[str, int, str | None], strict: bool = False
) -> DescribeClientQuotasRequest:
    return DescribeClientQuotasRequest([ComponentData(*each) for each in components], strict)


def _await_count(talk: Conversation, request: DescribeClientQuotasRequest, count: int) -> None:
    """Wait until a peer, which may apply changes after it has answered, shows as many entities."""
    deadline = time.monotonic() + SETTLE_SECONDS_MAX
    while time.monotonic() < deadline:
        (answer,) = talk.quietly_at_once([request])
        if len(answer.entries or ()) == count:
            return
        time.sleep(SETTLE_POLL_SECONDS)  # polls, up to the deadline


def alter_client_quotas(talk: Conversation) -> None:
    ann: Names = {"user": "ann"}
    for version in (0, 1):
        talk.ask(
            f"validated only v{version}", _alter(ann, (PRODUCE, 7.0), validate_only=True), version
        )
    for name, names in (
        ("nobody", {}),
        ("another type", {"group": "g"}),
        ("an empty user", {"user": ""}),
        ("an empty client id", {"client-id": "", "user": "ann"}),
        ("what is no address", {"ip": "a b"}),
        ("an empty address", {"ip": ""}),
    ):
        talk.ask(name, _alter(names, (PRODUCE, 7.0), validate_only=True))
    for key, values in (
        (PRODUCE, (0.0, -1.0, 1.5, 1e-7, 2.0**63, 2.0**64)),
        ("consumer_byte_rate", (0.5, 100.0)),
        ("request_percentage", (0.0, 0.5, 1000.5, 1e300)),
        ("controller_mutation_rate", (0.25, -0.25)),
        ("connection_creation_rate", (5.0,)),
        ("unknown", (5.0, None)),
        ("", (5.0,)),
    ):
        for value in values:
            talk.ask(f"{key}={value}", _alter(ann, (key, value), validate_only=True))
    for value in (1.0, 0.5, 2.0**31 - 1, 2.0**31):
        for address in ("10.0.0.1", "2001:db8::1", None):
            request = _alter(
                {"ip": address}, ("connection_creation_rate", value), validate_only=True
            )
            talk.ask(f"{address} {value}", request)
    talk.ask("bytes of an address", _alter({"ip": None}, (PRODUCE, 1.0), validate_only=True))
    talk.ask("nothing to do", _alter(ann))
    talk.ask("no entities", AlterClientQuotasRequest())
    talk.ask("to remove what is not there", _alter(ann, (PRODUCE, None)))
    talk.ask("a key twice", _alter(ann, (PRODUCE, 1.0), (PRODUCE, 1.0)))
    talk.ask("a good key and a bad one", _alter(ann, (PRODUCE, 1.0), ("unknown", 1.0)))
    twice = [EntryData(_entity(ann), [OpData(PRODUCE, MANY, remove=False)]) for _ in range(2)]
    talk.ask("an entity twice", AlterClientQuotasRequest(twice, validate_only=True))
    parts = [EntityData("user", "bob"), EntityData("user", "cid")]
    entry = EntryData(parts, [OpData(PRODUCE, MANY, remove=False)])
    talk.ask("a type twice in an entity", AlterClientQuotasRequest([entry], validate_only=True))


def describe_client_quotas(talk: Conversation) -> None:
    for name, components in (
        ("no type", [("", EXACT, "x")]),
        ("another type", [("group", EXACT, "x")]),
        ("no name", [("user", EXACT, None)]),
        ("a name of the default", [("user", DEFAULT, "x")]),
        ("a name of any", [("user", ANY, "x")]),
        ("another match", [("user", 3, None)]),
        ("a type twice", [("user", EXACT, "x"), ("user", ANY, None)]),
        ("addresses and users", [("user", EXACT, "x"), ("ip", ANY, None)]),
        ("nobody's", [("user", EXACT, "x")]),
        ("an empty name", [("user", EXACT, "")]),
    ):
        for version in (0, 1):
            talk.ask(f"{name} v{version}", _describe(*components), version)
    entities: tuple[Names, ...] = (
        {"user": "zoe"},
        {"user": "zoe", "client-id": "app"},
        {"user": "zoe", "client-id": None},
        {"user": None},
        {"client-id": "app"},
        {"ip": "10.9.9.9"},
    )
    for names in entities:
        key = "connection_creation_rate" if "ip" in names else PRODUCE
        value = 7.0 if "ip" in names else MANY
        talk.ask(f"set for {names}", _alter(names, (key, value)))
    _await_count(talk, _describe(), len(entities))
    for name, components in (
        ("a user and a client id", [("user", EXACT, "zoe"), ("client-id", EXACT, "app")]),
        ("a user and the default", [("user", EXACT, "zoe"), ("client-id", DEFAULT, None)]),
        ("the default user", [("user", DEFAULT, None)]),
        ("any address", [("ip", ANY, None)]),
        ("an address", [("ip", EXACT, "10.9.9.9")]),
        ("the default address", [("ip", DEFAULT, None)]),
    ):
        talk.ask(name, _describe(*components))
    talk.ask("a user strictly", _describe(("user", EXACT, "zoe"), strict=True))
    talk.ask("any client id strictly", _describe(("client-id", ANY, None), strict=True))
    talk.ask("nothing strictly", _describe(strict=True))
    for names in entities:
        key = "connection_creation_rate" if "ip" in names else PRODUCE
        talk.ask(f"removed for {names}", _alter(names, (key, None)))
    _await_count(talk, _describe(), 0)
    talk.ask("when all are gone", _describe())


def controller_mutation_quota(talk: Conversation) -> None:
    """What is beyond the quota has the error that newer versions know. Times are the peer's own."""

    def create(name: str, partitions: int, version: int, *, validate_only: bool = False) -> None:
        topic = CreatableTopic(
            name=f"{talk.prefix}{name}", num_partitions=partitions, replication_factor=1
        )
        request = CreateTopicsRequest([topic], timeout_ms=30_000, validate_only=validate_only)
        talk.ask(
            f"{name} v{version}",
            request,
            version,
            hide=("throttle_time_ms", "error_message", "configs"),
        )

    # In a minute not one token comes back.
    names: Names = {"client-id": CLIENT_ID}
    talk.ask("set", _alter(names, ("controller_mutation_rate", 0.01)))
    _await_count(talk, _describe(), 1)
    create("first", 2, 7)
    create("strict", 1, 7)
    create("validated", 1, 7, validate_only=True)
    create("strict", 1, 6)
    delete = DeleteTopicsRequest([DeleteTopicState(f"{talk.prefix}first")], timeout_ms=30_000)
    talk.ask("deleted", delete, 6, hide=("throttle_time_ms", "error_message"))
    talk.ask(
        "removed", _alter(names, ("controller_mutation_rate", None)), hide=("throttle_time_ms",)
    )
    _await_count(talk, _describe(), 0)
    talk.ask("deleted without a quota", delete, 6)


SCRIPTS = (alter_client_quotas, describe_client_quotas, controller_mutation_quota)
