"""FindCoordinator: who has the groups, the transactions and the share partitions."""

from headrace.wire.messages.find_coordinator_request import FindCoordinatorRequest
from headrace.wire.messages.find_coordinator_response import FindCoordinatorResponse
from tests.differential.conversation import Conversation
from tests.differential.group_requests import GROUP
from tests.differential.share_requests import share_coordinator

TRANSACTION, SHARE = 1, 2
FIRST_BATCHED = 4


def find_coordinator(talk: Conversation) -> None:
    for key_type in (GROUP, TRANSACTION):
        talk.until(
            FindCoordinatorRequest(key_type=key_type, coordinator_keys=[talk.name("any")]),
            FindCoordinatorResponse,
            lambda m: m.coordinators[0].error_code == 0,
        )
    for version in range(7):
        for name, key_type in (("a group", GROUP), ("a transaction", TRANSACTION)):
            if version or key_type == GROUP:
                ask(talk, f"{name} v{version}", key_type, talk.name("one"), version=version)
        ask(talk, f"an empty group id v{version}", GROUP, "", version=version)
        if version:
            ask(talk, f"an empty transactional id v{version}", TRANSACTION, "", version=version)
            for kind in (-1, 3, 99):
                ask(talk, f"key type {kind} v{version}", kind, talk.name("one"), version=version)
    names = [talk.name(suffix) for suffix in ("one", "two", "one", "three")]
    for version in range(FIRST_BATCHED, 7):
        ask(talk, f"four groups, one twice v{version}", GROUP, *names, version=version)
        ask(talk, f"no group v{version}", GROUP, version=version)
        ask(talk, f"a group and an empty id v{version}", GROUP, names[0], "", version=version)
        ask(talk, f"two transactions v{version}", TRANSACTION, *names[:2], version=version)


def find_coordinator_of_share_partitions(talk: Conversation) -> None:
    share_coordinator(talk)
    topic = "AAAAAAAAAAAAAAAAAAAAEQ"
    for version in (1, 4, 5):
        ask(talk, f"before there were any v{version}", SHARE, f"g:{topic}:0", version=version)
    for name, key in (
        ("an empty key", ""),
        ("a key of one part", "g"),
        ("a key of two parts", f"g:{topic}"),
        ("a key without a group", f":{topic}:0"),
        ("an id that is none", "g:none:0"),
        ("a partition that is none", f"g:{topic}:x"),
        ("a negative partition", f"g:{topic}:-1"),
    ):
        ask(talk, name, SHARE, key)
    ask(talk, "a key as it should be", SHARE, f"g:{topic}:0")
    ask(talk, "a group with a colon", SHARE, f"a:b:{topic}:0")
    ask(talk, "a good key and a bad one", SHARE, f"g:{topic}:0", "g")


def ask(talk: Conversation, name: str, key_type: int, *keys: str, version: int = 6) -> None:
    request = FindCoordinatorRequest(key_type=key_type)
    if version < FIRST_BATCHED:
        request.key = keys[0]
    else:
        request.coordinator_keys = list(keys)
    talk.ask(name, request, version)


SCRIPTS = (find_coordinator, find_coordinator_of_share_partitions)
