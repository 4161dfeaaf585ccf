import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Iterator;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.metadata.storage.RemoteLogMetadataTopicPartitioner;
import org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentId;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadataUpdate;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentState;
import org.apache.kafka.server.log.remote.storage.RemotePartitionDeleteMetadata;
import org.apache.kafka.server.log.remote.storage.RemotePartitionDeleteState;

/**
 * Kafka's TopicBasedRemoteLogMetadataManager as a client of any cluster. Its arguments are the
 * bootstrap servers, a folder of its own, and the number of partitions of the metadata topic.
 *
 * <pre>
 * place    partition  count          -> the metadata partition
 * follow   partition                 returns when the manager is ready for it
 * add      segment
 * update   segment                   its id, broker, timestamp, custom and state count
 * delete   partition  state          a number of RemotePartitionDeleteState
 * find     partition  epoch  offset  -> segment, or nothing
 * aborted  partition  epoch  offset  -> the next segment with a transaction index, or nothing
 * highest  partition  epoch          -> offset, or nothing
 * size     partition  epoch
 * list     partition                 -> [segment]
 *     partition  {"topic", "topicId", "partition"}
 *     segment    a partition, and {"id", "start", "end", "maxTimestamp", "broker", "timestamp",
 *                "size", "epochs": [[epoch, offset]], "custom": hex or null, "state", "txnEmpty"}
 * </pre>
 */
final class RemoteMetadataOracle {
    private static final long WAIT_MS = 60_000;

    public static void main(String[] args) throws Exception {
        var configs = new HashMap<String, Object>();
        configs.put("remote.log.metadata.common.client.bootstrap.servers", args[0]);
        configs.put("log.dir", args[1]);
        configs.put("remote.log.metadata.topic.num.partitions", args[2]);
        configs.put("remote.log.metadata.topic.replication.factor", "1");
        configs.put("remote.log.metadata.topic.min.isr", "1");
        configs.put("remote.log.metadata.consume.wait.ms", Long.toString(WAIT_MS));
        configs.put("broker.id", "42");
        var manager = new TopicBasedRemoteLogMetadataManager();
        manager.configure(configs);
        manager.onBrokerReady();
        LineServer.serve(words -> answer(manager, words));
        manager.close();
    }

    private static String answer(TopicBasedRemoteLogMetadataManager manager, String[] words)
            throws Exception {
        JsonNode json = LineServer.JSON.readTree(words[1]);
        TopicIdPartition partition = partition(json);
        switch (words[0]) {
            case "place" -> {
                var partitioner = new RemoteLogMetadataTopicPartitioner(Integer.parseInt(words[2]));
                return Integer.toString(partitioner.metadataPartition(partition));
            }
            case "follow" -> {
                manager.onPartitionLeadershipChanges(Set.of(partition), Set.of());
                for (long left = WAIT_MS; !manager.isReady(partition); left -= 20) {
                    if (left <= 0) {
                        throw new IllegalStateException("not ready in " + WAIT_MS + " ms");
                    }
                    Thread.sleep(20);
                }
                return "";
            }
            case "add" -> {
                manager.addRemoteLogSegmentMetadata(segment(json, partition))
                    .get(WAIT_MS, TimeUnit.MILLISECONDS);
                return "";
            }
            case "update" -> {
                manager.updateRemoteLogSegmentMetadata(new RemoteLogSegmentMetadataUpdate(
                    new RemoteLogSegmentId(partition, Uuid.fromString(json.get("id").asText())),
                    json.get("timestamp").asLong(), custom(json), state(json),
                    json.get("broker").asInt())).get(WAIT_MS, TimeUnit.MILLISECONDS);
                return "";
            }
            case "delete" -> {
                manager.putRemotePartitionDeleteMetadata(new RemotePartitionDeleteMetadata(
                    partition, RemotePartitionDeleteState.forId(Byte.parseByte(words[2])), 789, 42))
                    .get(WAIT_MS, TimeUnit.MILLISECONDS);
                return "";
            }
            case "find" -> {
                return text(manager.remoteLogSegmentMetadata(
                    partition, Integer.parseInt(words[2]), Long.parseLong(words[3])));
            }
            case "aborted" -> {
                return text(manager.nextSegmentWithTxnIndex(
                    partition, Integer.parseInt(words[2]), Long.parseLong(words[3])));
            }
            case "highest" -> {
                return manager.highestOffsetForEpoch(partition, Integer.parseInt(words[2]))
                    .map(Object::toString).orElse("");
            }
            case "size" -> {
                return Long.toString(manager.remoteLogSize(partition, Integer.parseInt(words[2])));
            }
            case "list" -> {
                return text(manager.listRemoteLogSegments(partition));
            }
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    private static TopicIdPartition partition(JsonNode json) {
        return new TopicIdPartition(
            Uuid.fromString(json.get("topicId").asText()),
            new TopicPartition(json.get("topic").asText(), json.get("partition").asInt()));
    }

    private static RemoteLogSegmentMetadata segment(JsonNode json, TopicIdPartition partition) {
        var epochs = new TreeMap<Integer, Long>();
        json.get("epochs").forEach(each -> epochs.put(each.get(0).asInt(), each.get(1).asLong()));
        return new RemoteLogSegmentMetadata(
            new RemoteLogSegmentId(partition, Uuid.fromString(json.get("id").asText())),
            json.get("start").asLong(), json.get("end").asLong(),
            json.get("maxTimestamp").asLong(), json.get("broker").asInt(),
            json.get("timestamp").asLong(), json.get("size").asInt(), custom(json), state(json),
            epochs, json.get("txnEmpty").asBoolean());
    }

    private static Optional<CustomMetadata> custom(JsonNode json) {
        JsonNode hex = json.get("custom");
        return hex.isNull()
            ? Optional.empty()
            : Optional.of(new CustomMetadata(HexFormat.of().parseHex(hex.asText())));
    }

    private static RemoteLogSegmentState state(JsonNode json) {
        return RemoteLogSegmentState.forId((byte) json.get("state").asInt());
    }

    private static String text(Optional<RemoteLogSegmentMetadata> segment) throws Exception {
        return segment.isEmpty() ? "" : LineServer.JSON.writeValueAsString(json(segment.get()));
    }

    private static String text(Iterator<RemoteLogSegmentMetadata> segments) throws Exception {
        var rows = LineServer.JSON.createArrayNode();
        segments.forEachRemaining(segment -> rows.add(json(segment)));
        return LineServer.JSON.writeValueAsString(rows);
    }

    private static ObjectNode json(RemoteLogSegmentMetadata segment) {
        TopicIdPartition partition = segment.topicIdPartition();
        var epochs = LineServer.JSON.createArrayNode();
        for (Map.Entry<Integer, Long> each : segment.segmentLeaderEpochs().entrySet()) {
            epochs.addArray().add(each.getKey()).add(each.getValue());
        }
        ObjectNode row = LineServer.JSON.createObjectNode()
            .put("topic", partition.topic())
            .put("topicId", partition.topicId().toString())
            .put("partition", partition.partition())
            .put("id", segment.remoteLogSegmentId().id().toString())
            .put("start", segment.startOffset())
            .put("end", segment.endOffset())
            .put("maxTimestamp", segment.maxTimestampMs())
            .put("broker", segment.brokerId())
            .put("timestamp", segment.eventTimestampMs())
            .put("size", segment.segmentSizeInBytes())
            .put("custom", segment.customMetadata()
                .map(each -> HexFormat.of().formatHex(each.value())).orElse(null))
            .put("state", segment.state().id())
            .put("txnEmpty", segment.isTxnIdxEmpty());
        row.set("epochs", epochs);
        return row;
    }

    private RemoteMetadataOracle() {}
}
