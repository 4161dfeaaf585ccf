"""Who does not get into a cluster whose nodes speak TLS, and what it sees of it."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import force_setattr

from headrace.cluster import words
from headrace.cluster.address_book import parse_address
from headrace.cluster.encryption.node_tls import NodeTls, OperatorTls
from headrace.cluster.joining import CannotJoin
from headrace.cluster.tokens import create_token, read_token, register_token, revoke
from headrace.cluster.transport.calls import RAFT_KIND, CallError
from headrace.cluster.transport.hello import OPERATOR, Identity
from headrace.cluster.transport.links import Links
from headrace.cluster.transport.refusals import Reason
from headrace.config import InvalidSetting, load_settings
from headrace.errors import ErrorCode
from headrace.ids import BrokerId
from headrace.log.real_disk import RealDisk
from headrace.metadata.entries import (
    Batch,
    CaTrustChange,
    Entry,
    Join,
    TopologyChange,
    encode_entry,
)
from headrace.metadata.variants import Octets
from headrace.node.node import Node
from headrace.security.node_certificates import Authority, Validity, make_request, new_key
from headrace.security.node_names import NodeName
from headrace.testing.broker import DEFAULTS
from tests.cluster.encrypted import (
    DAY,
    SECRET,
    ManInTheMiddle,
    another_authority,
    authority_of,
    encrypted,
    forge,
    now,
    stranger,
)
from tools.ports import free_ports

LATE = 4_000_000_000
FOLDER = b"f" * 16
TIMEOUT_MS = 10_000
API_VERSIONS = bytes.fromhex("0000000a 0012 0000 00000007 ffff")


def make_node(folder: Path, number: int, **more: str) -> Node:
    overrides = {
        **DEFAULTS,
        **encrypted(folder),
        "log.dirs": str(folder / f"node-{number}"),
        "node.id": str(number),
        **{name.replace("_", "."): text for name, text in more.items()},
    }
    return Node(load_settings(overrides=overrides))


@asynccontextmanager
async def founded(folder: Path, **more: str) -> AsyncIterator[Node]:
    founder = make_node(folder, 1, **more)
    await founder.start()
    try:
        yield founder
    finally:
        await founder.stop()


def run(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await work

    asyncio.run(bounded())


def pins(node: Node) -> tuple[str, ...]:
    assert node.cluster.certificates is not None
    return node.cluster.certificates.pins()


def newcomer(folder: Path, seeds: str, *lines: str, number: int = 2) -> Node:
    """Return a node that is to join; its token and pins are what it was given."""
    token = folder / f"token-{number}"
    token.write_text("\n".join(lines))
    more = {"headrace_join_token_file": str(token)} if lines else {}
    return make_node(folder, number, headrace_seeds=seeds, **more)


async def until_it_waits(node: Node, for_what: str) -> None:
    """Return when a node says that it waits for this; it is ended then."""
    starting = asyncio.create_task(node.start())
    try:
        while for_what not in (node.explain_waiting() or ""):
            assert not starting.done(), starting
            await asyncio.sleep(0.01)
    finally:
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)


def members(node: Node) -> set[int]:
    return set(node.broker.image.state.brokers)


@pytest.mark.parametrize(
    ("token", "complaint"),
    [
        (create_token(SECRET, 3, LATE), "for node 3, not for node 2"),
        (create_token(SECRET, 2, 1_000_000_000), "expired"),
        (create_token(b"another secret of 32 bytes......", 2, LATE), "not issued"),
        ("nonsense", "96 characters"),
    ],
)
def test_a_token_that_is_not_good_gives_no_certificate(
    tmp_path: Path, token: str, complaint: str
) -> None:
    async def play() -> None:
        async with founded(tmp_path) as founder:
            node = newcomer(tmp_path, founder.cluster.address, token, *pins(founder))
            with pytest.raises(CannotJoin, match=complaint):
                await node.start()
            assert members(founder) == {1}

    run(play())


def test_a_token_is_good_once_for_one_node_until_it_is_revoked(tmp_path: Path) -> None:
    async def play() -> None:
        async with founded(tmp_path, headrace_voters_max="1") as founder:
            seeds = founder.cluster.address
            used = create_token(SECRET, 2, LATE)
            second = newcomer(tmp_path, seeds, used, *pins(founder))
            await second.start()
            await second.stop()
            for name in ("node-2/node-tls.json", "node-2/meta.properties"):
                assert (tmp_path / name).exists()
            # Somebody stole the token, and comes as the same node with another folder.
            thief = make_node(
                tmp_path,
                2,
                log_dirs=str(tmp_path / "thief"),
                headrace_seeds=seeds,
                headrace_join_token_file=str(tmp_path / "token-2"),
            )
            with pytest.raises(CannotJoin, match="data folder"):
                await thief.start()
            revoked = create_token(SECRET, 3, LATE)
            claim = read_token(revoked, SECRET, 0)
            for entry in revoke(founder.broker.image, claim, 0):
                await founder.broker.quorum.propose(entry)
            node = newcomer(tmp_path, seeds, revoked, *pins(founder), number=3)
            with pytest.raises(CannotJoin, match="revoked"):
                await node.start()
            without = newcomer(tmp_path, seeds, number=4)
            with pytest.raises(CannotJoin, match="needs a join token"):
                await without.start()
            assert members(founder) == {1, 2}

    run(play())


def test_a_seed_whose_node_is_there_is_no_way_in_for_another_one(tmp_path: Path) -> None:
    """The secret lets in the nodes that the operator named, each once."""

    async def play() -> None:
        async with founded(tmp_path) as founder:
            request = make_request(new_key())
            address = founder.cluster.address
            links = stranger(7, FOLDER, OperatorTls())  # type: ignore[arg-type]
            _, payload = await links.call_address(
                parse_address(address),
                words.encode(words.Enrol(address, request)),
                TIMEOUT_MS,
                kind=words.ENROL,
            )
            response = words.decode_response(payload)
            assert isinstance(response, words.Failed)
            assert "join token" in response.message
            await links.close()

    run(play())


def test_the_secret_makes_nobody_a_node_that_is_up(tmp_path: Path) -> None:
    """Not even with a token that the metadata log lists."""

    async def play() -> None:
        async with founded(tmp_path) as founder:
            identity = founder.cluster.links.identity
            care = founder.cluster.certificates
            assert care is not None
            token = create_token(SECRET, 1, LATE)
            wanted = words.Enrol("10.0.0.9:1", make_request(new_key()), token)

            async def refusal() -> str:
                response = await care._enroller.enrol(
                    identity, wanted, authority_of(founder), is_certified=False
                )
                assert isinstance(response, words.Failed)
                return response.message

            assert "does not list its join token" in await refusal()
            claim = read_token(token, SECRET, 0)
            await founder.broker.quorum.propose(register_token(claim, 0))
            assert "node 1 is up" in await refusal()

    run(play())


def test_a_token_without_a_pin_and_a_pin_without_tls_are_refused(tmp_path: Path) -> None:
    token, pin = create_token(SECRET, 2, LATE), f"sha256:{'0' * 64}"
    for lines, tls, complaint in (
        ([token], "true", "without the pin"),
        ([token, "md5:1"], "true", "sha256:"),
        ([token, pin], "false", "headrace.node.tls=true"),
    ):
        node = newcomer(tmp_path, "127.0.0.1:1", *lines)
        given = {**node.settings.given, "headrace.node.tls": tls}
        again = Node(load_settings(overrides=dict(given)))
        with pytest.raises(InvalidSetting, match=complaint):
            run(again.start())


def test_a_node_with_another_pin_says_nothing_secret(tmp_path: Path) -> None:
    async def play() -> None:
        async with founded(tmp_path) as founder:
            pin = f"sha256:{'0' * 64}"
            token = create_token(SECRET, 2, LATE)
            node = newcomer(tmp_path, founder.cluster.address, token, pin)
            await until_it_waits(node, "not of the cluster that the join token is for")
            assert members(founder) == {1}

    run(play())


@pytest.mark.parametrize("has_token", [True, False])
def test_a_man_in_the_middle_of_a_join_gets_nothing(tmp_path: Path, has_token: bool) -> None:
    """With a token the pin tells; a seed without one by what the secret proves of the channel."""

    async def play() -> None:
        async with founded(tmp_path) as founder:
            proxy = ManInTheMiddle(parse_address(founder.cluster.address))
            seeds = await proxy.open()
            token = create_token(SECRET, 2, LATE)
            lines = (token, *pins(founder)) if has_token else ()
            what = "not of the cluster" if has_token else "somebody is between them"
            await until_it_waits(newcomer(tmp_path, seeds, *lines), what)
            proxy.close()
            assert proxy.connections
            assert token.encode() not in proxy.seen
            assert SECRET not in proxy.seen
            assert b"Enrol" not in proxy.seen
            assert b"Register" not in proxy.seen
            assert members(founder) == {1}
            assert not founder.broker.image.state.join_tokens

    run(play())


def test_an_operators_command_tells_a_man_in_the_middle(tmp_path: Path) -> None:
    async def play() -> None:
        async with founded(tmp_path) as founder:
            proxy = ManInTheMiddle(parse_address(founder.cluster.address))
            address = parse_address(await proxy.open())
            identity = Identity(OPERATOR, FOLDER, 1)
            links = Links(identity, secret=SECRET, address_of=lambda node: None, tls=OperatorTls())
            with pytest.raises(CallError) as raised:
                await links.call_address(address, b"", TIMEOUT_MS, kind=words.OPERATE)
            assert raised.value.refused is not None
            assert raised.value.refused.reason is Reason.WRONG_SECRET
            await links.close()
            proxy.close()

    run(play())


async def refusal_of(founder: Node, identity: tuple[int, bytes], tls: NodeTls) -> Reason:
    """Return why a program that brings a certificate is not let in at the node port."""
    links = stranger(*identity, tls, founder.cluster.links.identity.cluster_id)
    address = parse_address(founder.cluster.address)
    try:
        with pytest.raises(CallError) as raised:
            await links.call_address(
                address, words.encode(words.Ask("")), TIMEOUT_MS, kind=words.ASK
            )
    finally:
        await links.close()
    assert raised.value.refused is not None, raised.value
    return raised.value.refused.reason


def test_a_certificate_speaks_for_its_own_node_only_and_in_its_time_only(tmp_path: Path) -> None:
    async def play() -> None:
        async with founded(tmp_path) as founder:
            ours, theirs = authority_of(founder), another_authority()
            trusted = (ours.certificate,)

            def with_certificate(
                number: int, signer: Authority, validity: Validity | None = None
            ) -> NodeTls:
                folder = tmp_path / f"forged-{number}-{id(signer)}-{validity is None}"
                return forge(folder, NodeName(number, FOLDER), signer, trusted, validity)

            three = with_certificate(3, ours)
            assert await refusal_of(founder, (2, FOLDER), three) is Reason.WRONG_CERTIFICATE
            assert await refusal_of(founder, (3, b"g" * 16), three) is Reason.WRONG_CERTIFICATE
            foreign = with_certificate(3, theirs)
            assert await refusal_of(founder, (3, FOLDER), foreign) is Reason.TLS_FAILED
            over = with_certificate(3, ours, Validity(now() - DAY / 24, now() - DAY / 48))
            assert await refusal_of(founder, (3, FOLDER), over) is Reason.TLS_FAILED

    run(play())


def test_without_a_certificate_nothing_but_a_certificate_can_be_asked_for(tmp_path: Path) -> None:
    async def play() -> None:
        async with founded(tmp_path) as founder:
            links = stranger(2, FOLDER, OperatorTls())  # type: ignore[arg-type]
            address = parse_address(founder.cluster.address)
            served = founder.cluster.links.call_handlers
            allowed = {words.ASK, words.ENROL}
            for kind in sorted(set(served) - allowed):
                with pytest.raises(CallError):
                    await links.call_address(address, b"", TIMEOUT_MS, kind=kind)
            assert founder.cluster.links.newcomer_kinds == allowed
            assert RAFT_KIND in founder.cluster.links.message_handlers
            await links.close()

    run(play())


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2"], ids=["same host", "another host"])
@pytest.mark.parametrize("has_tls", [False, True], ids=["silent", "silent behind TLS"])
def test_connections_that_say_nothing_keep_no_node_out(
    tmp_path: Path, host: str, has_tls: bool
) -> None:
    anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE

    async def play() -> None:
        async with founded(tmp_path) as founder:
            settings = founder.cluster.links.settings
            # They would have to go after three seconds; here they have as long as they like.
            force_setattr(settings, "handshake_timeout_ms", 600_000)
            address = parse_address(founder.cluster.address)
            context = anybody if has_tls else None
            silent = []
            for _ in range(settings.unproven_connections_max + 10):
                _, writer = await asyncio.open_connection(
                    *address, ssl=context, local_addr=(host, 0)
                )
                silent.append(writer)
            links = stranger(2, FOLDER, OperatorTls())  # type: ignore[arg-type]
            question = words.encode(words.Ask(""))
            _, payload = await links.call_address(address, question, TIMEOUT_MS, kind=words.ASK)
            assert not isinstance(words.decode_response(payload), words.Failed)
            await links.close()
            refusals = founder.cluster.links.stranger_refusals
            assert refusals[Reason.TOO_MANY_CONNECTIONS] >= 10
            assert founder.cluster.links.accepted_count <= settings.unproven_connections_max
            for each in silent:
                each.transport.abort()

    run(play())


def test_a_node_in_plain_text_is_told_that_nodes_speak_tls(tmp_path: Path) -> None:
    async def play() -> None:
        async with founded(tmp_path) as founder:
            links = stranger(2, FOLDER, None)
            with pytest.raises(CallError) as raised:
                await links.call_address(
                    parse_address(founder.cluster.address), b"", TIMEOUT_MS, kind=words.ASK
                )
            assert raised.value.refused is not None
            assert raised.value.refused.reason is Reason.TLS_EXPECTED
            await links.close()

    run(play())


async def speak_kafka(founder: Node, context: ssl.SSLContext) -> bytes:
    """Return what the listener for nodes answers to ApiVersions; nothing if it hangs up."""
    assert founder.node_listener is not None
    try:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", founder.node_listener.port, ssl=context
        )
    except OSError:
        return b""
    try:
        writer.write(API_VERSIONS)
        return await reader.read(4)
    except OSError:
        return b""
    finally:
        writer.transport.abort()


def test_the_listener_for_nodes_takes_certificates_of_nodes_that_are_there(tmp_path: Path) -> None:
    async def play() -> None:
        async with founded(tmp_path, headrace_node_fetch_port="0") as founder:
            ours = authority_of(founder)
            trusted = (ours.certificate,)
            own = NodeName(1, founder.cluster.links.identity.folder_id)
            good = forge(tmp_path / "a", own, ours, trusted)
            assert await speak_kafka(founder, good.client_context())
            bad = [
                forge(tmp_path / "b", NodeName(2, FOLDER), ours, trusted),  # not there
                forge(tmp_path / "c", NodeName(1, FOLDER), ours, trusted),  # another folder
                forge(tmp_path / "d", own, another_authority(), trusted),
            ]
            for each in bad:
                assert not await speak_kafka(founder, each.client_context())
            assert not await speak_kafka(founder, OperatorTls().client_context())

    run(play())


def test_a_removed_node_with_its_certificate_is_a_stranger_at_once(tmp_path: Path) -> None:
    async def play() -> None:
        async with founded(
            tmp_path, headrace_voters_max="1", headrace_node_fetch_port="0"
        ) as founder:
            token = create_token(SECRET, 2, LATE)
            second = newcomer(tmp_path, founder.cluster.address, token, *pins(founder))
            await second.start()
            identity = second.cluster.links.identity
            await second.stop()
            disk = RealDisk(tmp_path / "node-2")
            name = NodeName(2, identity.folder_id)
            tls = NodeTls(disk, name, (), lambda: int(now().timestamp() * 1000))
            assert tls.is_certified
            assert founder.node_listener is not None
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", founder.node_listener.port, ssl=tls.client_context()
            )
            writer.write(API_VERSIONS)
            await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
            later = identity._replace(boot_epoch=identity.boot_epoch + 1)
            links = Links(later, secret=SECRET, address_of=lambda node: None, tls=tls)
            address = parse_address(founder.cluster.address)
            term = founder.broker.quorum.driver.state.term
            evil = CaTrustChange(Octets(another_authority().certificate), None)
            join = TopologyChange(Join(BrokerId(9), "127.0.0.1:9"))

            async def propose(entry: Entry) -> words.Response:
                request = words.pack_proposal(term, encode_entry(entry))
                _, payload = await links.call_address(
                    address, request, TIMEOUT_MS, kind=words.PROPOSE
                )
                return words.decode_response(payload)

            # A node of the cluster proposes, but not whom others trust, alone or among others.
            for entry in (evil, Batch((join, evil))):
                denied = await propose(entry)
                assert isinstance(denied, words.Failed)
                assert denied.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            members_of = founder.cluster.members
            assert members_of is not None
            await members_of.unregister(BrokerId(2), TIMEOUT_MS)
            assert not await reader.read()  # its connection has ended
            writer.transport.abort()
            assert not await speak_kafka(founder, tls.client_context())
            with pytest.raises(CallError):
                await propose(join)
            kinds = founder.cluster.links
            allowed = kinds.newcomer_kinds | kinds.unregistered_kinds
            assert allowed == {words.ASK, words.ENROL, words.REGISTER}
            for kind in sorted(set(kinds.call_handlers) - allowed):
                with pytest.raises(CallError):
                    await links.call_address(address, b"", TIMEOUT_MS, kind=kind)
            renewal = words.encode(words.Enrol(founder.cluster.address, make_request(new_key())))
            _, payload = await links.call_address(address, renewal, TIMEOUT_MS, kind=words.ENROL)
            response = words.decode_response(payload)
            assert isinstance(response, words.Failed)
            assert "not of this cluster any more" in response.message
            assert members(founder) == {1}
            assert set(founder.broker.image.state.nodes) == {1}
            await links.close()

    run(play())


def test_a_seed_that_is_named_joins_with_the_secret_alone(tmp_path: Path) -> None:
    async def play() -> None:
        first, second = (f"127.0.0.1:{port}" for port in free_ports(2))
        seeds = f"{first},{second}"
        one = make_node(tmp_path, 1, headrace_node_listen=first, headrace_seeds=seeds)
        two = make_node(tmp_path, 2, headrace_node_listen=second, headrace_seeds=seeds)
        await asyncio.gather(one.start(), two.start())
        assert members(one) == members(two) == {1, 2}
        assert BrokerId(2) in members(one)
        await two.stop()
        await one.stop()

    run(play())
