"""The client of SCRAM: proves the password without sending it, and checks the server. Pure."""

from collections.abc import Mapping
from enum import Enum, auto

from headrace.sasl import scram
from headrace.sasl.errors import CredentialsRefused, InvalidSaslMessage, PeerNotAuthentic, SaslError
from headrace.sasl.scram import ClientFinal, ClientFirst, Mechanism, ServerFinal, ServerFirst
from headrace.sasl.secret import Secret


class _State(Enum):
    FIRST = auto()
    CHALLENGED = auto()
    PROVEN = auto()
    COMPLETE = auto()
    FAILED = auto()


class ScramClient:
    """One exchange of SCRAM.

    The step that takes the challenge computes thousands of hashes: milliseconds of a core, which a
    shell spends off its loop.
    """

    def __init__(
        self,
        mechanism: Mechanism,
        username: str,
        password: Secret,
        nonce: str,
        extensions: Mapping[str, str] | None = None,
    ) -> None:
        """Take credentials and a random nonce of printable ASCII without commas."""
        if not username:
            raise SaslError(f"{mechanism.name} needs a user name")
        self.mechanism = mechanism.name
        self._mechanism = mechanism
        self._password = password
        self._first = ClientFirst(username, nonce, extensions or {})
        self._auth = b""
        self._salted = Secret("")
        self._state = _State.FIRST

    def step(self, challenge: bytes) -> bytes | None:
        """Take a message of the server; return the next of the client, or None at the end."""
        state, self._state = self._state, _State.FAILED
        match state:
            case _State.FIRST:
                if challenge:
                    raise InvalidSaslMessage("the server spoke before the client in SCRAM")
                message, self._state = self._first.encode(), _State.CHALLENGED
                return message
            case _State.CHALLENGED:
                message, self._state = self._prove(challenge), _State.PROVEN
                return message
            case _State.PROVEN:
                self._verify(challenge)
                self._state = _State.COMPLETE
                return None
            case _:
                raise InvalidSaslMessage("the server sent more than SCRAM's messages")

    def _prove(self, challenge: bytes) -> bytes:
        server = ServerFirst.decode(challenge)
        ours = self._first.nonce
        if not server.nonce.startswith(ours) or len(server.nonce) == len(ours):
            raise PeerNotAuthentic("the server's nonce does not extend ours: it may be a replay")
        if server.iterations < scram.ITERATIONS_MIN:
            raise PeerNotAuthentic(
                f"the server asks for {server.iterations} iterations of {self.mechanism}; fewer "
                f"than {scram.ITERATIONS_MIN} would make the password easy to guess"
            )
        final = ClientFinal(self._first.gs2_header, server.nonce)
        self._auth = scram.auth_message(self._first, server, final)
        salted = scram.salted_password(
            self._mechanism, self._password.reveal(), server.salt, server.iterations
        )
        self._salted = Secret(salted.hex())
        return final.encode(scram.client_proof(self._mechanism, salted, self._auth))

    def _verify(self, end: bytes) -> None:
        server = ServerFinal.decode(end)
        if server.error is not None:
            raise CredentialsRefused(f"{self.mechanism} failed: {server.error}")
        salted = bytes.fromhex(self._salted.reveal())
        if not scram.is_signature_valid(self._mechanism, salted, self._auth, server.signature):
            raise PeerNotAuthentic("the server did not prove that it knows the password")
