"""From the name in a client's certificate to its principal."""

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from headrace.config import InvalidSetting
from headrace.security.certificate_names import (
    NoRuleApplies,
    distinguished_name,
    map_name,
    parse_rules,
    principal_of,
)
from tests.node_certificates import sign

RULES = (
    r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,"
    r"RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    r"RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U,DEFAULT"
)


@pytest.mark.parametrize(
    ("name", "mapped"),
    [
        ("CN=kafka1,OU=ServiceUsers,O=Unknown,L=Unknown,ST=Unknown,C=Unknown", "kafka1"),
        ("CN=Ann,OU=Admin,O=Unknown,L=Unknown,ST=Unknown,C=Unknown", "ann@admin"),
        ("cn=kafka2.domain,OU=SME", "KAFKA2.DOMAIN"),
        ("O=nobody", "O=nobody"),
    ],
)
def test_the_first_rule_that_matches_makes_the_name(name: str, mapped: str) -> None:
    """Kafka's own examples."""
    assert map_name(name, parse_rules(RULES)) == mapped


def test_a_name_that_no_rule_is_about_has_no_principal() -> None:
    with pytest.raises(NoRuleApplies):
        map_name("O=nobody", parse_rules("RULE:^CN=(.*)$/$1/"))


@pytest.mark.parametrize("text", ["RULE:a", "RULE:a/b", "RULE:(/b/", "RULE:a/$1/", "NOTHING", "L"])
def test_rules_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(InvalidSetting, match=r"ssl\.principal\.mapping\.rules"):
        parse_rules(text)


def test_a_name_is_written_as_java_writes_it() -> None:
    signed = sign(
        {
            NameOID.COUNTRY_NAME: "DE",
            NameOID.ORGANIZATION_NAME: "Müller, Söhne + Co",
            NameOID.EMAIL_ADDRESS: "a@b.c",
            NameOID.COMMON_NAME: " #x",
        }
    )
    der = signed.certificate.public_bytes(Encoding.DER)
    assert distinguished_name(der) == (
        r"CN=\ #x,1.2.840.113549.1.9.1=#16056140622e63,O=Müller\, Söhne \+ Co,C=DE"
    )
    assert principal_of(der, parse_rules("DEFAULT")).startswith(r"User:CN=\ #x,")
