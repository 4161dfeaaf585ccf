"""The hash of a group's topics is Kafka's: the numbers were read from its `__consumer_offsets`."""

from headrace.groups.metadata_hash import metadata_hash
from tests.unit.groups.consumer.consumer_world import World


def test_a_topic_has_the_hash_that_kafka_writes() -> None:
    world = World()
    world.set_rack("r1")
    world.add_topic("t", 4, topic_id=bytes.fromhex("6b4a51d4e8064653baf56d253daa2e8c"))
    assert metadata_hash(["t"], world.image) == -311476348140728422


def test_topics_that_are_not_there_do_not_count() -> None:
    world = World()
    world.add_topic("t", 4)
    assert metadata_hash(["t", "no"], world.image) == metadata_hash(["t"], world.image)
    assert metadata_hash(["no"], world.image) == 0
    assert metadata_hash([], world.image) == 0


def test_partitions_racks_and_ids_make_another_hash() -> None:
    world = World()
    world.add_topic("t", 4)
    hashes = [metadata_hash(["t"], world.image)]
    world.grow_topic("t", 1)
    hashes.append(metadata_hash(["t"], world.image))
    world.set_rack("r1")
    hashes.append(metadata_hash(["t"], world.image))
    world.remove_topic("t")
    world.add_topic("t", 5, topic_id=b"another-identity")
    hashes.append(metadata_hash(["t"], world.image))
    assert len(set(hashes)) == 4
