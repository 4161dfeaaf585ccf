"""Entries of the metadata log: what applying one costs."""

from headrace.ids import BrokerId, PartitionIndex, TopicId, TopicName
from headrace.metadata.configs import set_configs
from headrace.metadata.ddl import ChangePartition, CreateTopic, SetConfigs
from headrace.metadata.eligible import MIN_INSYNC_REPLICAS
from headrace.metadata.state import ResourceType
from headrace.metadata.topics import change_partition, create_topic
from tests.growth.steps import assert_stays_flat, steps
from tests.unit.metadata.clusters import assign, new_image

FEW = 10


def test_another_min_isr_costs_what_partitions_have_an_elr() -> None:
    def empty(partitions: int) -> int:
        image = new_image()
        name, topic_id = TopicName("orders"), TopicId(b"orders-topic--id")
        configs = {MIN_INSYNC_REPLICAS: "2"}
        set_configs(image, SetConfigs(ResourceType.BROKER, "", {**configs}))
        create_topic(image, CreateTopic(name, topic_id, (assign(1, 2),) * partitions))
        for index in range(FEW):
            change = ChangePartition(topic_id, PartitionIndex(index), isr=(BrokerId(1),))
            change_partition(image, change)
        assert len(image.partitions_with_elr(name)) == FEW
        other = SetConfigs(ResourceType.BROKER, "", {MIN_INSYNC_REPLICAS: "1"})
        spent = steps(lambda: set_configs(image, other))
        assert image.partitions_with_elr(name) == []
        return spent

    assert_stays_flat(empty, 100)
