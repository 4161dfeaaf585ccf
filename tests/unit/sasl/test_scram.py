"""SCRAM's keys, proofs and messages, against the RFCs' vectors."""

import base64

import pytest

from headrace.sasl import scram
from headrace.sasl.errors import InvalidSaslMessage
from headrace.sasl.scram import (
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    ClientFinal,
    ClientFirst,
    Mechanism,
    ServerFinal,
    ServerFirst,
)

SCRAM_SHA_1 = Mechanism("SCRAM-SHA-1", "sha1", 20, 0)
"""Not one of Kafka's; the vector of RFC 5802 uses it."""

RFC_5802 = (
    SCRAM_SHA_1,
    b"n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL",
    b"r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
    b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
    b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
)
RFC_7677 = (
    SCRAM_SHA_256,
    b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
)


@pytest.mark.parametrize(
    ("mechanism", "first", "challenge", "final", "end"), [RFC_5802, RFC_7677], ids=["5802", "7677"]
)
def test_the_exchange_of_the_rfc_is_reproduced_and_accepted(
    mechanism: Mechanism, first: bytes, challenge: bytes, final: bytes, end: bytes
) -> None:
    asked = ClientFirst("user", first.partition(b"r=")[2].decode())
    assert asked.encode() == first
    server = ServerFirst.decode(challenge)
    assert ServerFirst(server.nonce, server.salt, server.iterations).encode() == challenge
    unproven = ClientFinal(asked.gs2_header, server.nonce)
    auth = scram.auth_message(asked, server, unproven)
    salted = scram.salted_password(mechanism, "pencil", server.salt, server.iterations)
    assert unproven.encode(scram.client_proof(mechanism, salted, auth)) == final

    # The server's side, from the bytes.
    received = ClientFinal.decode(final)
    assert scram.auth_message(ClientFirst.decode(first), server, received) == auth
    stored = scram.make_credential(mechanism, "pencil", server.salt, server.iterations)
    assert scram.is_proof_valid(mechanism, stored.stored_key, auth, received.proof)
    signature = scram.server_signature(mechanism, stored.server_key, auth)
    assert ServerFinal(signature).encode() == end
    assert scram.is_signature_valid(mechanism, salted, auth, ServerFinal.decode(end).signature)


@pytest.mark.parametrize("mechanism", [SCRAM_SHA_256, SCRAM_SHA_512], ids=lambda it: it.name)
def test_a_wrong_password_proves_nothing_to_either_side(mechanism: Mechanism) -> None:
    first, challenge = ClientFirst("user", "abc"), ServerFirst("abcdef", b"salt", 4096)
    final = ClientFinal(first.gs2_header, challenge.nonce)
    auth = scram.auth_message(first, challenge, final)
    stored = scram.make_credential(mechanism, "right", b"salt", 4096)
    wrong = scram.salted_password(mechanism, "wrong", b"salt", 4096)
    proof = scram.client_proof(mechanism, wrong, auth)
    assert not scram.is_proof_valid(mechanism, stored.stored_key, auth, proof)
    assert not scram.is_proof_valid(mechanism, stored.stored_key, auth, b"")
    signature = scram.server_signature(mechanism, stored.server_key, auth)
    assert not scram.is_signature_valid(mechanism, wrong, auth, signature)


def test_names_with_commas_and_equals_signs_survive_the_wire() -> None:
    sent = ClientFirst("a=b,c", "nonce", {scram.TOKEN_AUTH: "true"}, "a=b,c")
    assert sent.encode() == b"n,a=a=3Db=2Cc,n=a=3Db=2Cc,r=nonce,tokenauth=true"
    received = ClientFirst.decode(sent.encode())
    assert received == sent
    assert received.is_token
    assert received.gs2_header == "n,a=a=3Db=2Cc,"
    assert not ClientFirst.decode(b"n,,n=user,r=x,other=1").is_token


def test_a_server_error_is_read() -> None:
    assert ServerFinal.decode(b"e=invalid-proof").error == "invalid-proof"
    assert ServerFinal(error="other-error").encode() == b"e=other-error"


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,n=,r=x",
        b"n,,n=a=b,r=x",
        b"y,,n=user,r=x",
        b"p=tls-unique,,n=user,r=x",
        b"n,,m=mandatory,n=user,r=x",
        b"n,,n=user,r=",
        b"n,,n=user,r=x,tokenauth=true,tokenauth=false",
        b"n,,n=us\xc3\xa9r,r=x",
        b"n,,n=user,r=x\n",
        b"n,,n=user,r=" + b"x" * (scram.NONCE_CHARS_MAX + 1),
        b"n,,n=user,r=x"
        + b"".join(b",e%s=1" % (b"a" * i) for i in range(scram.EXTENSIONS_MAX + 1)),
        b"n,,n=" + b"u" * scram.MESSAGE_BYTES_MAX + b",r=x",
    ],
    ids=range(13),
)
def test_a_malformed_first_message_is_refused(message: bytes) -> None:
    with pytest.raises(InvalidSaslMessage):
        ClientFirst.decode(message)


@pytest.mark.parametrize(
    "message",
    [
        b"r=x,s=,i=4096",
        b"r=x,s=!!!!,i=4096",
        b"r=x,s=c2Fsd,i=4096",
        b"r=x,s=c2FsdA==,i=0",
        b"r=x,s=c2FsdA==,i=-1",
        b"r=x,s=c2FsdA==,i=2147483647",
        b"m=x,r=x,s=c2FsdA==,i=4096",
        b"r=x,s=" + base64.b64encode(bytes(scram.SALT_BYTES_MAX + 1)) + b",i=4096",
    ],
    ids=range(8),
)
def test_a_malformed_challenge_is_refused(message: bytes) -> None:
    with pytest.raises(InvalidSaslMessage):
        ServerFirst.decode(message)


@pytest.mark.parametrize("message", [b"c=biws,r=x", b"c=/w==,r=x,p=", b"c=biws,r=x,p=AA=A"])
def test_a_malformed_final_message_is_refused_without_quoting_it(message: bytes) -> None:
    with pytest.raises(InvalidSaslMessage) as refused:
        ClientFinal.decode(message)
    assert "biws" not in str(refused.value)


def test_a_credential_does_not_show_its_keys() -> None:
    stored = scram.make_credential(SCRAM_SHA_256, "secret", b"salt", 4096)
    assert repr(stored) == "Credential(iterations=4096)"
