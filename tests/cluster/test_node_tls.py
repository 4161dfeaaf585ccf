"""Clusters whose nodes speak TLS: they work as others do, renew what ends, and replace their CA."""

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace.cli.program import headrace
from headrace.cluster.encryption import node_tls
from headrace.cluster.encryption.care import CertificateCare
from headrace.cluster.encryption.key_files import KeyFileUnreadable, NodeFile, store_node
from headrace.cluster.encryption.node_tls import NodeTls
from headrace.cluster.joining import CannotJoin
from headrace.cluster.tokens import create_token
from headrace.config import NODE_LISTENER, InvalidSetting, load_settings
from headrace.config.protection import SECURITY_PROTOCOLS
from headrace.ids import BrokerId, PartitionIndex, TopicName
from headrace.log.disk import Disk
from headrace.security.node_certificates import (
    Validity,
    fingerprint,
    make_request,
    sign,
    valid_for,
    validity_of,
)
from headrace.testing.broker import TestBroker
from headrace.testing.cluster import TestCluster
from tests.broker.peers import wait_until
from tests.cluster.encrypted import DAY, SECRET, age, authority_of, encrypted, now


@contextmanager
def cluster_of(folder: Path, nodes: int = 3, **more: str) -> Iterator[TestCluster]:
    with TestCluster(nodes, folder / "cluster", encrypted(folder, **more)) as cluster:
        yield cluster


def care_of(node: TestBroker) -> CertificateCare:
    care = node.node.cluster.certificates
    assert care is not None
    return care


def tls_of(node: TestBroker) -> NodeTls:
    tls = node.node._tls
    assert tls is not None
    return tls


def run(cluster: TestCluster, node: int, *arguments: str) -> str:
    address = cluster.nodes[node].node.cluster.address
    secret = str(cluster.folder.parent / "secret")
    options = ["--node", address, "--secret-file", secret]
    done = CliRunner().invoke(headrace, ["cluster", *arguments, *options])
    assert done.exit_code == 0, done.output
    return done.output


def are_in_sync(cluster: TestCluster) -> bool:
    image = cluster.nodes[1].node.broker.image
    rows = [image.partition(TopicName("orders"), PartitionIndex(each)) for each in range(3)]
    return all(row is not None and len(row.isr) == 3 for row in rows)


def signers(cluster: TestCluster) -> set[bytes | None]:
    return {tls_of(node).signer for _, node in cluster.running()}


class Load:
    """Records that are produced one after the other, until the end of a test."""

    def __init__(self, cluster: TestCluster, topic: str) -> None:
        self._cluster, self._topic = cluster, topic
        self.count = 0
        self.errors: list[Exception] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._is_over.is_set():
            try:
                self._cluster.produce(self._topic, f"record {self.count}")
            except Exception as error:
                self.errors.append(error)
            self.count += 1

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._is_over.set()
        self._thread.join()


def test_nodes_die_come_back_and_copy_from_each_other_under_tls(tmp_path: Path) -> None:
    with cluster_of(tmp_path) as cluster:
        cluster.create_topic("orders", partitions=3, replicas=3)
        sent = 0
        for node in (cluster.controller, 1, 2, 3):
            cluster.kill(node)
            cluster.produce("orders", "a record")
            cluster.restart(node)
            wait_until(lambda: are_in_sync(cluster), "all have copied")
            sent += 1
        wait_until(lambda: len(cluster.consume("orders")) >= sent, "all is there")
        for number, running in cluster.running():
            assert running.node.node_listener is not None
            row = running.node.broker.image.broker(BrokerId(number))
            assert row is not None
            protocols = {each.listener: each.security_protocol for each in row.endpoints}
            assert protocols[NODE_LISTENER] == SECURITY_PROTOCOLS["SSL"]


def test_a_fourth_node_joins_with_its_token_and_the_token_is_used_up(tmp_path: Path) -> None:
    with cluster_of(tmp_path) as cluster:
        assert cluster.add() == 4
        assert run(cluster, 4, "token", "list").count("used") >= 3
        folder = cluster.folder / "node-4"
        for name in ("node-tls.json", "cluster-ca.json"):
            assert not (folder / name).exists() or (folder / name).stat().st_mode & 0o777 == 0o600
        assert care_of(cluster.nodes[4])._keys.fingerprints == ()  # it does not vote


def test_every_voter_gets_the_key_of_the_ca_so_any_of_them_can_lead(tmp_path: Path) -> None:
    with cluster_of(tmp_path) as cluster:
        (ca,) = tls_of(cluster.nodes[1]).trusted
        wait_until(
            lambda: all(
                care_of(node)._keys.find(fingerprint(ca)) is not None
                for node in cluster.nodes.values()
            ),
            "they have it",
        )
        cluster.kill(1)
        assert cluster.controller != 1
        assert cluster.add() == 4
        cluster.restart(1)


class FullDisk:
    """Fails to store the certificates of one node a number of times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, node: TestBroker, failures: int) -> None:
        self.left = failures
        self._disk = tls_of(node)._disk
        self._store = store_node
        monkeypatch.setattr(node_tls, "store_node", self)

    def __call__(self, disk: Disk, file: NodeFile) -> None:
        if disk is self._disk and self.left:
            self.left -= 1
            raise OSError(28, "No space left on device")
        self._store(disk, file)


def test_a_ca_is_replaced_though_a_disk_was_full_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cluster_of(tmp_path, 2) as cluster:
        (old,) = signers(cluster)
        full = FullDisk(monkeypatch, cluster.nodes[2], 2)
        cluster.nodes[1].run(care_of(cluster.nodes[1]).rotate())
        wait_until(lambda: old not in signers(cluster) and len(signers(cluster)) == 1, "it is")
        assert not full.left
        for _, node in cluster.running():
            assert node.node.broker.quorum.driver.failure is None
            assert tls_of(node).server_context().own == tls_of(node).certificate  # type: ignore[attr-defined]


def test_renewal_goes_on_after_whatever_failed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cluster_of(tmp_path, 1) as cluster:
        node = cluster.nodes[1]
        tls, care = tls_of(node), care_of(node)

        def renew() -> None:
            care._must_renew, care._retry_at = True, None
            care._wake.set()

        full = FullDisk(monkeypatch, node, 1)
        before = tls.certificate
        node.call(renew)
        wait_until(lambda: not full.left and care._warned_at is not None, "it has failed")
        assert tls.certificate == before
        with monkeypatch.context() as patch:
            patch.setattr(care, "_signer", None)  # a mistake of this module's
            node.call(renew)
            wait_until(lambda: care._retry_at is not None, "that has failed, too")
        node.call(renew)
        wait_until(lambda: care.renewals == 1, "it is renewed")
        assert tls.certificate != before


def test_a_controller_with_a_wrong_clock_does_no_harm(tmp_path: Path) -> None:
    with cluster_of(tmp_path, 2) as cluster:
        leads = cluster.controller
        other = 3 - leads
        tls, care = tls_of(cluster.nodes[leads]), care_of(cluster.nodes[other])
        right, before = tls._now_ms, tls_of(cluster.nodes[other]).certificate
        for days in (3, -400):
            tls._now_ms = lambda days=days: right() + days * 86_400_000  # type: ignore[misc]

            def renew() -> None:
                care._must_renew, care._retry_at, care._warned_at = True, None, None
                care._wake.set()

            cluster.nodes[other].call(renew)
            wait_until(lambda: care._warned_at is not None, "it is refused")
            assert tls_of(cluster.nodes[other]).certificate == before
        tls._now_ms = right
        cluster.nodes[other].call(renew)
        wait_until(lambda: care.renewals == 1, "it is renewed")
        assert tls_of(cluster.nodes[other]).is_certified


def test_a_token_comes_with_the_pin_of_the_ca_from_any_node(tmp_path: Path) -> None:
    with cluster_of(tmp_path, 2) as cluster:
        for node in (1, 2):
            token, pin = run(cluster, node, "token", "create", "--node-id", "9").split()
            assert len(token) == 96
            assert (pin,) == care_of(cluster.nodes[1]).pins()


def test_a_certificate_is_renewed_before_it_ends(tmp_path: Path) -> None:
    with cluster_of(tmp_path, 2) as cluster:
        for number in (1, 2):  # the controller signs for itself, too
            node = cluster.nodes[number]
            tls, care = tls_of(node), care_of(node)
            authority = authority_of(cluster.nodes[1].node)
            ends = now() + 20 * DAY

            def grow_old(tls: NodeTls = tls, care: CertificateCare = care) -> None:
                validity = Validity(now() - 70 * DAY, ends)  # noqa: B023  called at once
                # The CA is as young as the test; a certificate cannot be older.
                made = sign(tls.request(), tls.name, authority, validity)  # noqa: B023
                tls.install(made, tls.trusted)
                care._must_renew = False
                care._tls.now = lambda: now() + 15 * DAY  # type: ignore[method-assign]
                care._wake.set()

            node.call(grow_old)
            wait_until(lambda care=care: care.renewals == 1, "it is renewed")  # type: ignore[misc]
            assert validity_of(tls.certificate).ends > ends + 30 * DAY
            protection = node.node.protection
            assert protection is not None
            expiry = protection.expiry_seconds()[NODE_LISTENER]
            assert expiry == validity_of(tls.certificate).ends.timestamp()


def test_the_ca_is_replaced_under_load_without_an_error(tmp_path: Path) -> None:
    with cluster_of(tmp_path) as cluster:
        cluster.create_topic("orders", partitions=3, replicas=3)
        (old,) = signers(cluster)
        with Load(cluster, "orders") as load:
            wait_until(lambda: load.count > 20, "there is load")
            run(cluster, 2, "ca", "rotate")
            seen = load.count
            wait_until(lambda: load.count > seen + 20, "there is load after it, too")
        assert load.errors == []
        (new,) = signers(cluster)
        assert new not in (old, None)
        for _, node in cluster.running():
            wait_until(
                lambda node=node: list(map(fingerprint, tls_of(node).trusted)) == [new],  # type: ignore[misc]
                "the old CA is not trusted",
            )
        wait_until(lambda: len(cluster.consume("orders")) == load.count, "all is there")
        shown = run(cluster, 3, "ca", "show")
        assert old is not None
        assert old.hex()[:16] not in shown
        assert cluster.add() == 4


def test_the_replacement_of_a_ca_outlives_its_controller_and_waits_for_a_node(
    tmp_path: Path,
) -> None:
    with cluster_of(tmp_path) as cluster:
        (old,) = signers(cluster)
        down = next(each for each in (1, 2, 3) if each != cluster.controller)
        cluster.kill(down)
        controller = cluster.controller
        cluster.nodes[controller].run(care_of(cluster.nodes[controller]).rotate())
        wait_until(lambda: bool(care_of(cluster.nodes[controller]).waiting), "it waits")
        assert f"node {down} cannot be asked" in run(cluster, controller, "ca", "show")
        assert signers(cluster) == {old}
        other = next(each for each in (1, 2, 3) if each not in (down, controller))
        wait_until(
            lambda: len(care_of(cluster.nodes[other])._keys.fingerprints) == 2, "it has the key"
        )
        cluster.kill(controller)
        cluster.restart(down)
        cluster.restart(controller)
        wait_until(lambda: old not in signers(cluster), "all have new certificates")
        wait_until(
            lambda: all(len(tls_of(node).trusted) == 1 for _, node in cluster.running()),
            "the old CA is dropped",
        )
        assert len(signers(cluster)) == 1


def test_a_node_that_reads_of_former_cas_goes_on_trusting_those_of_today(tmp_path: Path) -> None:
    """The log of a cluster names each CA that it had; one entry at a time, a new node reads it."""
    slowly = {"headrace_raft_append_bytes_max": "1", "headrace_raft_in_flight_appends_max": "1"}
    with cluster_of(tmp_path, 2, **slowly) as cluster:
        run(cluster, 1, "ca", "rotate")
        assert cluster.add() == 3
        (new,) = signers(cluster)
        cluster.restart(2)
        assert signers(cluster) == {new}


def test_a_ca_whose_key_is_lost_is_replaced(tmp_path: Path) -> None:
    with cluster_of(tmp_path, 2) as cluster:
        (old,) = signers(cluster)
        for node in cluster.nodes.values():
            care_of(node)._keys._held.clear()
        run(cluster, 1, "ca", "rotate")
        (new,) = signers(cluster)
        assert new != old


def test_an_expired_certificate_takes_a_new_token_and_the_records_stay(tmp_path: Path) -> None:
    with cluster_of(tmp_path) as cluster:
        cluster.create_topic("orders", replicas=3)
        cluster.produce("orders", "one")
        cluster.add()
        cluster.stop(4)
        validity = Validity(now() - DAY / 24, now() - DAY / 48)
        age(cluster.folder / "node-4", authority_of(cluster.nodes[1].node), validity)
        used = cluster.nodes[4]._settings.pop("headrace.join.token.file")
        with pytest.raises(CannotJoin, match="headrace cluster token create --node-id 4"):
            cluster.nodes[4].start()
        cluster.nodes[4].set("headrace.join.token.file", used)
        with pytest.raises(CannotJoin, match="the join token was used"):
            cluster.nodes[4].start()
        fresh = cluster.folder / "fresh.token"
        offline = create_token(SECRET, 4, int(now().timestamp()) + 600)
        fresh.write_text("\n".join((offline, *care_of(cluster.nodes[1]).pins())))
        cluster.nodes[4].set("headrace.join.token.file", str(fresh))
        with pytest.raises(CannotJoin, match="does not list its join token"):
            cluster.nodes[4].start()
        fresh.write_text(run(cluster, 1, "token", "create", "--node-id", "4", "--expires", "2h"))
        cluster.nodes[4].set("headrace.join.token.file", str(fresh))
        cluster.nodes[4].start()
        assert tls_of(cluster.nodes[4]).is_certified
        states = run(cluster, 1, "token", "list")
        assert "joining" not in states


def test_a_founder_that_ends_in_the_middle_goes_on_where_it_was(tmp_path: Path) -> None:
    """The key of the CA is there before anybody is told of it, the certificate after that."""
    folder, settings = tmp_path / "node", encrypted(tmp_path)
    with TestBroker(folder, settings) as node:
        (pin,) = care_of(node).pins()
    (folder / "node-tls.json").unlink()
    with TestBroker(folder, settings) as node:
        assert care_of(node).pins() == (pin,)
        assert tls_of(node).is_certified
    early = tmp_path / "early"
    early.mkdir()
    shutil.copy(folder / "cluster-ca.json", early)
    with TestBroker(early, settings) as node:
        assert care_of(node).pins() == (pin,)


def test_a_damaged_file_of_keys_is_named(tmp_path: Path) -> None:
    folder, settings = tmp_path / "node", encrypted(tmp_path)
    with TestBroker(folder, settings):
        pass
    for name in ("node-tls.json", "cluster-ca.json"):
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(whole[:-20])
        with pytest.raises(KeyFileUnreadable, match=name):
            TestBroker(folder, settings).start()
        (folder / name).write_bytes(whole)


def test_one_node_may_begin_to_speak_tls_and_not_stop_again(tmp_path: Path) -> None:
    folder, settings = tmp_path / "node", encrypted(tmp_path)
    with TestBroker(folder) as node:
        node.create_topic("orders")
        node.produce("orders", "one")
    with TestBroker(folder, settings) as node:
        assert [each.value for each in node.consume("orders")] == [b"one"]
    plain = TestBroker(folder)
    with pytest.raises(InvalidSetting, match=r"headrace\.node\.tls"):
        plain.start()


def test_a_cluster_in_plain_text_is_not_split_by_tls(tmp_path: Path) -> None:
    settings = encrypted(tmp_path)
    plain = {**settings, "headrace.node.tls": "false"}
    with TestCluster(2, tmp_path / "cluster", plain) as cluster:
        cluster.stop(2)
        cluster.nodes[2].set("headrace.node.tls", "true")
        with pytest.raises(CannotJoin, match=r"headrace\.node\.tls=false"):
            cluster.nodes[2].start()
        cluster.nodes[2].set("headrace.node.tls", "false")
        cluster.nodes[2].start()


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"headrace.node.tls": "true"}, "headrace.cluster.secret.file"),
        ({"headrace.node.listen": "10.0.0.1:9093", "headrace.node.tls": "false"}, "insecure"),
        ({"headrace.node.fetch.port": "9095"}, "headrace.node.fetch.port"),
        ({"headrace.node.certificate.days": "9"}, "headrace.node.certificate.days"),
        (
            {"headrace.node.listen": "10.0.0.1:9093", "inter.broker.listener.name": "PLAINTEXT"},
            "inter.broker.listener.name",
        ),
        (
            {
                "headrace.node.listen": "10.0.0.1:9093",
                "headrace.node.tls": "false",
                "headrace.insecure": "true",
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            },
            "speaks TLS to other nodes",
        ),
    ],
)
def test_what_would_not_be_encrypted_is_refused(given: dict[str, str], complaint: str) -> None:
    with pytest.raises(InvalidSetting, match=complaint.replace(".", r"\.")):
        load_settings(None, {}, given)


def test_a_secured_node_may_have_its_node_port_anywhere() -> None:
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    given = {"headrace.node.listen": "10.0.0.1:9093", "authorizer.class.name": authorizer}
    load_settings(None, {}, given)
    load_settings(
        None,
        {},
        {**given, "headrace.node.tls": "true"} | {"headrace.cluster.secret.file": "secret"},
    )


def test_nothing_is_requested_twice_with_one_key(tmp_path: Path) -> None:
    with cluster_of(tmp_path, 1) as cluster:
        tls = tls_of(cluster.nodes[1])
        authority = authority_of(cluster.nodes[1].node)
        tls.request()
        other = sign(make_request(tls._key), tls.name, authority, valid_for(1, now()))
        with pytest.raises(ValueError, match="another key"):
            tls.install(other, tls.trusted)
