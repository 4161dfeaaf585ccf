import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.function.Supplier;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.requests.ProduceResponse.RecordError;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.RecordValidationException;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * What a Kafka broker does with the records that a client produces to an empty partition.
 *
 * <pre>
 * append  hex  {"now": 1700000000000, "leaderEpoch": 0, "config": {"cleanup.policy": "compact"}}
 *     -> {"error": "INVALID_RECORD", "stage": "log", "message": "...",
 *         "recordErrors": [{"index": 0, "message": "..."}], "stored": null}
 * </pre>
 *
 * <p>config is the topic's, by Kafka's names; a key left out has Kafka's default. now is the
 * broker's clock and leaderEpoch the partition's, both 0 if left out. stage says who refused:
 * {@code request}, the check of a produce request of the newest version, or {@code log}, the
 * partition's log. Where the error is NONE, stage and message are null and stored is the base64 of
 * the log's bytes.
 *
 * <p>The log is a real one, in a folder that is made for the request and removed after it. Neither
 * transactions nor producer ids are looked up elsewhere.
 */
final class LogOracle {
    private static final int MINUTE_MS = 60_000;

    private static final KafkaScheduler SCHEDULER = new KafkaScheduler(1, true);

    private static final BrokerTopicStats STATS = new BrokerTopicStats();

    public static void main(String[] args) throws Exception {
        SCHEDULER.startup();
        LineServer.serve(words -> switch (words[0]) {
            case "append" -> LineServer.JSON.writeValueAsString(append(
                MemoryRecords.readableRecords(LineServer.bytes(words[1])),
                LineServer.JSON.readTree(words[2])));
            default -> throw new IllegalArgumentException("no command " + words[0]);
        });
    }

    private static ObjectNode append(MemoryRecords records, JsonNode settings) throws IOException {
        Path folder = Files.createTempDirectory("log-oracle");
        try (UnifiedLog log = open(Files.createDirectory(folder.resolve("topic-0")), settings)) {
            String stage = "request";
            try {
                ProduceRequest.validateRecords(ApiKeys.PRODUCE.latestVersion(), records);
                stage = "log";
                log.appendAsLeader(records, settings.path("leaderEpoch").intValue());
            } catch (RuntimeException refusal) {
                return refused(refusal, stage);
            }
            return accepted(log.activeSegment().log());
        } finally {
            Utils.delete(folder.toFile());
        }
    }

    private static UnifiedLog open(Path folder, JsonNode settings) throws IOException {
        Map<String, String> config = new HashMap<>(Map.of("segment.index.bytes", "1024"));
        settings.path("config").properties()
            .forEach(entry -> config.put(entry.getKey(), entry.getValue().asText()));
        return UnifiedLog.create(
            folder.toFile(), new LogConfig(config),
            0, // log start offset
            0, // recovery point
            SCHEDULER, STATS, new StoppedClock(settings.path("now").longValue()),
            MINUTE_MS, // the longest transaction
            new ProducerStateManagerConfig(MINUTE_MS, false),
            MINUTE_MS, // between checks for expired producer ids
            new LogDirFailureChannel(1),
            true, // shut down cleanly: nothing to recover
            Optional.empty());
    }

    private static ObjectNode accepted(FileRecords log) throws IOException {
        var stored = ByteBuffer.allocate(log.sizeInBytes());
        log.readInto(stored, 0);
        ObjectNode json = LineServer.JSON.createObjectNode()
            .put("error", Errors.NONE.name()).putNull("stage").putNull("message");
        json.putArray("recordErrors");
        return json.put("stored", stored.array());
    }

    private static ObjectNode refused(RuntimeException refusal, String stage) {
        RuntimeException cause = refusal instanceof RecordValidationException invalid
            ? invalid.invalidException() : refusal;
        ObjectNode json = LineServer.JSON.createObjectNode()
            .put("error", Errors.forException(cause).name())
            .put("stage", stage)
            .put("message", cause.getMessage());
        ArrayNode recordErrors = json.putArray("recordErrors");
        if (refusal instanceof RecordValidationException invalid) {
            for (RecordError error : invalid.recordErrors()) {
                recordErrors.addObject()
                    .put("index", error.batchIndex).put("message", error.message);
            }
        }
        return json.putNull("stored");
    }

    /** A clock that shows one moment. */
    private record StoppedClock(long milliseconds) implements Time {
        @Override
        public long nanoseconds() {
            return milliseconds * 1_000_000;
        }

        @Override
        public void sleep(long ms) {
            throw new UnsupportedOperationException("the clock stands still");
        }

        @Override
        public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
            throw new UnsupportedOperationException("the clock stands still");
        }
    }

    private LogOracle() {}
}
