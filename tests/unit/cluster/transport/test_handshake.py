"""Who is at the other end: every way in which a handshake goes well, or is refused."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cluster.protocol import RequestHeader, encode_request, requests
from headrace.cluster.transport.handshake import (
    Acceptor,
    Channel,
    Established,
    Initiator,
    Local,
    SeedClient,
    Step,
)
from headrace.cluster.transport.hello import (
    HEADER,
    MAGIC,
    Identity,
    Proof,
    Purpose,
    Refusal,
    encode_word,
    take_word,
)
from headrace.cluster.transport.refusals import (
    TEXT_CHARACTERS_MAX,
    Reason,
    Refused,
    not_pinned,
    told_by_peer,
)
from headrace.ids import BrokerId as NodeId
from headrace.security.node_names import NodeName

SECRET = b"a secret of the mill"
ONE = Identity(NodeId(1), b"1" * 16, 5, "mill")
TWO = Identity(NodeId(2), b"2" * 16, 9, "mill")


def local(identity: Identity, letter: bytes, **changes: Any) -> Local:
    made = Local(identity, SECRET, letter * 32, is_loopback=False)
    return made._replace(**changes)


def initiator(**changes: Any) -> Initiator:
    to = changes.pop("to", NodeId(2))
    purpose = changes.pop("purpose", Purpose.CONTROL)
    identity = changes.pop("identity", ONE)
    return Initiator(local(identity, b"i", **changes), to=to, purpose=purpose)


def acceptor(**changes: Any) -> Acceptor:
    judge = changes.pop("judge", lambda peer, purpose: None)
    identity = changes.pop("identity", TWO)
    return Acceptor(local(identity, b"a", **changes), judge)


def talk(one: Initiator, other: Acceptor, piece: int = 10_000) -> tuple[Any, Any]:
    """Bring what each says to the other in pieces until nothing is said; give both outcomes."""
    step = one.start()
    outcomes: list[Any] = [step.outcome, None]
    machines = (one, other)
    turn, sent = 1, step.send
    while sent:
        answer = b""
        for begin in range(0, len(sent), piece):
            step = machines[turn].receive(sent[begin : begin + piece])
            answer += step.send
            outcomes[turn] = outcomes[turn] or step.outcome
        turn, sent = 1 - turn, answer
    return outcomes[0], outcomes[1]


def reason_of(outcome: object) -> Reason:
    assert isinstance(outcome, Refused), outcome
    assert outcome.sentence
    return outcome.reason


@pytest.mark.parametrize("piece", [1, 3, 10_000])
@pytest.mark.parametrize("purpose", list(Purpose))
def test_both_sides_know_each_other_and_have_the_same_keys(piece: int, purpose: Purpose) -> None:
    here, there = talk(initiator(purpose=purpose), acceptor(), piece)
    assert isinstance(here, Established)
    assert isinstance(there, Established)
    assert (here.peer, there.peer) == (TWO, ONE)
    assert here.purpose is there.purpose is purpose
    assert here.send_key == there.receive_key
    assert here.receive_key == there.send_key
    assert len({here.send_key, here.receive_key, SECRET}) == 3


def test_keys_differ_from_connection_to_connection() -> None:
    first, _ = talk(initiator(), acceptor())
    second, _ = talk(initiator(nonce=b"x" * 32), acceptor())
    third, _ = talk(initiator(), acceptor(nonce=b"y" * 32))
    assert len({first.send_key, second.send_key, third.send_key}) == 3


def test_a_node_that_has_not_joined_is_let_in_both_ways() -> None:
    for one, other in ((ONE._replace(cluster_id=""), TWO), (ONE, TWO._replace(cluster_id=""))):
        here, there = talk(initiator(identity=one), acceptor(identity=other))
        assert isinstance(here, Established)
        assert isinstance(there, Established)


def test_whoever_is_at_an_address_may_be_asked() -> None:
    here, _ = talk(initiator(to=None), acceptor())
    assert isinstance(here, Established)
    assert here.peer == TWO


def test_without_a_secret_loopback_is_enough_and_needed() -> None:
    here, there = talk(
        initiator(secret=None, is_loopback=True), acceptor(secret=None, is_loopback=True)
    )
    assert isinstance(here, Established)
    assert isinstance(there, Established)
    assert here.send_key is here.receive_key is there.send_key is None
    far, _ = talk(initiator(secret=None), acceptor(secret=None))
    assert reason_of(far) is Reason.NOT_LOOPBACK
    here, there = talk(initiator(secret=None, is_loopback=True), acceptor(secret=None))
    assert reason_of(there) is reason_of(here) is Reason.NOT_LOOPBACK
    assert here.is_by_peer


@pytest.mark.parametrize(
    ("here", "there", "reason"),
    [
        ({"identity": ONE._replace(cluster_id="other")}, {}, Reason.WRONG_CLUSTER),
        ({"secret": b"another"}, {}, Reason.WRONG_SECRET),
        ({"secret": None, "is_loopback": True}, {"is_loopback": True}, Reason.SECRET_MISSING),
        ({"is_loopback": True}, {"secret": None, "is_loopback": True}, Reason.SECRET_UNEXPECTED),
        ({"identity": TWO}, {}, Reason.SELF_CONNECTION),
        ({"identity": TWO._replace(folder_id=b"3" * 16)}, {}, Reason.DUPLICATE_NODE_ID),
        ({"identity": TWO._replace(boot_epoch=10)}, {}, Reason.DUPLICATE_NODE_ID),
        ({"to": NodeId(3)}, {}, Reason.WRONG_NODE),
    ],
)
def test_a_refusal_is_known_on_both_sides_by_its_reason(
    here: dict[str, Any], there: dict[str, Any], reason: Reason
) -> None:
    told, refused = talk(initiator(**here), acceptor(**there))
    assert reason_of(refused) is reason
    assert refused.remedy
    assert reason_of(told) is reason
    assert told.is_by_peer
    assert (told.sentence, told.remedy) == (refused.sentence, refused.remedy)


def test_what_the_node_knows_of_others_decides_only_about_who_is_proven() -> None:
    asked: list[Identity] = []

    def judge(peer: Identity, purpose: Purpose) -> Refused:
        asked.append(peer)
        return Refused(Reason.OLD_LIFE, "an older life", "stop it")

    told, refused = talk(initiator(secret=b"wrong"), acceptor(judge=judge))
    assert reason_of(refused) is Reason.WRONG_SECRET
    assert not asked
    told, refused = talk(initiator(), acceptor(judge=judge))
    assert asked == [ONE]
    assert reason_of(told) is reason_of(refused) is Reason.OLD_LIFE


def old_life(peer: Identity, purpose: Purpose) -> Refused:
    return Refused(Reason.OLD_LIFE, "an older life", "stop it")


OLD_LIFE = Refusal(Reason.OLD_LIFE, "an older life", "stop it")


@pytest.mark.parametrize("tag", [b"", bytes(32)])
@pytest.mark.parametrize("is_behind_hello", [False, True])
def test_a_refusal_by_somebody_without_the_secret_is_not_proven(
    tag: bytes, is_behind_hello: bool
) -> None:
    one = initiator()
    hello = one.start().send
    if is_behind_hello:
        one.receive(acceptor().receive(hello).send)
    told = one.receive(encode_word(Refusal(Reason.OLD_LIFE, "an older life", "stop it", tag)))
    assert reason_of(told.outcome) is Reason.OLD_LIFE
    assert isinstance(told.outcome, Refused)
    assert not told.outcome.is_proven


@pytest.mark.parametrize("reason", [Reason.OLD_LIFE, Reason.TAKEN_NODE_ID])
def test_a_refusal_by_a_node_of_the_cluster_is_proven(reason: Reason) -> None:
    told, _ = talk(
        initiator(), acceptor(judge=lambda peer, purpose: Refused(reason, "it is", "so"))
    )
    assert reason_of(told) is reason
    assert told.is_proven
    twin = ONE._replace(folder_id=b"3" * 16)
    told, _ = talk(initiator(to=None), acceptor(identity=twin))
    assert reason_of(told) is Reason.DUPLICATE_NODE_ID
    assert told.is_proven


def test_a_proven_refusal_is_good_for_its_connection_and_its_words_only() -> None:
    def refusal(answer: Acceptor, one: Initiator) -> bytes:
        return answer.receive(one.receive(answer.receive(one.start().send).send).send).send

    recorded = refusal(acceptor(judge=old_life), initiator())
    again = initiator(nonce=b"x" * 32)
    again.receive(acceptor().receive(again.start().send).send)
    told = again.receive(recorded).outcome
    assert isinstance(told, Refused)
    assert not told.is_proven
    other = acceptor(judge=lambda peer, purpose: Refused(Reason.CLOSING, "it stops", "wait"))
    one = initiator()
    taken = take_word(bytearray(refusal(other, one)))
    assert isinstance(taken, tuple)
    word = taken[0]
    assert isinstance(word, Refusal)
    told = one.receive(
        encode_word(Refusal(Reason.OLD_LIFE, word.sentence, word.remedy, word.tag))
    ).outcome
    assert isinstance(told, Refused)
    assert not told.is_proven


def test_a_refusal_without_a_tag_is_proven_by_a_certificate_of_the_cluster() -> None:
    for seen, is_proven in ((channel(peer=TWO), True), (channel(peer=ONE), False)):
        one = initiator(channel=seen)
        one.start()
        told = one.receive(encode_word(OLD_LIFE)).outcome
        assert isinstance(told, Refused)
        assert told.is_proven is is_proven
    one = initiator(channel=channel(), purpose=Purpose.ONE_CALL)
    one.start()
    told = one.receive(encode_word(OLD_LIFE)).outcome
    assert isinstance(told, Refused)
    assert not told.is_proven


def test_where_nothing_is_proven_a_refusal_on_loopback_is_believed() -> None:
    one = initiator(secret=None, is_loopback=True)
    told, _ = talk(one, acceptor(secret=None, is_loopback=True, judge=old_life))
    assert told.is_proven


def test_older_nodes_read_a_refusal_with_a_tag() -> None:
    class Older(msgspec.Struct, tag=2, array_like=True, frozen=True):
        reason: int
        sentence: str
        remedy: str

    body = encode_word(Refusal(9, "an older life", "stop it", bytes(32)))[HEADER.size :]
    assert msgspec.msgpack.decode(body, type=Older) == Older(9, "an older life", "stop it")


def test_an_unsupported_version_names_the_supported_ones() -> None:
    hello = bytearray(initiator().start().send)
    hello[8:10] = bytes([7, 9])
    refused = acceptor().receive(bytes(hello)).outcome
    assert reason_of(refused) is Reason.UNSUPPORTED_VERSION
    assert "7 to 9" in str(refused)
    assert "1 to 1" in str(refused)


def test_a_later_version_that_still_speaks_ours_is_understood() -> None:
    hello = bytearray(initiator().start().send)
    hello[9] = 200
    step = acceptor().receive(bytes(hello))
    assert step.outcome is None
    assert step.send.startswith(MAGIC)


def test_a_port_gives_strangers_no_tag_to_try_secrets_on() -> None:
    other = acceptor()
    answer = other.receive(initiator().start().send).send
    step = other.receive(encode_word(Proof(bytes(32))))
    assert reason_of(step.outcome) is Reason.WRONG_SECRET
    assert len(answer) < 200  # a hello, no proof


def test_a_recorded_handshake_opens_no_second_connection() -> None:
    one, other = initiator(), acceptor()
    hello = one.start().send
    proof = one.receive(other.receive(hello).send).send
    assert isinstance(other.receive(proof).outcome, Established)
    again = acceptor(nonce=b"b" * 32)
    again.receive(hello)
    assert reason_of(again.receive(proof).outcome) is Reason.WRONG_SECRET


def test_a_proof_sent_back_proves_nothing() -> None:
    one, other = initiator(), acceptor()
    proof = one.receive(other.receive(one.start().send).send).send
    assert reason_of(one.receive(proof).outcome) is Reason.WRONG_SECRET


def test_a_proof_ahead_of_the_hello_it_proves_is_refused() -> None:
    step = acceptor().receive(initiator().start().send + encode_word(Proof(bytes(32))))
    assert reason_of(step.outcome) is Reason.MALFORMED


def test_words_out_of_turn_are_refused() -> None:
    assert reason_of(acceptor().receive(encode_word(Proof(b""))).outcome) is Reason.MALFORMED
    other = acceptor()
    hello = initiator().start().send
    other.receive(hello)
    assert reason_of(other.receive(hello).outcome) is Reason.MALFORMED
    one = initiator()
    one.start()
    assert reason_of(one.receive(encode_word(Proof(b""))).outcome) is Reason.MALFORMED


def test_what_comes_behind_the_handshake_is_kept() -> None:
    one, other = initiator(), acceptor()
    proof = one.receive(other.receive(one.start().send).send).send
    there = other.receive(proof + b"frames").outcome
    assert isinstance(there, Established)
    assert there.rest == b"frames"


def fetch_metadata() -> bytes:
    body = encode_request(
        requests.FetchMetadata(RequestHeader(correlation_id=7, source="tool"), None)
    )
    return len(body).to_bytes(4) + body


def test_a_program_of_seed_002_is_told_by_its_first_bytes_on_loopback() -> None:
    frame = fetch_metadata()
    other = acceptor(is_loopback=True)
    assert other.receive(frame[:5]) == Step(b"", None)
    assert other.receive(frame[5:]) == Step(b"", SeedClient(frame))
    far = acceptor().receive(frame)
    assert reason_of(far.outcome) is Reason.NOT_LOOPBACK
    assert far.send == b""


@pytest.mark.parametrize(
    ("start", "word"),
    [
        (b"GET / HTTP/1.1\r\n", "HTTP"),
        (b"\x16\x03\x01\x02\x00\x01\x00", "TLS"),
        (b"\x00\x00\x00\x20\x00\x12\x00\x03\x00\x00", "Kafka"),
        (b"\x01\x00\x00\x01\x00\x01\x02", "not Headrace"),
        (b"\x00\x00\x00\x00\x00\x01\x02", "not Headrace"),
        (b"SSH-2.0-OpenSSH", "not Headrace"),
    ],
)
def test_what_speaks_something_else_is_named(start: bytes, word: str) -> None:
    other = acceptor(is_loopback=True)
    step = Step(b"", None)
    for each in start:
        step = other.receive(bytes([each]))
        if step.outcome is not None:
            break
    assert reason_of(step.outcome) is Reason.NOT_HEADRACE
    assert word in str(step.outcome)
    assert step.send == b""


def test_a_peer_that_is_no_node_is_named() -> None:
    one = initiator()
    one.start()
    assert "HTTP" in str(one.receive(b"HTTP/1.1 400 Bad Request").outcome)
    one = initiator()
    one.start()
    assert reason_of(one.closed()) is Reason.NOT_HEADRACE
    assert "9092" in str(one.closed())


def test_a_hang_up_in_the_middle_is_not_taken_for_another_program() -> None:
    one, other = initiator(), acceptor()
    one.receive(other.receive(one.start().send).send)
    assert "middle" in str(one.closed())


def test_what_a_peer_says_is_shortened_and_cannot_steer_a_terminal() -> None:
    told = told_by_peer(999, "\x1b[2J" + "x" * 1000, "a\nb", is_proven=False)
    assert told.reason is Reason.UNKNOWN
    assert told.sentence.isprintable()
    assert len(told.sentence) == TEXT_CHARACTERS_MAX
    assert told.remedy == "a?b"


def words() -> list[bytes]:
    """The three words of who opened and who accepted, in their order."""
    one, other = initiator(), acceptor()
    hello = one.start().send
    answer = other.receive(hello).send
    proof = one.receive(answer).send
    return [hello, answer, proof, other.receive(proof).send]


def test_every_flipped_bit_is_refused_or_waited_for() -> None:
    hello, answer, proof, welcome = words()
    for number, sent in enumerate((hello, proof)):
        for bit in range(len(sent) * 8):
            flipped = bytearray(sent)
            flipped[bit // 8] ^= 1 << bit % 8
            other = acceptor()
            if number:
                other.receive(hello)
            step = other.receive(bytes(flipped))
            if number == 0 and step.outcome is None and step.send:
                step = other.receive(proof)
            assert not isinstance(step.outcome, Established | SeedClient), bit
    for number, sent in enumerate((answer, welcome)):
        for bit in range(len(sent) * 8):
            flipped = bytearray(sent)
            flipped[bit // 8] ^= 1 << bit % 8
            one = initiator()
            one.start()
            if number:
                one.receive(answer)
            step = one.receive(bytes(flipped))
            if number == 0 and step.outcome is None and step.send:
                step = one.receive(welcome)
            assert not isinstance(step.outcome, Established), bit


def test_every_truncation_waits() -> None:
    hello = words()[0]
    for length in range(len(hello)):
        assert acceptor().receive(hello[:length]) == Step(b"", None)


@given(st.lists(st.binary(max_size=300), max_size=8), st.sampled_from([b"", MAGIC]), st.booleans())
def test_any_bytes_end_in_a_refusal_or_are_waited_for(
    pieces: list[bytes], start: bytes, is_loopback: bool
) -> None:
    one, other = initiator(is_loopback=is_loopback), acceptor(is_loopback=is_loopback)
    one.start()
    for machine in (one, other):
        for piece in (start, *pieces):
            step = machine.receive(piece)
            assert not isinstance(step.outcome, Established)
            assert isinstance(step.outcome, Refused | SeedClient | None)
            assert len(step.send) < 2000


@given(st.binary(max_size=200))
def test_any_body_of_a_word_ends_in_a_refusal(body: bytes) -> None:
    word = HEADER.pack(MAGIC, 1, 1, len(body)) + body
    one = initiator()
    one.start()
    for machine in (one, acceptor()):
        outcome = machine.receive(word).outcome
        assert outcome is None or isinstance(outcome, Refused)


def test_a_huge_word_is_refused_before_it_comes() -> None:
    header = HEADER.pack(MAGIC, 1, 1, 65535)
    assert reason_of(acceptor().receive(header).outcome) is Reason.MALFORMED


def channel(shown: bytes = b"two", peer: Identity | None = None, **more: Any) -> Channel:
    name = None if peer is None else NodeName(peer.node, peer.folder_id)
    return Channel(shown * 8, name, **more)


def test_under_tls_each_side_is_the_node_of_its_certificate() -> None:
    here, there = talk(initiator(channel=channel(peer=TWO)), acceptor(channel=channel(peer=ONE)))
    assert isinstance(here, Established)
    assert isinstance(there, Established)
    assert there.is_certified


@pytest.mark.parametrize(
    "named", [Identity(NodeId(3), b"1" * 16, 1), Identity(NodeId(1), b"3" * 16, 1)]
)
def test_a_certificate_of_another_node_or_folder_is_refused_on_both_sides(named: Identity) -> None:
    _, there = talk(initiator(channel=channel(peer=TWO)), acceptor(channel=channel(peer=named)))
    assert reason_of(there) is Reason.WRONG_CERTIFICATE
    named = named._replace(node=NodeId(named.node + 1))
    here, _ = talk(initiator(channel=channel(peer=named)), acceptor(channel=channel(peer=ONE)))
    assert reason_of(here) is Reason.WRONG_CERTIFICATE


@pytest.mark.parametrize("purpose", [Purpose.CONTROL, Purpose.BULK])
def test_without_a_certificate_a_node_is_no_peer(purpose: Purpose) -> None:
    _, there = talk(
        initiator(channel=channel(peer=TWO), purpose=purpose), acceptor(channel=channel())
    )
    assert reason_of(there) is Reason.CERTIFICATE_MISSING
    here, _ = talk(
        initiator(channel=channel(), purpose=purpose), acceptor(channel=channel(peer=ONE))
    )
    assert reason_of(here) is Reason.CERTIFICATE_MISSING


def test_without_a_certificate_a_single_call_is_possible_and_marked() -> None:
    here, there = talk(
        initiator(channel=channel(), purpose=Purpose.ONE_CALL), acceptor(channel=channel())
    )
    assert isinstance(here, Established)
    assert isinstance(there, Established)
    assert not there.is_certified


def test_somebody_in_between_gets_two_proofs_that_fit_nothing() -> None:
    """It passes on every byte, and each side sees its certificate, or none of it."""
    for here_sees, there_sees in ((b"mid", b"two"), (b"mid", None), (None, b"two")):
        one = None if here_sees is None else channel(here_sees)
        other = None if there_sees is None else channel(there_sees)
        here, there = talk(
            initiator(channel=one, purpose=Purpose.ONE_CALL), acceptor(channel=other)
        )
        assert reason_of(there) is Reason.WRONG_SECRET
        assert reason_of(here) is Reason.WRONG_SECRET


def test_a_node_with_a_pin_proves_nothing_before_it_has_seen_the_ca() -> None:
    shown: list[tuple[bytes, ...]] = []

    def check(authorities: tuple[bytes, ...]) -> NodeName | Refused:
        shown.append(authorities)
        return NodeName(2, TWO.folder_id) if b"ours" in authorities else not_pinned("another")

    one = channel(check_pin=check)
    for authorities, is_ours in (((b"ours",), True), ((b"theirs",), False), ((), False)):
        opening = initiator(channel=one, purpose=Purpose.ONE_CALL)
        accepting = acceptor(channel=channel(authorities=authorities))
        hello = accepting.receive(opening.start().send)
        step = opening.receive(hello.send)
        assert bool(step.send) is is_ours  # else not a byte that the secret has made
        if not is_ours:
            assert reason_of(step.outcome) is Reason.WRONG_CERTIFICATE
    assert shown == [(b"ours",), (b"theirs",), ()]


def test_a_pinned_node_must_be_the_one_that_it_says_it_is() -> None:
    one = channel(check_pin=lambda authorities: NodeName(3, b"3" * 16))
    here, _ = talk(
        initiator(channel=one, purpose=Purpose.ONE_CALL, to=None), acceptor(channel=channel())
    )
    assert reason_of(here) is Reason.WRONG_CERTIFICATE
