"""The text of sasl.jaas.config, as Kafka spells it. Pure.

org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from headrace.config import InvalidSetting

PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_TOKEN: Final = re.compile(
    r"""\s*(?:"(?P<quoted>(?:\\.|[^"\\])*)"|(?P<sign>[=;])|(?P<word>[^\s=;"]+))""", re.DOTALL
)
_USER: Final = "user_"


@dataclass(frozen=True)
class LoginModule:
    """One login module and its options, which may be secrets."""

    name: str
    flag: str
    options: Mapping[str, str] = field(repr=False)

    @property
    def users(self) -> dict[str, str]:
        """The passwords of the users of PLAIN, by name."""
        return {
            name[len(_USER) :]: password
            for name, password in self.options.items()
            if name.startswith(_USER)
        }


def parse_jaas(text: str, where: str) -> LoginModule:
    """Return the login module of a text; InvalidSetting, without the text, if it cannot be read."""
    tokens = list(_tokens(text.strip(), where))
    if len(tokens) < 3 or tokens[-1] != (";", True) or (";", True) in tokens[:-1]:
        raise _unreadable(where)
    (name, _), (flag, _), *rest = tokens[:-1]
    if flag.lower() not in FLAGS or len(rest) % 3:
        raise _unreadable(where)
    options = {}
    for start in range(0, len(rest), 3):
        (key, _), (equals, is_sign), (value, is_other) = rest[start : start + 3]
        if not is_sign or equals != "=" or is_other:
            raise _unreadable(where)
        options[key] = value
    return LoginModule(name, flag.lower(), options)


def plain_users(text: str | None, where: str) -> dict[str, str]:
    """Return the users of PLAIN and their passwords; InvalidSetting if there are none."""
    if not text:
        raise InvalidSetting(f"{where}: PLAIN needs users: {PLAIN_MODULE} required user_NAME=...;")
    module = parse_jaas(text, where)
    if module.name != PLAIN_MODULE:
        raise InvalidSetting(f"{where}: must be {PLAIN_MODULE}, no other class is loaded")
    if not module.users:
        raise InvalidSetting(f"{where}: PLAIN needs users, as user_NAME=PASSWORD")
    if "" in module.users or "" in module.users.values():
        raise InvalidSetting(f"{where}: a user of PLAIN has no name or no password")
    return module.users


def _tokens(text: str, where: str) -> "list[tuple[str, bool]]":
    """Return words and signs, each with whether it is a sign."""
    found, position = [], 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _unreadable(where)
        if match["sign"]:
            found.append((match["sign"], True))
        elif match["word"] is not None:
            found.append((match["word"], False))
        else:
            found.append((re.sub(r"\\(.)", r"\1", match["quoted"], flags=re.DOTALL), False))
        position = match.end()
    return found


def _unreadable(where: str) -> InvalidSetting:
    return InvalidSetting(f"{where}: must be CLASS FLAG NAME=VALUE ...; as in Kafka")
