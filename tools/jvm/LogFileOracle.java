import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.Properties;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.metadata.properties.MetaProperties;
import org.apache.kafka.metadata.properties.MetaPropertiesVersion;
import org.apache.kafka.metadata.properties.PropertiesUtils;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.checkpoint.CleanShutdownFileHandler;
import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile;
import org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile;
import org.apache.kafka.storage.internals.checkpoint.PartitionMetadataFile;
import org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache;
import org.apache.kafka.storage.internals.log.AbortedTxn;
import org.apache.kafka.storage.internals.log.BatchMetadata;
import org.apache.kafka.storage.internals.log.EpochEntry;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.TransactionIndex;

/**
 * The small files of a log directory, as Kafka's own classes read and write them.
 *
 * <pre>
 * write  kind  path  json      the file is there afterwards
 * read   kind  path            -> json
 *     snapshot  [[producerId, epoch, coordinatorEpoch, timestamp, transaction or -1,
 *                 [[lastSequence, lastOffset, offsetDelta, timestamp]]]], which is only read
 *     txnindex  [[producerId, firstOffset, lastOffset, lastStableOffset]]
 *     epochs    [[epoch, startOffset]]
 *     offsets   [[topic, partition, offset]]
 *     partition "topic id"                 path is the partition's folder
 *     meta      ["cluster id", nodeId, "directory id"]
 *     shutdown  brokerEpoch                path is the log directory
 * aborted  path  fetchOffset  endOffset    -> [[the entries], isComplete]
 * cut      path  offset                    truncates a txnindex
 * sanity   path  baseOffset                fails if a txnindex is corrupt
 * epoch    [[operation, argument...]]      -> [answer...], on an empty cache of leader epochs
 * </pre>
 */
final class LogFileOracle {
    private static final LogDirFailureChannel FAILURES = new LogDirFailureChannel(1);

    private static final KafkaScheduler SCHEDULER = new KafkaScheduler(1, true);

    public static void main(String[] args) throws Exception {
        SCHEDULER.startup();
        LineServer.serve(words -> LineServer.JSON.writeValueAsString(answer(words)));
    }

    private static JsonNode answer(String[] words) throws Exception {
        switch (words[0]) {
            case "write" -> {
                write(words[1], new File(words[2]), LineServer.JSON.readTree(words[3]));
                return LineServer.JSON.nullNode();
            }
            case "read" -> {
                return read(words[1], new File(words[2]));
            }
            case "aborted" -> {
                try (var index = new TransactionIndex(0, new File(words[1]))) {
                    var found = index.collectAbortedTxns(
                        Long.parseLong(words[2]), Long.parseLong(words[3]));
                    ArrayNode json = LineServer.JSON.createArrayNode();
                    json.add(aborted(found.abortedTransactions()));
                    return json.add(found.isComplete());
                }
            }
            case "cut" -> {
                try (var index = new TransactionIndex(0, new File(words[1]))) {
                    index.truncateTo(Long.parseLong(words[2]));
                    return LineServer.JSON.nullNode();
                }
            }
            case "sanity" -> {
                try (var index = new TransactionIndex(
                        Long.parseLong(words[2]), new File(words[1]))) {
                    index.sanityCheck();
                    return LineServer.JSON.nullNode();
                }
            }
            case "epoch" -> {
                return epochs(LineServer.JSON.readTree(words[1]));
            }
            default -> throw new IllegalArgumentException("no command " + words[0]);
        }
    }

    private static void write(String kind, File file, JsonNode json) throws Exception {
        switch (kind) {
            case "txnindex" -> {
                try (var index = new TransactionIndex(0, file)) {
                    for (JsonNode row : json) {
                        index.append(new AbortedTxn(
                            row.get(0).longValue(), row.get(1).longValue(),
                            row.get(2).longValue(), row.get(3).longValue()));
                    }
                    index.flush();
                }
            }
            case "epochs" -> {
                List<EpochEntry> entries = new ArrayList<>();
                for (JsonNode row : json) {
                    entries.add(new EpochEntry(row.get(0).intValue(), row.get(1).longValue()));
                }
                new LeaderEpochCheckpointFile(file, FAILURES).write(entries);
            }
            case "offsets" -> {
                Map<TopicPartition, Long> offsets = new HashMap<>();
                for (JsonNode row : json) {
                    offsets.put(
                        new TopicPartition(row.get(0).textValue(), row.get(1).intValue()),
                        row.get(2).longValue());
                }
                new OffsetCheckpointFile(file, FAILURES).write(offsets);
            }
            case "partition" -> {
                var metadata =
                    new PartitionMetadataFile(PartitionMetadataFile.newFile(file), FAILURES);
                metadata.record(Uuid.fromString(json.textValue()));
                metadata.maybeFlush();
            }
            case "meta" -> PropertiesUtils.writePropertiesFile(
                new MetaProperties.Builder().setVersion(MetaPropertiesVersion.V1)
                    .setClusterId(json.get(0).textValue())
                    .setNodeId(json.get(1).intValue())
                    .setDirectoryId(Uuid.fromString(json.get(2).textValue()))
                    .build().toProperties(),
                file.getPath(), true);
            case "shutdown" ->
                new CleanShutdownFileHandler(file.getPath()).write(json.longValue());
            default -> throw new IllegalArgumentException("no kind " + kind);
        }
    }

    private static JsonNode read(String kind, File file) throws Exception {
        ArrayNode rows = LineServer.JSON.createArrayNode();
        switch (kind) {
            case "snapshot" -> {
                for (ProducerStateEntry entry : ProducerStateManager.readSnapshot(file)) {
                    rows.add(producer(entry));
                }
            }
            case "txnindex" -> {
                try (var index = new TransactionIndex(0, file)) {
                    return aborted(index.allAbortedTxns());
                }
            }
            case "epochs" -> {
                for (EpochEntry entry : new LeaderEpochCheckpointFile(file, FAILURES).read()) {
                    rows.addArray().add(entry.epoch()).add(entry.startOffset());
                }
            }
            case "offsets" -> new OffsetCheckpointFile(file, FAILURES).read()
                .forEach((partition, offset) -> rows.addArray()
                    .add(partition.topic()).add(partition.partition()).add(offset));
            case "partition" -> {
                var metadata =
                    new PartitionMetadataFile(PartitionMetadataFile.newFile(file), FAILURES);
                return LineServer.JSON.valueToTree(metadata.read().topicId().toString());
            }
            case "meta" -> {
                Properties properties = PropertiesUtils.readPropertiesFile(file.getPath());
                MetaProperties meta = new MetaProperties.Builder(properties).build();
                rows.add(meta.clusterId().orElse(null)).add(meta.nodeId().orElse(-1))
                    .add(meta.directoryId().map(Uuid::toString).orElse(null));
            }
            case "shutdown" -> {
                OptionalLong epoch = new CleanShutdownFileHandler(file.getPath()).read();
                return LineServer.JSON.valueToTree(epoch.isPresent() ? epoch.getAsLong() : null);
            }
            default -> throw new IllegalArgumentException("no kind " + kind);
        }
        return rows;
    }

    private static ArrayNode producer(ProducerStateEntry entry) {
        ArrayNode row = LineServer.JSON.createArrayNode()
            .add(entry.producerId()).add(entry.producerEpoch()).add(entry.coordinatorEpoch())
            .add(entry.lastTimestamp()).add(entry.currentTxnFirstOffset().orElse(-1));
        ArrayNode batches = row.addArray();
        for (BatchMetadata batch : entry.batchMetadata()) {
            batches.addArray()
                .add(batch.lastSeq()).add(batch.lastOffset())
                .add(batch.offsetDelta()).add(batch.timestamp());
        }
        return row;
    }

    private static ArrayNode aborted(List<AbortedTxn> transactions) {
        ArrayNode rows = LineServer.JSON.createArrayNode();
        for (AbortedTxn transaction : transactions) {
            rows.addArray()
                .add(transaction.producerId()).add(transaction.firstOffset())
                .add(transaction.lastOffset()).add(transaction.lastStableOffset());
        }
        return rows;
    }

    private static ArrayNode epochs(JsonNode operations) throws IOException {
        Path file = Files.createTempFile("epochs", null);
        try {
            var cache = new LeaderEpochFileCache(
                new TopicPartition("topic", 0),
                new LeaderEpochCheckpointFile(file.toFile(), FAILURES), SCHEDULER);
            ArrayNode answers = LineServer.JSON.createArrayNode();
            for (JsonNode operation : operations) {
                answers.add(epoch(cache, operation));
            }
            return answers;
        } finally {
            Files.deleteIfExists(file);
        }
    }

    private static JsonNode epoch(LeaderEpochFileCache cache, JsonNode operation) {
        long number = operation.path(1).longValue();
        switch (operation.get(0).textValue()) {
            case "assign" -> {
                try {
                    cache.assign((int) number, operation.get(2).longValue());
                } catch (IllegalArgumentException refusal) {
                    return LineServer.JSON.valueToTree("refused");
                }
            }
            case "truncate_from_end" -> cache.truncateFromEndAsyncFlush(number);
            case "truncate_from_start" -> cache.truncateFromStartAsyncFlush(number);
            case "end_offset_for" -> {
                var found = cache.endOffsetFor((int) number, operation.get(2).longValue());
                return LineServer.JSON.createArrayNode().add(found.getKey()).add(found.getValue());
            }
            case "epoch_for_offset" -> {
                return number(cache.epochForOffset(number));
            }
            case "previous_epoch" -> {
                return number(cache.previousEpoch((int) number));
            }
            case "next_epoch" -> {
                return number(cache.nextEpoch((int) number));
            }
            default -> throw new IllegalArgumentException("no operation " + operation);
        }
        ArrayNode rows = LineServer.JSON.createArrayNode();
        for (EpochEntry entry : cache.epochEntries()) {
            rows.addArray().add(entry.epoch()).add(entry.startOffset());
        }
        return rows;
    }

    private static JsonNode number(OptionalInt value) {
        return LineServer.JSON.valueToTree(value.isPresent() ? value.getAsInt() : null);
    }

    private LogFileOracle() {}
}
