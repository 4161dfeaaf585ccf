"""Connections of a listener with SASL against a reference: what each state of a client allows.

A sequence is what one client sends: handshakes, tokens (right, wrong, another user's, replayed, cut
off), other requests, garbage and frames that are too large; one by one or in one write, in pieces,
with pauses in which logins and sessions run out. The reference says which responses there are, as
whom requests are served, and when the connection is closed. Time is virtual, nothing has a socket.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from headrace.api import sasl_authenticate, sasl_handshake
from headrace.config import Settings
from headrace.errors import ErrorCode
from headrace.loop.counters import Counters
from headrace.metadata.credential_shapes import Shape
from headrace.sasl import scram
from headrace.sasl.errors import SaslError
from headrace.security.authentication import Authentication, Exchange, Mechanism
from headrace.security.plain import PlainExchange
from headrace.security.principals import ANONYMOUS
from headrace.security.scram import ScramExchange
from headrace.server import gate, secured
from headrace.server.dispatch import Dispatcher
from headrace.server.gate import REQUESTS_MAX
from headrace.server.request import LATER, Request
from headrace.server.secured import GATED_READ_BYTES, ListenerSecurity, SecuredConnection
from headrace.server.traffic import Traffic
from headrace.testing.virtual_loop import VirtualLoop
from headrace.wire import ApiKey, FrameReader, read_response, request_parts
from headrace.wire.messages.api_versions_request import ApiVersionsRequest
from headrace.wire.messages.api_versions_response import ApiVersionsResponse
from headrace.wire.messages.list_groups_request import ListGroupsRequest
from headrace.wire.messages.list_groups_response import ListedGroup, ListGroupsResponse
from headrace.wire.messages.produce_request import ProduceRequest
from headrace.wire.messages.produce_response import ProduceResponse
from headrace.wire.messages.request_header import RequestHeader
from headrace.wire.messages.sasl_authenticate_request import SaslAuthenticateRequest
from headrace.wire.messages.sasl_handshake_request import SaslHandshakeRequest
from headrace.wire.schema import Message
from tests.unit.server.test_connection import Wire

GATED_BYTES_MAX = 120_000
FRAME_BYTES_MAX = 200_000
TIMEOUT_MS = 1003
LIFETIME_MS = 2007
"""Deadlines that nothing else coincides with: all other times are multiples of ten."""
DELAY_MS = 100
LATER_MS = 50
"""How long a produce waits for its replicas."""
USERS = {"alice": "alice-secret", "bob": "bob-secret"}
SHA = scram.SCRAM_SHA_256
SALT = b"salt" * 4
SALTED = {
    name: scram.salted_password(SHA, password, SALT, scram.ITERATIONS_MIN)
    for name, password in USERS.items()
}
CREDENTIALS = {
    name: scram.credential_of(SHA, salted, SALT, scram.ITERATIONS_MIN)
    for name, salted in SALTED.items()
}
SHAPE = Shape(scram.ITERATIONS_MIN, len(SALT))


# What a client sends


class Sent(NamedTuple):
    """A frame, and what the reference has to know of it."""

    kind: str
    body: Message | None = None
    version: int = 0
    name: str = ""
    """The mechanism of a handshake, the user of a token that is right."""
    raw: bytes = b""
    client_id: str = ""


VERSIONS = Sent("versions", ApiVersionsRequest(), 3)
TOO_NEW = Sent("versions", ApiVersionsRequest(), 3, raw=b"\x00\x12\x00\x63")
OTHER = Sent("other", ListGroupsRequest(), 4)
LARGE = Sent("other", ListGroupsRequest(states_filter=["x" * 1000] * 100), 4)
PRODUCE = Sent("produce", ProduceRequest(acks=1, timeout_ms=1, topic_data=[]), 9)
PRODUCE_LATER = PRODUCE._replace(client_id="later")


def handshake(name: str) -> Sent:
    return Sent("handshake", SaslHandshakeRequest(mechanism=name), 1, name)


def token(data: bytes, user: str = "", kind: str = "wrong") -> Sent:
    return Sent(kind, SaslAuthenticateRequest(auth_bytes=data), 2, user)


def plain(user: str) -> Sent:
    return token(f"\0{user}\0{USERS[user]}".encode(), user, "plain")


def first(user: str, nonce: str) -> Sent:
    message = scram.ClientFirst(user, nonce).encode()
    return token(bytes(message), user, "first")


CUT = Sent("junk", raw=b"\x00\x24\x00\x02\x00\x00\x00\x07\x00\x01c\x00\x7f")
"""A SaslAuthenticate that ends in the middle of its token."""
STRANGE = Sent("junk", raw=b"\x03\xe7\x00\x00\x00\x00\x00\x07\x00\x00")
"""A request of an API that there is not."""
SHORT = Sent("junk", raw=b"\x00")
EMPTY = Sent("junk", raw=b"")


# What has to come of it


@dataclass
class Reference:
    """What the client of a connection may do, and what it hears."""

    now_ms: int
    heard: list[tuple[str, str]] = field(default_factory=list)
    principal: str = ""
    chosen: str = ""
    """The mechanism of an exchange that goes on."""
    stage: str = ""
    """Whose proof is awaited by SCRAM, and `?` before that."""
    proved_with: str = ""
    count: int = 0
    is_open: bool = True
    ends_ms: int = 0
    """When the connection is closed unless the client does something about it."""
    busy_ms: int = 0
    """When the requests before have their responses."""
    is_overlapping: bool = False
    """Whether those are produces, which others do not wait for."""

    def __post_init__(self) -> None:
        self.ends_ms = self.now_ms + TIMEOUT_MS

    def wait(self, now_ms: int) -> None:
        self.now_ms = now_ms
        if now_ms >= self.ends_ms:
            self.is_open = False

    def take(self, sent: Sent) -> None:
        """Say what comes of a frame."""
        if not self.is_open:
            return
        begins_ms = max(self.now_ms, self.busy_ms)
        if sent.kind == "produce" and self.is_overlapping:
            begins_ms = self.now_ms
        if begins_ms >= self.ends_ms:
            self.is_open = False
            return
        if not self.principal:
            self.count += 1
            if self.count > REQUESTS_MAX:
                self.is_open = False
                return
        if sent.kind == "junk" or (sent.kind in ("other", "produce") and not self.principal):
            self.is_open = False
            return
        getattr(self, f"_{sent.kind}")(sent, begins_ms)

    def _say(self, kind: str, what: str, at_ms: int) -> None:
        """Note a response, unless the connection is closed before it is its turn."""
        at_ms = self.busy_ms = max(at_ms, self.busy_ms)
        if at_ms < self.ends_ms:
            self.heard.append((kind, what))
        self.is_overlapping = kind == "produce" and at_ms > self.now_ms

    def _versions(self, sent: Sent, at_ms: int) -> None:
        self._say("versions", "35" if sent.raw else "0", at_ms)

    def _other(self, sent: Sent, at_ms: int) -> None:
        self._say("other", self.principal, at_ms)

    def _produce(self, sent: Sent, at_ms: int) -> None:
        self._say("produce", "", at_ms + (LATER_MS if sent.client_id else 0))

    def _handshake(self, sent: Sent, at_ms: int) -> None:
        code = ErrorCode.NONE
        if self.chosen:
            code = ErrorCode.ILLEGAL_SASL_STATE
        elif sent.name not in MECHANISMS:
            code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
        elif self.proved_with and sent.name != self.proved_with:
            code = ErrorCode.ILLEGAL_SASL_STATE
        self._say("handshake", code.name, at_ms)
        if code is ErrorCode.NONE:
            self.chosen, self.stage = sent.name, "?"
        else:
            self.is_open = False

    def _token(self, at_ms: int, user: str | None) -> None:
        """Take a token that proves a user, is fine so far (empty) or proves nothing (None)."""
        if not self.chosen:
            self._say("token", ErrorCode.ILLEGAL_SASL_STATE.name, at_ms)
            self.is_open = False
            return
        principal = f"User:{user}" if user else ""
        if user is None or (principal and self.principal not in ("", principal)):
            self._say("token", ErrorCode.SASL_AUTHENTICATION_FAILED.name, at_ms + DELAY_MS)
            self.is_open = False
            return
        if principal:
            self.principal, self.proved_with = principal, self.chosen
            self.chosen = self.stage = ""
            self.ends_ms = at_ms + LIFETIME_MS
        self._say("token", f"{ErrorCode.NONE.name} {LIFETIME_MS if principal else 0}", at_ms)

    def _wrong(self, sent: Sent, at_ms: int) -> None:
        self._token(at_ms, None)

    def _plain(self, sent: Sent, at_ms: int) -> None:
        self._token(at_ms, sent.name if self.chosen == "PLAIN" else None)

    def _first(self, sent: Sent, at_ms: int) -> None:
        is_due = self.chosen == SHA.name and self.stage == "?"
        self._token(at_ms, "" if is_due else None)
        if is_due:
            self.stage = sent.name

    def _final(self, sent: Sent, at_ms: int) -> None:
        """The proof of the exchange that goes on: only that one is sent as such."""
        is_due = self.chosen == SHA.name and self.stage == sent.name
        self._token(at_ms, sent.name if is_due and sent.name in USERS else None)


MECHANISMS = ("PLAIN", SHA.name)


# The broker's side, and the wire


class Loop(VirtualLoop):
    """Its threads work at once."""

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done


class Side:
    """A listener and one client of it."""

    def __init__(self, random: Random, dispatcher: Dispatcher, traffic: Traffic) -> None:
        self.random = random
        self.wire = Wire()
        self.traffic = traffic
        mechanisms = {
            "PLAIN": Mechanism(lambda: PlainExchange(USERS), LIFETIME_MS),
            SHA.name: Mechanism(self._scram, LIFETIME_MS),
        }
        security = ListenerSecurity(
            *("SASL", "SASL_PLAINTEXT", TIMEOUT_MS, now_ms),
            mechanisms=mechanisms,
            receive_bytes_max=GATED_BYTES_MAX,
            failure_delay_ms=DELAY_MS,
        )
        self.connection = SecuredConnection(security, dispatcher, traffic)
        self.connection.connection_made(self.wire)
        self.asked: list[tuple[ApiKey, int]] = []
        self._frames = FrameReader()
        self._read = 0
        self.heard: list[tuple[str, str]] = []
        self.challenge: bytes = b""
        """The last of SCRAM."""

    def _scram(self) -> Exchange:
        nonce = f"{self.random.getrandbits(64):x}"
        return ScramExchange(SHA, CREDENTIALS.get, nonce, b"s" * 32, shapes=lambda number: SHAPE)

    def data_of(self, sent: Sent) -> bytes:
        """Return the bytes of a frame with its size."""
        if sent.body is None:
            return len(sent.raw).to_bytes(4) + sent.raw
        key = ApiKey(sent.body.API_KEY)
        self.asked.append((key, 0 if sent.raw else sent.version))
        header = RequestHeader(
            request_api_key=int(key),
            request_api_version=sent.version,
            correlation_id=len(self.asked) - 1,
            client_id=sent.client_id,
        )
        data = b"".join(map(bytes, request_parts(header, sent.body)))
        return data[:4] + sent.raw + data[8:] if sent.raw else data

    def send(self, data: bytes) -> None:
        """Hand over bytes in pieces of any size, as the kernel would."""
        connection = self.connection
        while data and not self.is_closed:
            room = connection.get_buffer(-1)
            size = min(len(room), len(data), self.random.choice((1, 3, 100, 10**6, 10**6)))
            assert connection.principal != ANONYMOUS or len(room) <= GATED_READ_BYTES
            room[:size] = data[:size]
            connection.buffer_updated(size)
            data = data[size:]

    def listen(self) -> None:
        """Take note of the responses."""
        new = bytes(self.wire.sent[self._read :])
        self._read = len(self.wire.sent)
        for frame in self._frames.feed(new):
            key, version = self.asked[int.from_bytes(frame[:4])]
            body: Any = read_response(frame, key, version)[1]
            match key:
                case ApiKey.API_VERSIONS:
                    self.heard.append(("versions", str(body.error_code)))
                case ApiKey.LIST_GROUPS:
                    self.heard.append(("other", body.groups[0].group_id))
                case ApiKey.PRODUCE:
                    self.heard.append(("produce", ""))
                case ApiKey.SASL_HANDSHAKE:
                    self.heard.append(("handshake", ErrorCode(body.error_code).name))
                case _:
                    self.challenge = bytes(body.auth_bytes)
                    code = ErrorCode(body.error_code)
                    ends = f" {body.session_lifetime_ms}" if code is ErrorCode.NONE else ""
                    self.heard.append(("token", code.name + ends))

    @property
    def is_closed(self) -> bool:
        return self.wire.is_aborted or self.wire.is_ended


def now_ms() -> int:
    return round(asyncio.get_running_loop().time() * 1000)


def answer_versions(broker: Any, request: Request) -> Message:
    return ApiVersionsResponse(error_code=0 if request.body is not None else 35)


def list_groups(broker: Any, request: Request) -> Message:
    return ListGroupsResponse(groups=[ListedGroup(group_id=request.peer.principal)])


def produce(broker: Any, request: Request) -> object:
    if not request.client_id:
        return ProduceResponse()
    loop = asyncio.get_running_loop()
    timer = loop.call_later(LATER_MS / 1000, request.answer, ProduceResponse())
    request.peer.on_close[timer.cancel] = None
    return LATER


HANDLERS: Any = {
    ApiKey.API_VERSIONS: answer_versions,
    ApiKey.LIST_GROUPS: list_groups,
    ApiKey.PRODUCE: produce,
    ApiKey.SASL_HANDSHAKE: sasl_handshake.handle,
    ApiKey.SASL_AUTHENTICATE: sasl_authenticate.handle,
}


def made_dispatcher() -> tuple[Dispatcher, Counters]:
    counters = Counters()
    broker: Any = SimpleNamespace(
        counters=counters, settings=Settings(), audit=None, clock=SimpleNamespace(now_ms=now_ms)
    )
    dispatcher = Dispatcher(broker, HANDLERS, HANDLERS.__getitem__)
    dispatcher.prepare_all()
    return dispatcher, counters


# A sequence


class Client:
    """Chooses what is sent: mostly what gets somewhere, and in between whatever does not."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.number = 0
        self.replays: list[bytes] = []
        self.awaits: tuple[str, scram.ClientFirst] | None = None

    def choose(self, side: Side, state: Reference) -> tuple[list[Sent], bool]:
        """Return what is sent in one write, and whether its responses are waited for."""
        random = self.random
        if random.random() < 0.02:
            return [VERSIONS] * random.randrange(10, 2 * REQUESTS_MAX), True
        sents = self._due(side, state) if random.random() < 0.7 else self._some(6)
        return sents, sents[-1:] == [] or sents[-1].kind == "first" or random.random() < 0.5

    def _due(self, side: Side, state: Reference) -> list[Sent]:
        """Return what gets a client further."""
        random = self.random
        if self.awaits is not None and side.challenge:
            return [self._final(side)]
        if state.chosen == "PLAIN":
            return [plain("alice" if random.random() < 0.8 else "bob"), *self._some(3)]
        if state.chosen:
            return [self._first()]
        if not state.principal:
            return [handshake(random.choice(MECHANISMS))]
        return [*self._some(6), *([handshake(state.proved_with)] if random.random() < 0.4 else [])]

    def _some(self, most: int) -> list[Sent]:
        return [self._any() for _ in range(self.random.randrange(most + 1))]

    def _any(self) -> Sent:
        random = self.random
        kind = random.choices(
            ("versions", "other", "produce", "handshake", "plain", "wrong", "first", "junk"),
            (30, 20, 20, 3, 2, 1, 1, 1),
        )[0]
        if kind == "first":
            return self._first()
        choices: dict[str, tuple[Sent, ...]] = {
            "versions": (VERSIONS, VERSIONS, TOO_NEW),
            "other": (OTHER, OTHER, OTHER, LARGE),
            "produce": (PRODUCE, PRODUCE_LATER),
            "handshake": tuple(map(handshake, (*MECHANISMS, "OTHER", ""))),
            "plain": tuple(map(plain, USERS)),
            "wrong": (token(self._nonsense()),),
            "junk": (CUT, STRANGE, SHORT, EMPTY),
        }
        return random.choice(choices[kind])

    def _nonsense(self) -> bytes:
        random = self.random
        choices = [random.randbytes(random.randrange(40)), b"", b"\0alice\0wrong", b"\0nobody\0x"]
        return random.choice(choices + self.replays)

    def _first(self) -> Sent:
        self.number += 1
        user = self.random.choice(("alice", "alice", "alice", "bob", "nobody"))
        nonce = f"client{self.number}-"
        self.awaits = user, scram.ClientFirst(user, nonce)
        return first(user, nonce)

    def _final(self, side: Side) -> Sent:
        """Return the proof for the last challenge, or one that is none."""
        assert self.awaits is not None
        (user, message), self.awaits = self.awaits, None
        try:
            challenge = scram.ServerFirst.decode(side.challenge)
        except SaslError:
            return token(self._nonsense())
        is_wrong = self.random.random() < 0.15 or not challenge.nonce.startswith(message.nonce)
        final = scram.ClientFinal(message.gs2_header, challenge.nonce)
        text = scram.auth_message(message, challenge, final)
        salted = SALTED.get(user, bytes(SHA.digest_bytes))
        proof = scram.client_proof(SHA, bytes(SHA.digest_bytes) if is_wrong else salted, text)
        data = bytes(final.encode(proof))
        self.replays.append(data)
        return token(data) if is_wrong else token(data, user, "final")


async def play(seed: int, dispatcher: Dispatcher, counters: Counters) -> str:
    """Play a sequence; return how the client ended: in which state, and whether it was closed."""
    random = Random(seed)
    traffic = Traffic(counters, request_bytes_max=FRAME_BYTES_MAX, requests_max=100)
    side, client = Side(random, dispatcher, traffic), Client(random)
    state = Reference(now_ms())
    for _ in range(random.randrange(1, 14)):
        if random.random() < 0.02:
            await asyncio.sleep(DELAY_MS * 3 / 1000)  # what was sent before has its responses
            state.wait(now_ms())
            limit = FRAME_BYTES_MAX if state.principal else GATED_BYTES_MAX
            side.send((limit + 1).to_bytes(4))
            state.is_open = False
            break
        sents, is_awaited = client.choose(side, state)
        for sent in sents:
            state.take(sent)
        side.send(b"".join(map(side.data_of, sents)))
        await settle()
        side.listen()
        if is_awaited or random.random() < 0.3:
            wait_ms = random.choice((10, 60, 200, 200, 200, 700, 900, 1500, 2200))
            await asyncio.sleep(wait_ms / 1000)
            state.wait(now_ms())
            side.listen()
        if not state.is_open:
            break
    await asyncio.sleep(DELAY_MS * 3 / 1000)
    state.wait(now_ms())
    side.listen()
    assert side.heard == state.heard, (seed, side.heard, state.heard)
    assert side.is_closed == (not state.is_open), (seed, state)
    side.connection.connection_lost(None)
    await settle()
    assert not traffic.connections, seed
    assert not traffic.handshakes, seed
    assert traffic.in_flight_bytes == 0, seed
    assert traffic._per_host == {}, seed
    left = [each for each in asyncio.get_running_loop()._scheduled if not each.cancelled()]  # type: ignore[attr-defined]
    assert left == [], seed
    return f"{'in' if state.principal else 'out'} {'open' if state.is_open else 'closed'}"


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def run(seeds: range) -> dict[str, int]:
    """Play sequences; return how many ended how."""
    ends: dict[str, int] = {}

    async def play_all() -> None:
        dispatcher, counters = made_dispatcher()
        for seed in seeds:
            end = await play(seed, dispatcher, counters)
            ends[end] = ends.get(end, 0) + 1
        dispatcher.close()

    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(play_all())
    return ends


@pytest.fixture(autouse=True)
def _long_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine must not decide what is done in one turn."""
    monkeypatch.setattr("headrace.server.connection.TURN_NS_MAX", 10**15)
    monkeypatch.setattr("headrace.server.traffic.TURN_NS_MAX", 10**15)


def test_no_sequence_of_requests_gets_more_than_its_state_allows(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        ends = run(range(400))
    assert caplog.records == []
    assert len(ends) == 4, ends
    assert min(ends.values()) > 10, ends


@pytest.mark.exhaustive
@pytest.mark.timeout(0)
def test_nor_does_one_of_a_hundred_thousand(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        run(range(100_000))
    assert caplog.records == []


def let_everybody_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "OPEN", gate.OPEN | {ApiKey.LIST_GROUPS})


def overlook_large_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate.Gate, "is_produce", staticmethod(lambda frame: False))


def count_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "REQUESTS_MAX", 10**9)


def never_end_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secured.SecuredConnection, "_on_session_over", lambda self: None)
    monkeypatch.setattr(Authentication, "is_expired", lambda self, now_ms: False)


def forget_who_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    handshake_before = Authentication.handshake

    def handshake_anew(self: Authentication, name: str) -> ErrorCode:
        self.principal, self._mechanism = None, ""
        return handshake_before(self, name)

    monkeypatch.setattr(Authentication, "handshake", handshake_anew)


def take_any_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.sasl.scram.is_proof_valid", lambda *arguments: True)


def let_a_failed_client_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secured.SecuredConnection, "finish", lambda self, reason: None)


@pytest.mark.parametrize(
    "plant",
    [
        let_everybody_list,
        overlook_large_requests,
        count_nothing,
        never_end_a_session,
        forget_who_it_was,
        take_any_proof,
        let_a_failed_client_go_on,
    ],
)
def test_a_flaw_is_noticed(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, ValueError)):
        run(range(400))
