import com.fasterxml.jackson.databind.JsonNode;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentId;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager;

/**
 * Kafka's LocalTieredStorage on a folder, which is its argument. By name, as it is in a jar of tests.
 *
 * <pre>
 * copy    segment  folder      the files log, index, timeindex, txnindex (if it is there), snapshot
 *                              and epochs of the folder
 * fetch   segment  position    -> hex
 * index   segment  type        -> hex; a name of RemoteStorageManager.IndexType
 * delete  segment
 *     segment  {"topic", "topicId", "partition", "id", "start", "end", "size", "epochs": [[e, o]]}
 * </pre>
 */
final class TieredStorageOracle {
    private static final String STORAGE =
        "org.apache.kafka.server.log.remote.storage.LocalTieredStorage";

    public static void main(String[] args) throws Exception {
        var storage = (RemoteStorageManager) Class.forName(STORAGE)
            .getDeclaredConstructor().newInstance();
        storage.configure(Map.of("dir", args[0], "broker.id", 1));
        LineServer.serve(words -> {
            RemoteLogSegmentMetadata segment = segment(LineServer.JSON.readTree(words[1]));
            switch (words[0]) {
                case "copy" -> {
                    var custom = storage.copyLogSegmentData(segment, files(Path.of(words[2])));
                    return custom.map(Object::toString).orElse("");
                }
                case "fetch" -> {
                    return hex(storage.fetchLogSegment(segment, Integer.parseInt(words[2])));
                }
                case "index" -> {
                    var type = RemoteStorageManager.IndexType.valueOf(words[2]);
                    return hex(storage.fetchIndex(segment, type));
                }
                case "delete" -> {
                    storage.deleteLogSegmentData(segment);
                    return "";
                }
                default -> throw new IllegalArgumentException(words[0]);
            }
        });
    }

    private static RemoteLogSegmentMetadata segment(JsonNode json) {
        var partition = new TopicIdPartition(
            Uuid.fromString(json.get("topicId").asText()),
            new TopicPartition(json.get("topic").asText(), json.get("partition").asInt()));
        var epochs = new TreeMap<Integer, Long>();
        json.get("epochs").forEach(each -> epochs.put(each.get(0).asInt(), each.get(1).asLong()));
        return new RemoteLogSegmentMetadata(
            new RemoteLogSegmentId(partition, Uuid.fromString(json.get("id").asText())),
            json.get("start").asLong(), json.get("end").asLong(),
            0, 1, 0, json.get("size").asInt(), epochs);
    }

    private static LogSegmentData files(Path folder) throws Exception {
        Path txnIndex = folder.resolve("txnindex");
        return new LogSegmentData(
            folder.resolve("log"), folder.resolve("index"), folder.resolve("timeindex"),
            Files.exists(txnIndex) ? Optional.of(txnIndex) : Optional.empty(),
            folder.resolve("snapshot"),
            ByteBuffer.wrap(Files.readAllBytes(folder.resolve("epochs"))));
    }

    private static String hex(InputStream stream) throws Exception {
        try (stream) {
            return HexFormat.of().formatHex(stream.readAllBytes());
        }
    }

    private TieredStorageOracle() {}
}
