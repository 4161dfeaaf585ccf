"""Kafka's own tools manage users and ACLs of a secured node, over SASL_SSL."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.jvm.kafka_tools import CONFIGS, TOOLS, TOPICS, Output, run_tool, run_well
from tests.secured_broker import ADMIN, ADMIN_PASSWORD, secured_broker, security

ACLS = f"{TOOLS}.AclCommand"
TOKENS = f"{TOOLS}.DelegationTokenCommand"


class Secured:
    """A secured node, and Kafka's tools as one user or another."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self._bootstrap = bootstrap
        self._folder = folder
        self.login(ADMIN, ADMIN_PASSWORD)

    def login(self, user: str, password: str) -> None:
        lines = security(self._folder, user, password)
        text = "".join(f"{name}={value}\n" for name, value in lines.items())
        (self._folder / f"{user}.properties").write_text(text)

    def use_token(self, name: str, token_id: str, made: str) -> None:
        """Let a user of the tools be whoever has a delegation token."""
        lines = security(self._folder, token_id, made)
        jaas = lines["sasl.jaas.config"]
        lines["sasl.jaas.config"] = jaas.replace(";", ' tokenauth="true";')
        text = "".join(f"{name}={value}\n" for name, value in lines.items())
        (self._folder / f"{name}.properties").write_text(text)

    def _words(self, user: str, words: tuple[str, ...]) -> tuple[str, ...]:
        path = str(self._folder / f"{user}.properties")
        return ("--bootstrap-server", self._bootstrap, "--command-config", path, *words)

    def run(self, main: str, *words: str, user: str = ADMIN) -> Output:
        return run_well(main, *self._words(user, words))

    def fail(self, main: str, *words: str, user: str) -> str:
        output = run_tool(main, *self._words(user, words))
        assert output.status != 0, output.stdout
        return output.stdout + output.stderr


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("tools")
    with secured_broker(folder, **{"delegation.token.secret.key": "canary-of-tokens"}) as broker:
        yield Secured(broker.bootstrap, folder)


def test_users_are_added_and_removed(secured: Secured) -> None:
    entity = ("--entity-type", "users", "--entity-name", "dora")
    secured.run(
        CONFIGS,
        *("--alter", *entity, "--add-config", "SCRAM-SHA-512=[iterations=4096,password=dora-1]"),
    )
    secured.login("dora", "dora-1")
    secured.run(TOPICS, "--list", user="dora")
    secured.run(CONFIGS, "--alter", *entity, "--add-config", "producer_byte_rate=1000000000")
    described = secured.run(CONFIGS, "--describe", "--entity-type", "users").stdout
    assert "Quota configs for user-principal 'dora' are producer_byte_rate=1.0E9" in described
    assert "SCRAM credential configs for user-principal 'dora' are SCRAM-SHA-512" in described
    refused = secured.fail(
        CONFIGS, "--alter", *entity, "--add-config", "producer_byte_rate=2", user="dora"
    )
    assert "ClusterAuthorizationException" in refused
    secured.run(CONFIGS, "--alter", *entity, "--delete-config", "producer_byte_rate")
    secured.run(CONFIGS, "--alter", *entity, "--delete-config", "SCRAM-SHA-512")
    assert "Authentication failed" in secured.fail(TOPICS, "--list", user="dora")


def test_acls_are_added_listed_and_removed(secured: Secured) -> None:
    entity = ("--entity-type", "users", "--entity-name", "emil")
    secured.run(CONFIGS, "--alter", *entity, "--add-config", "SCRAM-SHA-512=[password=emil-1]")
    secured.login("emil", "emil-1")
    secured.run(TOPICS, "--create", "--topic", "orders-1")
    assert "orders-1" not in secured.run(TOPICS, "--list", user="emil").lines
    rule = ("--allow-principal", "User:emil", "--consumer", "--topic", "orders-", "--group", "g")
    prefixed = ("--resource-pattern-type", "prefixed")
    secured.run(ACLS, "--add", *rule, *prefixed)
    listed = secured.run(ACLS, "--list").stdout
    assert "name=orders-, patternType=PREFIXED" in listed
    assert "principal=User:emil, host=*, operation=READ, permissionType=ALLOW" in listed
    assert "orders-1" in secured.run(TOPICS, "--list", user="emil").lines
    failure = secured.fail(TOPICS, "--delete", "--topic", "orders-1", user="emil")
    assert "Topic authorization failed" in failure
    assert "luster authorization failed" in secured.fail(ACLS, "--list", user="emil")
    secured.run(ACLS, "--remove", "--force", *rule, *prefixed)
    assert "User:emil" not in secured.run(ACLS, "--list").stdout
    assert "orders-1" not in secured.run(TOPICS, "--list", user="emil").lines


def test_delegation_tokens_are_created_used_renewed_and_expired(secured: Secured) -> None:
    entity = ("--entity-type", "users", "--entity-name", "fred")
    credentials = "SCRAM-SHA-512=[iterations=4096,password=fred-1]"
    secured.run(CONFIGS, "--alter", *entity, "--add-config", credentials)
    secured.login("fred", "fred-1")
    secured.run(
        ACLS, "--add", "--allow-principal", "User:fred", "--operation", "Create", "--cluster"
    )
    words = ("--max-life-time-period", "600000", "--renewer-principal", "User:admin")
    made = secured.run(TOKENS, "--create", *words, user="fred")
    token_id, password, owner, *_ = next(line for line in made.lines if "User:fred" in line).split()
    assert owner == "User:fred"
    describe = ("--describe", "--owner-principal", "User:fred")
    assert token_id in secured.run(TOKENS, *describe, user="fred").stdout
    secured.use_token("job", token_id, password)
    secured.run(TOPICS, "--create", "--topic", "made-with-a-token", user="job")
    assert "made-with-a-token" in secured.run(TOPICS, "--list").stdout
    refused = secured.fail(TOKENS, "--create", "--max-life-time-period", "-1", user="job")
    assert "Delegation Token requests are not allowed" in refused
    renewed = secured.run(TOKENS, "--renew", "--renew-time-period", "-1", "--hmac", password)
    assert "renew" in renewed.stdout
    secured.run(TOKENS, "--expire", "--expiry-time-period", "-1", "--hmac", password, user="fred")
    assert token_id not in secured.run(TOKENS, *describe, user="fred").stdout
    assert "Authentication failed" in secured.fail(TOPICS, "--list", user="job")


def test_tokens_for_others_need_a_right(secured: Secured) -> None:
    entity = ("--entity-type", "users", "--entity-name", "gina")
    credentials = "SCRAM-SHA-512=[iterations=4096,password=gina-1]"
    secured.run(CONFIGS, "--alter", *entity, "--add-config", credentials)
    secured.login("gina", "gina-1")
    words = ("--create", "--max-life-time-period", "-1", "--owner-principal", "User:hans")
    assert "authorization failed" in secured.fail(TOKENS, *words, user="gina").lower()
    secured.run(
        ACLS,
        *("--add", "--allow-principal", "User:gina", "--operation", "CreateTokens"),
        *("--user-principal", "User:hans"),
    )
    made = secured.run(TOKENS, *words, user="gina").stdout
    assert "User:hans" in made
    assert "User:gina" in made
