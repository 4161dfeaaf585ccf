"""The port for other nodes: where it is, who may use it, what it says to strangers."""

import asyncio
import socket
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from headrace.cluster.identity import begin_life
from headrace.cluster.joining import CannotJoin
from headrace.cluster.tokens import create_token
from headrace.config import InvalidSetting, load_settings
from headrace.config.security_checks import is_loopback
from headrace.ids import BrokerId
from headrace.log.ownership import WrongDirectory
from headrace.log.real_disk import RealDisk
from headrace.node.node import Node
from headrace.node.node_port import advertised_address, listen_address, read_secret
from headrace.server.listeners import CannotListen
from headrace.testing.broker import DEFAULTS, TestBroker
from tests.unit.server.interchange.programs import Program
from tools.ports import free_port

SECRET = b"0123456789abcdef0123456789abcdef"


def settings(**given: str) -> Any:
    overrides = {name.replace("_", "."): text for name, text in given.items()}
    return load_settings(overrides=overrides)


def node(folder: Path, **given: str) -> Node:
    overrides = {
        **DEFAULTS,
        "log.dirs": str(folder),
        **{name.replace("__", ".").replace("_", "."): text for name, text in given.items()},
    }
    return Node(load_settings(overrides=overrides))


def run(work: Coroutine[Any, Any, Any]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(60):
            return await work

    return asyncio.run(bounded())


def test_the_default_port_gives_way_where_clients_get_any_free_one() -> None:
    assert listen_address(settings()) == ("127.0.0.1", 9093)
    assert listen_address(settings(listeners="PLAINTEXT://127.0.0.1:0")) == ("127.0.0.1", 0)
    given = settings(listeners="PLAINTEXT://127.0.0.1:0", headrace_node_listen="127.0.0.1:7")
    assert listen_address(given) == ("127.0.0.1", 7)
    assert listen_address(settings(headrace_node_listen=":7")) == ("0.0.0.0", 7)


def test_what_others_dial_is_what_was_bound_unless_it_is_said_otherwise() -> None:
    assert advertised_address(settings(), "127.0.0.1", 7) == "127.0.0.1:7"
    assert advertised_address(settings(), "::1", 7) == "[::1]:7"
    assert advertised_address(settings(), "0.0.0.0", 7) == f"{socket.getfqdn()}:7"
    given = settings(headrace_node_advertised="node-1:0")
    assert advertised_address(given, "0.0.0.0", 7) == "node-1:7"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_needs_no_secret(host: str) -> None:
    assert is_loopback(host)
    assert read_secret(settings(), host) is None


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.1", "::", "", "node-1"])
def test_every_other_address_does(host: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match=r"headrace\.cluster\.secret\.file"):
        read_secret(settings(), host)
    file = tmp_path / "secret"
    with pytest.raises(InvalidSetting, match=r"headrace\.cluster\.secret\.file"):
        read_secret(settings(headrace_cluster_secret_file=str(file)), host)
    file.write_bytes(b"short\n")
    with pytest.raises(InvalidSetting, match="5 bytes"):
        read_secret(settings(headrace_cluster_secret_file=str(file)), host)
    file.write_bytes(SECRET + b"\n")
    assert read_secret(settings(headrace_cluster_secret_file=str(file)), host) == SECRET


def test_a_seed_on_loopback_is_refused_by_a_node_that_is_not() -> None:
    given = settings(headrace_node_listen="0.0.0.0:9093", headrace_seeds="127.0.0.1:1,a:2")
    with pytest.raises(InvalidSetting, match=r"127\.0\.0\.1:1"):
        listen_address(given)


def test_a_port_that_is_taken_is_named_with_the_way_out(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(CannotListen, match="--node-listen"):
            run(node(tmp_path, headrace_node_listen=address).start())


def test_programs_of_the_interchange_are_served_on_it(headrace: TestBroker) -> None:
    headrace.create_topic("orders")

    async def ask() -> list[str]:
        async with Program(headrace.node.node_port) as program:
            return [each.name for each in (await program.ask(program.metadata())).topics]

    assert run(ask()) == ["orders"]


@pytest.mark.parametrize(
    "stranger",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x00\x00\x00\x10\x00\x12\x00\x04",
        b"\xff" * 400,
        b"\x16\x03\x01",
    ],
)
def test_strangers_do_no_harm(headrace: TestBroker, stranger: bytes) -> None:
    with socket.create_connection(("127.0.0.1", headrace.node.node_port)) as connection:
        connection.sendall(stranger)
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(30)
        while connection.recv(4096):
            pass
    headrace.create_topic("still-there")


def test_every_start_is_a_later_life_of_the_same_node(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    first = begin_life(disk, BrokerId(1), 1000)
    second = begin_life(disk, BrokerId(1), 500)
    third = begin_life(disk, BrokerId(1), 5000)
    assert first.boot_epoch < second.boot_epoch < third.boot_epoch
    assert first.folder_id == second.folder_id == third.folder_id
    with pytest.raises(WrongDirectory, match="node 1"):
        begin_life(disk, BrokerId(2), 9000)


@pytest.mark.slow
def test_a_new_node_outside_of_loopback_needs_a_token_that_is_good_once(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(SECRET)
    address = f"127.0.0.1:{free_port()}"  # reached there, but listening everywhere
    common = {
        "headrace_cluster_secret_file": str(secret),
        "headrace_node_listen": f"0.0.0.0:{address.rpartition(':')[2]}",
        "headrace_node_advertised": address,
    }
    token = tmp_path / "token"
    pins: list[str] = []

    def newcomer(number: int, folder: str) -> Node:
        own = f"127.0.0.1:{free_port()}"
        return node(
            tmp_path / folder,
            node_id=str(number),
            headrace_cluster_secret_file=str(secret),
            headrace_node_listen=own,
            headrace_seeds=address,
            headrace_join_token_file=str(token),
            headrace_node_tls="true",  # as nodes do at the other node's address
        )

    def give(text: str) -> None:
        token.write_text("\n".join((text, *pins)))

    async def play() -> None:
        founder = node(tmp_path / "one", node_id="1", **common)
        await founder.start()
        assert founder.cluster.certificates is not None
        pins.extend(founder.cluster.certificates.pins())
        try:
            for text in ("nonsense", create_token(SECRET, 3, 4_000_000_000)):
                give(text)
                with pytest.raises(CannotJoin, match="token"):
                    await newcomer(2, "two").start()
            give(create_token(SECRET, 2, 1_000_000_000))
            with pytest.raises(CannotJoin, match="expired"):
                await newcomer(2, "two").start()
            assert set(founder.broker.image.state.brokers) == {1}
            give(create_token(SECRET, 2, 4_000_000_000))
            second = newcomer(2, "two")
            await second.start()
            assert set(founder.broker.image.state.brokers) == {1, 2}
            await second.stop()
            second = newcomer(2, "two")  # it is known, and may come back
            await second.start()
            await second.stop()
            with pytest.raises(CannotJoin, match="data folder"):
                await newcomer(2, "another").start()
        finally:
            await founder.stop()

    run(play())
