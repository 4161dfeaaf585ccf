from pathlib import Path

from headrace.client.security.settings import ClientSecurity
from headrace.spark.options import Connecting
from headrace.spark.sink.driver import (
    CLUSTERS_FOLDER,
    driver_folder,
    note_cluster,
    noted_clusters,
)

HERE = Connecting(bootstrap="127.0.0.1:9092", api_timeout_ms=5000)
THERE = Connecting(bootstrap="127.0.0.1:9093")


def test_clusters_are_noted_once_as_they_are(tmp_path: Path) -> None:
    environment = {CLUSTERS_FOLDER: str(tmp_path)}
    for each in (HERE, THERE, HERE):
        note_cluster(each, environment)
    found = noted_clusters(tmp_path)
    assert len(found) == 2
    assert {each.bootstrap: each for each in found} == {
        HERE.bootstrap: HERE,
        THERE.bootstrap: THERE,
    }


def test_a_secured_cluster_is_noted_for_this_user_only(tmp_path: Path) -> None:
    security = ClientSecurity.of(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "ann",
            "sasl.password": "secret",
            "ssl.ca.location": "ca.pem",
        }
    )
    secured = Connecting(bootstrap="127.0.0.1:9093", security=security)
    note_cluster(secured, {CLUSTERS_FOLDER: str(tmp_path)})
    assert noted_clusters(tmp_path) == [secured]
    assert {note.stat().st_mode & 0o777 for note in tmp_path.iterdir()} == {0o600}


def test_where_nobody_asks_nothing_is_noted(tmp_path: Path) -> None:
    note_cluster(HERE, {})
    note_cluster(HERE, {CLUSTERS_FOLDER: str(tmp_path / "gone")})
    assert noted_clusters(tmp_path) == []
    assert noted_clusters(tmp_path / "gone") == []


def test_what_is_no_note_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("not a note")
    note_cluster(HERE, {CLUSTERS_FOLDER: str(tmp_path)})
    assert noted_clusters(tmp_path) == [HERE]


def test_the_first_folder_is_the_drivers() -> None:
    assert driver_folder({"SPARK_LOCAL_DIRS": "/a,/b"}) == Path("/a")
    assert driver_folder({}) is None
