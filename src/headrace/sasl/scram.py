"""SCRAM (RFC 5802, RFC 7677) as Kafka does it: keys, proofs and the four messages. Pure.

Both sides use this module. A client:

    first = ClientFirst(username, nonce)              # -> first.encode()
    challenge = ServerFirst.decode(received)          # checks are the machine's, see `scram_client`
    salted = salted_password(mechanism, password, challenge.salt, challenge.iterations)
    final = ClientFinal(first.gs2_header, challenge.nonce)
    text = auth_message(first, challenge, final)
    final.encode(client_proof(mechanism, salted, text))

A server keeps a `Credential`, checks the proof with `is_proof_valid` and responds with
`ServerFinal(signature=server_signature(...))`.

Where Kafka differs from the RFC, this follows Kafka: passwords are hashed as UTF-8 without
SASLprep, names and extensions are ASCII, there is no channel binding, and `tokenauth=true` in the
client's first message says that name and password are a delegation token's id and HMAC (KIP-48).
Unlike Kafka, a mandatory extension (`m=`) is refused, as the RFC demands.

Nonces and salts come from the caller. `headrace.sasl` reads no randomness.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from headrace.sasl.errors import InvalidSaslMessage

ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16_384
"""The largest count that Kafka stores for a credential."""
CHALLENGE_ITERATIONS_MAX: Final = 1_000_000
"""The largest count that a client computes for a server: it takes about a second."""
MESSAGE_BYTES_MAX: Final = 16 * 1024
NONCE_CHARS_MAX: Final = 1024
SALT_BYTES_MAX: Final = 1024
EXTENSIONS_MAX: Final = 16
TOKEN_AUTH: Final = "tokenauth"
"""Kafka's extension: the credentials are those of a delegation token."""

_CLIENT_KEY: Final = b"Client Key"
_SERVER_KEY: Final = b"Server Key"


class Mechanism(NamedTuple):
    """A SCRAM mechanism of Kafka's."""

    name: str
    hash_name: str
    digest_bytes: int
    type_id: int
    """Its number in AlterUserScramCredentials."""


SCRAM_SHA_256: Final = Mechanism("SCRAM-SHA-256", "sha256", 32, 1)
SCRAM_SHA_512: Final = Mechanism("SCRAM-SHA-512", "sha512", 64, 2)
MECHANISMS: Final[Mapping[str, Mechanism]] = {
    mechanism.name: mechanism for mechanism in (SCRAM_SHA_256, SCRAM_SHA_512)
}


@dataclass(frozen=True)
class Credential:
    """What a server stores for a user: enough to check a proof, not enough to make one."""

    iterations: int
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


def normalize(password: str) -> bytes:
    """Return the bytes of a password: UTF-8, as Kafka does it; without SASLprep."""
    return password.encode()


def salted_password(mechanism: Mechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Return Hi(password, salt, iterations). Takes about 2 ms for 4096 iterations."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, normalize(password), salt, iterations)


def client_key(mechanism: Mechanism, salted: bytes) -> bytes:
    """Return the key that a client proves to know."""
    return hmac.digest(salted, _CLIENT_KEY, mechanism.hash_name)


def stored_key(mechanism: Mechanism, client: bytes) -> bytes:
    """Return the hash of a client key: what a server keeps to check proofs."""
    return hashlib.new(mechanism.hash_name, client).digest()


def server_key(mechanism: Mechanism, salted: bytes) -> bytes:
    """Return the key that a server proves to know."""
    return hmac.digest(salted, _SERVER_KEY, mechanism.hash_name)


def make_credential(
    mechanism: Mechanism, password: str, salt: bytes, iterations: int
) -> Credential:
    """Return the credential of a password."""
    return credential_of(
        mechanism, salted_password(mechanism, password, salt, iterations), salt, iterations
    )


def credential_of(mechanism: Mechanism, salted: bytes, salt: bytes, iterations: int) -> Credential:
    """Return the credential of a salted password, which is what AlterUserScramCredentials sends."""
    return Credential(
        iterations,
        salt,
        stored_key(mechanism, client_key(mechanism, salted)),
        server_key(mechanism, salted),
    )


def client_proof(mechanism: Mechanism, salted: bytes, auth: bytes) -> bytes:
    """Return the proof that the client has the password; `auth` is from `auth_message`."""
    key = client_key(mechanism, salted)
    return _xor(key, hmac.digest(stored_key(mechanism, key), auth, mechanism.hash_name))


def is_proof_valid(mechanism: Mechanism, stored: bytes, auth: bytes, proof: bytes) -> bool:
    """Return whether a client's proof fits the stored key, in constant time."""
    if len(proof) != mechanism.digest_bytes or len(stored) != mechanism.digest_bytes:
        return False
    key = _xor(hmac.digest(stored, auth, mechanism.hash_name), proof)
    return hmac.compare_digest(stored_key(mechanism, key), stored)


def server_signature(mechanism: Mechanism, key: bytes, auth: bytes) -> bytes:
    """Return the proof that the server has the server key."""
    return hmac.digest(key, auth, mechanism.hash_name)


def is_signature_valid(mechanism: Mechanism, salted: bytes, auth: bytes, signature: bytes) -> bool:
    """Return whether a server's signature fits the salted password, in constant time."""
    expected = server_signature(mechanism, server_key(mechanism, salted), auth)
    return hmac.compare_digest(expected, signature)


def sasl_name(username: str) -> str:
    """Return a user name with `=` and `,` escaped."""
    return username.replace("=", "=3D").replace(",", "=2C")


def username_of(name: str) -> str:
    """Return the user name of an escaped one; raise InvalidSaslMessage for a stray `=`."""
    if "=" in name.replace("=2C", "").replace("=3D", ""):
        raise InvalidSaslMessage("the user name of a SCRAM message has a '=' that is not escaped")
    return name.replace("=2C", ",").replace("=3D", "=")


# The four messages. `decode` keeps the text as received, because both sides sign that text.

_VALUE: Final = r"[\x01-\x2b\x2d-\x7f]+"
_NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_PRINTABLE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64: Final = r"[A-Za-z0-9/+]*={0,2}"
_EXTENSIONS: Final = rf"(?:,[A-Za-z]+={_VALUE})*"
_CLIENT_FIRST: Final = re.compile(
    rf"(?P<header>n,(?:a=(?P<authzid>{_NAME}))?,)"
    rf"(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>{_PRINTABLE})(?P<extensions>{_EXTENSIONS}))"
)
_SERVER_FIRST: Final = re.compile(
    rf"r=(?P<nonce>{_PRINTABLE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,10}}){_EXTENSIONS}"
)
_CLIENT_FINAL: Final = re.compile(
    rf"(?P<bare>c=(?P<channel>{_BASE64}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)
_SERVER_FINAL: Final = re.compile(
    rf"(?:e=(?P<error>{_VALUE})|v=(?P<signature>{_BASE64}){_EXTENSIONS})"
)


@dataclass(frozen=True)
class ClientFirst:
    """The client's first message: who it is, and its nonce."""

    username: str
    nonce: str
    extensions: Mapping[str, str] = field(default_factory=dict)
    authorization_id: str = ""
    received: tuple[str, str] | None = field(default=None, repr=False, compare=False)
    """Header and the rest, as received."""

    @property
    def gs2_header(self) -> str:
        """What the client's final message repeats as channel binding."""
        if self.received is not None:
            return self.received[0]
        name = f"a={sasl_name(self.authorization_id)}" if self.authorization_id else ""
        return f"n,{name},"

    @property
    def bare(self) -> str:
        """The message without its header, as it is signed."""
        if self.received is not None:
            return self.received[1]
        extensions = "".join(f",{name}={value}" for name, value in self.extensions.items())
        return f"n={sasl_name(self.username)},r={self.nonce}{extensions}"

    @property
    def is_token(self) -> bool:
        """Whether the credentials are those of a delegation token."""
        return self.extensions.get(TOKEN_AUTH, "").lower() == "true"

    def encode(self) -> bytes:
        """Return the bytes to send."""
        return f"{self.gs2_header}{self.bare}".encode()

    @classmethod
    def decode(cls, data: bytes) -> "ClientFirst":
        """Return the message that a client sent; raise InvalidSaslMessage."""
        found = _match(_CLIENT_FIRST, data, "client's first")
        extensions = _extensions(found["extensions"])
        return cls(
            username_of(found["name"]),
            _bounded_nonce(found["nonce"]),
            extensions,
            username_of(found["authzid"] or ""),
            (found["header"], found["bare"]),
        )


@dataclass(frozen=True)
class ServerFirst:
    """The server's challenge. Its nonce begins with the client's."""

    nonce: str
    salt: bytes = field(repr=False)
    iterations: int
    received: str | None = field(default=None, repr=False, compare=False)

    @property
    def text(self) -> str:
        """The message as it is sent and signed."""
        if self.received is not None:
            return self.received
        return f"r={self.nonce},s={_base64(self.salt)},i={self.iterations}"

    def encode(self) -> bytes:
        """Return the bytes to send."""
        return self.text.encode()

    @classmethod
    def decode(cls, data: bytes) -> "ServerFirst":
        """Return the message that a server sent; raise InvalidSaslMessage."""
        found = _match(_SERVER_FIRST, data, "server's first")
        salt = _bytes(found["salt"])
        if not 1 <= len(salt) <= SALT_BYTES_MAX:
            raise InvalidSaslMessage(
                f"a SCRAM salt has {len(salt)} bytes, 1 to {SALT_BYTES_MAX} are allowed"
            )
        iterations = int(found["iterations"])
        if not 1 <= iterations <= CHALLENGE_ITERATIONS_MAX:
            raise InvalidSaslMessage(
                f"a SCRAM server asks for {iterations} iterations, "
                f"1 to {CHALLENGE_ITERATIONS_MAX} are allowed"
            )
        return cls(_bounded_nonce(found["nonce"]), salt, iterations, found[0])


@dataclass(frozen=True)
class ClientFinal:
    """The client's final message without its proof, which is not known when this is signed."""

    channel_binding: str
    """The header of the client's first message, `n,,` as a rule."""
    nonce: str
    proof: bytes = field(default=b"", repr=False)
    received: str | None = field(default=None, repr=False, compare=False)

    @property
    def without_proof(self) -> str:
        """The message as it is signed."""
        if self.received is not None:
            return self.received
        return f"c={_base64(self.channel_binding.encode())},r={self.nonce}"

    def encode(self, proof: bytes) -> bytes:
        """Return the bytes to send."""
        return f"{self.without_proof},p={_base64(proof)}".encode()

    @classmethod
    def decode(cls, data: bytes) -> "ClientFinal":
        """Return the message that a client sent; raise InvalidSaslMessage."""
        found = _match(_CLIENT_FINAL, data, "client's final")
        channel = _bytes(found["channel"])
        try:
            header = channel.decode("ascii")
        except UnicodeDecodeError:
            raise InvalidSaslMessage("the channel binding of a SCRAM message is not text") from None
        return cls(header, _bounded_nonce(found["nonce"]), _bytes(found["proof"]), found["bare"])


@dataclass(frozen=True)
class ServerFinal:
    """The server's final message: its signature, or an error."""

    signature: bytes = field(default=b"", repr=False)
    error: str | None = None

    def encode(self) -> bytes:
        """Return the bytes to send."""
        return (
            f"v={_base64(self.signature)}" if self.error is None else f"e={self.error}"
        ).encode()

    @classmethod
    def decode(cls, data: bytes) -> "ServerFinal":
        """Return the message that a server sent; raise InvalidSaslMessage."""
        found = _match(_SERVER_FINAL, data, "server's final")
        if found["error"] is not None:
            return cls(error=found["error"])
        return cls(_bytes(found["signature"]))


def auth_message(first: ClientFirst, challenge: ServerFirst, final: ClientFinal) -> bytes:
    """Return the text that proof and signature are made over."""
    return f"{first.bare},{challenge.text},{final.without_proof}".encode()


def _match(pattern: "re.Pattern[str]", data: bytes, which: str) -> "re.Match[str]":
    """Return the match of a whole message. The error does not quote it: it may hold a proof."""
    if len(data) > MESSAGE_BYTES_MAX:
        raise InvalidSaslMessage(
            f"a SCRAM message has {len(data)} bytes, {MESSAGE_BYTES_MAX} are allowed"
        )
    try:
        found = pattern.fullmatch(data.decode("ascii"))
    except UnicodeDecodeError:
        found = None
    if found is None:
        raise InvalidSaslMessage(f"these bytes are not the {which} message of SCRAM")
    return found


def _extensions(text: str) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in text.split(",") if pair]
    if len(pairs) > EXTENSIONS_MAX:
        raise InvalidSaslMessage(
            f"a SCRAM message has {len(pairs)} extensions, {EXTENSIONS_MAX} are allowed"
        )
    extensions = {name: value for name, _, value in pairs}
    if len(extensions) != len(pairs):
        raise InvalidSaslMessage("a SCRAM message names an extension twice")
    return extensions


def _bounded_nonce(nonce: str) -> str:
    if len(nonce) > NONCE_CHARS_MAX:
        raise InvalidSaslMessage(
            f"a SCRAM nonce has {len(nonce)} characters, {NONCE_CHARS_MAX} are allowed"
        )
    return nonce


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise InvalidSaslMessage("a SCRAM message has a value that is not Base64") from None


def _xor(first: bytes, second: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(first, second, strict=True))
