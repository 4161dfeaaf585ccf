"""From a client's certificate to its principal: distinguished names and mapping rules. Pure.

The name is written as Java writes it (RFC 2253), as rules and ACLs are made for that.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.x509.oid import NameOID

from headrace.config import InvalidSetting
from headrace.security.principals import user

NAME_CHARACTERS_MAX: Final = 4096
"""Longer names match no rule: patterns may take long."""
_KEYWORDS: Final = {
    NameOID.COMMON_NAME: "CN",
    NameOID.COUNTRY_NAME: "C",
    NameOID.LOCALITY_NAME: "L",
    NameOID.STATE_OR_PROVINCE_NAME: "ST",
    NameOID.ORGANIZATION_NAME: "O",
    NameOID.ORGANIZATIONAL_UNIT_NAME: "OU",
    NameOID.STREET_ADDRESS: "STREET",
    NameOID.DOMAIN_COMPONENT: "DC",
    NameOID.USER_ID: "UID",
}
_RULE: Final = re.compile(
    r"(?:(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/"
    r"(?P<case>[LU]?).*?)(?:,|$)"
)
_GROUP: Final = re.compile(r"\$(\d+)")


class Rule(NamedTuple):
    """A rule: names that match the pattern become the replacement; None is DEFAULT."""

    pattern: "re.Pattern[str] | None"
    replacement: str
    case: str


class NoRuleApplies(Exception):
    """A certificate whose name no rule maps to a user."""


def parse_rules(text: str) -> tuple[Rule, ...]:
    """Return the rules of ssl.principal.mapping.rules; InvalidSetting if they cannot be read."""
    rules = []
    rest = text.strip()
    while rest:
        found = _RULE.match(rest)
        if found is None or not found[0]:
            raise _unreadable(text)
        if found["default"]:
            rules.append(Rule(None, "", ""))
        else:
            try:
                pattern = re.compile(found["pattern"])
            except re.error:
                raise _unreadable(text) from None
            groups = [int(each) for each in _GROUP.findall(found["replacement"])]
            if max(groups, default=0) > pattern.groups:
                raise _unreadable(text)
            rules.append(Rule(pattern, found["replacement"], found["case"]))
        rest = rest[found.end() :].lstrip()
    return tuple(rules) or (Rule(None, "", ""),)


def _unreadable(text: str) -> InvalidSetting:
    return InvalidSetting(
        f"ssl.principal.mapping.rules={text[:100]}: must be a list of "
        "RULE:pattern/replacement/[LU], or DEFAULT"
    )


def principal_of(certificate: bytes, rules: Sequence[Rule]) -> str:
    """Return the principal of a client's certificate (DER); NoRuleApplies if it has none."""
    return user(map_name(distinguished_name(certificate), rules))


def map_name(name: str, rules: Sequence[Rule]) -> str:
    """Return what the first rule that matches makes of a name; NoRuleApplies if none does."""
    for rule in rules:
        if rule.pattern is None:
            return name
        if len(name) > NAME_CHARACTERS_MAX:
            continue
        found = rule.pattern.fullmatch(name)
        if found is not None:
            return _replace(found, rule)
    raise NoRuleApplies(f"no rule of ssl.principal.mapping.rules is about {name}")


def _replace(found: "re.Match[str]", rule: Rule) -> str:
    """Return the replacement, in which $1 is the first group, as in Java."""
    mapped = _GROUP.sub(lambda group: found[int(group[1])] or "", rule.replacement)
    if rule.case == "L":
        return mapped.lower()
    return mapped.upper() if rule.case == "U" else mapped


def distinguished_name(certificate: bytes) -> str:
    """Return the subject of a certificate (DER), the most specific part first."""
    subject = x509.load_der_x509_certificate(certificate).subject
    return ",".join("+".join(_attribute(each) for each in rdn) for rdn in reversed(subject.rdns))


def _attribute(attribute: "x509.NameAttribute[str | bytes]") -> str:
    keyword = _KEYWORDS.get(attribute.oid)
    if keyword is not None and isinstance(attribute.value, str):
        return f"{keyword}={_escape(attribute.value)}"
    return f"{attribute.oid.dotted_string}=#{_value_bytes(attribute).hex()}"


def _escape(value: str) -> str:
    escaped = re.sub(r'([,+"\\<>;=])', r"\\\1", value)
    if escaped.startswith(("#", " ")):
        escaped = f"\\{escaped}"
    if escaped.endswith(" ") and len(value) > 1:
        escaped = f"{escaped[:-1]}\\ "
    return escaped


def _value_bytes(attribute: "x509.NameAttribute[str | bytes]") -> bytes:
    """Return the DER of an attribute's value."""
    name = x509.Name([x509.RelativeDistinguishedName([attribute])]).public_bytes()
    rest = name
    for _ in range(3):  # the name, its only part, the pair of type and value
        rest, _ = _open(rest)
    _, oid_end = _open(rest)
    return rest[oid_end:]


def _open(data: bytes) -> tuple[bytes, int]:
    """Return the content of the first element of DER, and where the element ends."""
    length, begin = data[1], 2
    if length & 0x80:
        count = length & 0x7F
        length, begin = int.from_bytes(data[2 : 2 + count]), 2 + count
    return data[begin : begin + length], begin + length
