"""sasl.jaas.config as Kafka spells it."""

import pytest

from headrace.config import InvalidSetting
from headrace.security.jaas import PLAIN_MODULE, parse_jaas, plain_users


def test_users_are_read_with_quotes_escapes_and_line_ends() -> None:
    text = f"""{PLAIN_MODULE} required
        username="node" password=p
        user_alice="a \\"b\\" \\\\ c"
        user_bob = secret ;"""
    assert plain_users(text, "x") == {"alice": 'a "b" \\ c', "bob": "secret"}
    assert "secret" not in repr(parse_jaas(text, "x"))


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "canary",
        f"{PLAIN_MODULE} required user_alice=canary",
        f"{PLAIN_MODULE} sometimes user_alice=canary;",
        f"{PLAIN_MODULE} required user_alice canary;",
        f'{PLAIN_MODULE} required user_alice="canary;',
        f"{PLAIN_MODULE} required user_alice=canary; {PLAIN_MODULE} required user_b=canary;",
        f"{PLAIN_MODULE} required username=canary;",
        f"{PLAIN_MODULE} required user_=canary;",
        f'{PLAIN_MODULE} required user_alice="";',
        "org.example.Module required user_alice=canary;",
    ],
)
def test_what_cannot_be_read_is_refused_without_being_repeated(text: str | None) -> None:
    with pytest.raises(InvalidSetting) as raised:
        plain_users(text, "sasl.jaas.config")
    assert "sasl.jaas.config" in str(raised.value)
    assert "canary" not in str(raised.value)
