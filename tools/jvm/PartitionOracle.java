import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.concurrent.ScheduledFuture;
import java.util.function.Supplier;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.AbortedTxn;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.BatchMetadata;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogStartOffsetIncrementReason;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.RecordValidationException;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * One partition of a broker, step by step: what it answers and what it knows of its producers.
 *
 * <pre>
 * new       expirationMs              an empty partition takes the place of the one before
 * append    origin  version  hex      as leader: CLIENT or COORDINATOR, version of transactions
 * replicate hex                       as follower: batches that have their offsets
 * clock     nowMs
 * watermark offset
 * start     offset                    delete records before it; the high watermark must be there
 * truncate  offset
 * expire                              forget producers that were idle for too long
 * roll                                begin a segment, with a snapshot of the producers
 *     -> {"error": "NONE", "message": null, "append": {"first": 0, "last": 0, "time": -1} or null,
 *         "start": 0, "watermark": 0, "unstable": null, "stable": 0, "end": 1,
 *         "producers": [{"id": 1, "epoch": 0, "coordinatorEpoch": -1, "timestamp": 5,
 *             "transaction": null, "batches": [[lastSequence, lastOffset, offsetDelta, time]]}],
 *         "aborted": [[producerId, firstOffset, lastOffset, lastStableOffset]]}
 * snapshot                            -> the hex of a snapshot of the producers
 * </pre>
 *
 * <p>unstable is what the producers say; the log rounds it down to a batch. The log is a real one.
 * Its verification of transactions is off, so that every transactional batch is taken as if its
 * coordinator knew of it.
 */
final class PartitionOracle {
    private static final int MINUTE_MS = 60_000;

    private static final Inline SCHEDULER = new Inline();

    private static final BrokerTopicStats STATS = new BrokerTopicStats();

    private static final Clock CLOCK = new Clock();

    private static Path folder;

    private static UnifiedLog log;

    public static void main(String[] args) throws Exception {
        folder = Files.createTempDirectory("partition-oracle");
        try {
            LineServer.serve(words -> words[0].equals("snapshot")
                ? snapshot() : LineServer.JSON.writeValueAsString(step(words)));
        } finally {
            Utils.delete(folder.toFile());
        }
    }

    private static String snapshot() throws IOException {
        Path file = folder.resolve("snapshot");
        Files.deleteIfExists(file); // writeSnapshot leaves the end of a longer file in place
        ProducerStateManager.writeSnapshot(
            file.toFile(), log.producerStateManager().activeProducers(), false);
        return HexFormat.of().formatHex(Files.readAllBytes(file));
    }

    private static ObjectNode step(String[] words) throws Exception {
        RuntimeException refusal = null;
        LogAppendInfo appended = null;
        try {
            appended = run(words);
        } catch (RuntimeException error) {
            refusal = error instanceof RecordValidationException invalid
                ? invalid.invalidException() : error;
        }
        Errors error = refusal == null ? Errors.NONE : Errors.forException(refusal);
        ObjectNode json = LineServer.JSON.createObjectNode()
            .put("error", error.name())
            .put("message", refusal == null ? null : refusal.toString());
        if (appended == null) {
            json.putNull("append");
        } else {
            json.putObject("append")
                .put("first", appended.firstOffset())
                .put("last", appended.lastOffset())
                .put("time", appended.logAppendTime());
        }
        return describe(json);
    }

    private static LogAppendInfo run(String[] words) throws Exception {
        switch (words[0]) {
            case "new" -> open(Integer.parseInt(words[1]));
            case "append" -> {
                return log.appendAsLeader(
                    MemoryRecords.readableRecords(LineServer.bytes(words[3])),
                    0, // the leader epoch
                    AppendOrigin.valueOf(words[1]), RequestLocal.noCaching(),
                    VerificationGuard.SENTINEL, Short.parseShort(words[2]));
            }
            case "replicate" -> {
                return log.appendAsFollower(
                    MemoryRecords.readableRecords(LineServer.bytes(words[1])), 0);
            }
            case "clock" -> CLOCK.nowMs = Long.parseLong(words[1]);
            case "watermark" -> log.updateHighWatermark(Long.parseLong(words[1]));
            case "start" -> log.maybeIncrementLogStartOffset(
                Long.parseLong(words[1]), LogStartOffsetIncrementReason.ClientRecordDeletion);
            case "truncate" -> log.truncateTo(Long.parseLong(words[1]));
            case "expire" -> log.removeExpiredProducers(CLOCK.nowMs);
            case "roll" -> log.roll();
            default -> throw new IllegalArgumentException("no command " + words[0]);
        }
        return null;
    }

    private static void open(int expirationMs) throws IOException {
        if (log != null) {
            log.closeHandlers();
            Utils.delete(log.dir());
        }
        CLOCK.nowMs = 0;
        log = UnifiedLog.create(
            Files.createDirectory(folder.resolve("topic-0")).toFile(),
            new LogConfig(Map.of("segment.index.bytes", "1024")),
            0, // log start offset
            0, // recovery point
            SCHEDULER, STATS, CLOCK,
            MINUTE_MS, // the longest transaction
            new ProducerStateManagerConfig(expirationMs, false),
            Integer.MAX_VALUE, // between checks for expired producer ids
            new LogDirFailureChannel(1),
            true, // shut down cleanly: nothing to recover
            Optional.empty());
    }

    private static ObjectNode describe(ObjectNode json) throws IOException {
        json.put("start", log.logStartOffset())
            .put("watermark", log.highWatermark())
            .put("unstable", log.producerStateManager().firstUnstableOffset()
                .map(offset -> offset.messageOffset).orElse(null))
            .put("stable", log.lastStableOffset())
            .put("end", log.logEndOffset());
        ArrayNode producers = json.putArray("producers");
        new TreeMap<>(log.producerStateManager().activeProducers())
            .forEach((id, entry) -> describe(producers.addObject(), entry));
        ArrayNode aborted = json.putArray("aborted");
        for (AbortedTxn transaction
                : log.collectAbortedTransactions(log.logStartOffset(), log.logEndOffset())) {
            aborted.addArray()
                .add(transaction.producerId()).add(transaction.firstOffset())
                .add(transaction.lastOffset()).add(transaction.lastStableOffset());
        }
        return json;
    }

    private static void describe(ObjectNode json, ProducerStateEntry entry) {
        var transaction = entry.currentTxnFirstOffset();
        json.put("id", entry.producerId())
            .put("epoch", entry.producerEpoch())
            .put("coordinatorEpoch", entry.coordinatorEpoch())
            .put("timestamp", entry.lastTimestamp())
            .put("transaction", transaction.isPresent() ? transaction.getAsLong() : null);
        ArrayNode batches = json.putArray("batches");
        for (BatchMetadata batch : entry.batchMetadata()) {
            batches.addArray()
                .add(batch.lastSeq()).add(batch.lastOffset())
                .add(batch.offsetDelta()).add(batch.timestamp());
        }
    }

    /** Does what is due at once on the spot, and never what is due later. */
    private static final class Inline implements Scheduler {
        @Override
        public void startup() {}

        @Override
        public void shutdown() {}

        @Override
        public ScheduledFuture<?> schedule(
                String name, Runnable task, long delayMs, long periodMs) {
            if (delayMs == 0) {
                task.run();
            }
            return null;
        }

        @Override
        public void resizeThreadPool(int threads) {}
    }

    /** A clock that moves when it is told to. */
    private static final class Clock implements Time {
        private long nowMs;

        @Override
        public long milliseconds() {
            return nowMs;
        }

        @Override
        public long nanoseconds() {
            return nowMs * 1_000_000;
        }

        @Override
        public void sleep(long ms) {
            throw new UnsupportedOperationException("the clock moves when it is told to");
        }

        @Override
        public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
            throw new UnsupportedOperationException("the clock moves when it is told to");
        }
    }

    private PartitionOracle() {}
}
