from headrace.spark.sink.stopping import writer_of

DRIVER = {"SPARK_LOCAL_DIRS": "/tmp/blockmgr-1"}
OPTIONS = {"topic": "t", "checkpointLocation": "/data/query"}


def test_every_writer_of_a_query_has_its_label() -> None:
    first = writer_of(OPTIONS, DRIVER)
    second = writer_of({"checkpointlocation": "/data/query", "TOPIC": "t"}, DRIVER)
    assert first.label
    assert first.label == second.label
    assert first.made_ns <= second.made_ns


def test_other_queries_and_drivers_have_other_labels() -> None:
    labels = {
        writer_of(OPTIONS, DRIVER).label,
        writer_of({**OPTIONS, "checkpointLocation": "/data/other"}, DRIVER).label,
        writer_of({"topic": "t", "queryName": "q"}, DRIVER).label,
        writer_of(OPTIONS, {"SPARK_LOCAL_DIRS": "/tmp/blockmgr-2"}).label,
    }
    assert len(labels) == 4


def test_a_query_that_nothing_tells_from_others_has_no_label() -> None:
    assert writer_of({"topic": "t"}, DRIVER).label == ""
    assert writer_of(OPTIONS, {}).label == ""
