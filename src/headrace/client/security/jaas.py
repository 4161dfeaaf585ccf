"""`sasl.jaas.config` as people paste it: one login module with its options. Pure.

org.apache.kafka.common.security.scram.ScramLoginModule required username="ann" password="..";
"""

import re
from typing import Final, NamedTuple

from headrace.client.errors import InvalidSecurity
from headrace.sasl.secret import Secret

NAME: Final = "sasl.jaas.config"
TEXT_CHARS_MAX: Final = 64 * 1024
_MODULES: Final = {
    "org.apache.kafka.common.security.plain.PlainLoginModule": "PLAIN",
    "org.apache.kafka.common.security.scram.ScramLoginModule": "SCRAM",
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule": "OAUTHBEARER",
}
_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_WORD: Final = re.compile(
    r"""\s*(?:"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>(?:[^'\\]|\\.)*)'"""
    r"""|(?P<sign>[=;])|(?P<bare>[^\s=;"']+))""",
    re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r"}


class Login(NamedTuple):
    """A login module: PLAIN, SCRAM or OAUTHBEARER, and its options."""

    kind: str
    options: dict[str, Secret]


def parse_jaas(text: str) -> Login:
    """Return the one module of a JAAS text; raise InvalidSecurity, which does not quote it."""
    if len(text) > TEXT_CHARS_MAX:
        raise InvalidSecurity(f"{NAME}: is longer than {TEXT_CHARS_MAX} characters")
    words = _words(text.strip())
    if len(words) < 3 or words[-1] != ("sign", ";"):
        raise InvalidSecurity(
            f'{NAME}: write \'MODULE required username="..." password="...";\' with the semicolon'
        )
    if ("sign", ";") in words[:-1]:
        raise InvalidSecurity(f"{NAME}: a client has one login module, here are several")
    module, flag = words[0][1], words[1][1]
    kind = _MODULES.get(module)
    if kind is None:
        known = ", ".join(name.rpartition(".")[2] for name in _MODULES)
        hint = " (Kerberos is not supported)" if "Krb5" in module else ""
        raise InvalidSecurity(f"{NAME}: its login module is not one of {known}{hint}")
    if flag not in _FLAGS:
        raise InvalidSecurity(f"{NAME}: after the module comes 'required'")
    rest = words[2:-1]
    options: dict[str, Secret] = {}
    for start in range(0, len(rest), 3):
        part = rest[start : start + 3]
        is_pair = len(part) == 3 and part[1] == ("sign", "=") and part[0][0] == "bare"
        if not is_pair or part[2][0] == "sign":
            raise InvalidSecurity(f'{NAME}: after the flag come options as name="value"')
        options[part[0][1]] = Secret(part[2][1])
    return Login(kind, options)


def _words(text: str) -> list[tuple[str, str]]:
    words: list[tuple[str, str]] = []
    position = 0
    while position < len(text):
        found = _WORD.match(text, position)
        if found is None:
            raise InvalidSecurity(f"{NAME}: a quote is not closed")
        kind = found.lastgroup or ""
        word = found[kind]
        if kind in ("double", "single"):
            word = _ESCAPE.sub(lambda escape: _ESCAPED.get(escape[1], escape[1]), word)
        words.append((kind, word))
        position = found.end()
    return words
