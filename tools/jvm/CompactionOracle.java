import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ScheduledFuture;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.AbortedTxn;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * What Kafka's log cleaner leaves of a partition.
 *
 * <pre>
 * new     deleteRetentionMs      an empty partition takes the place of the one before
 * append  origin  hex            as leader: CLIENT or COORDINATOR
 * roll                           begin a segment; the high watermark goes to the end of the log
 * clean   nowMs                  one pass over all but the active segment
 *     -> {"dirty": 12,
 *         "segments": [{"base": 0, "log": "base64"}],
 *         "aborted": [[producerId, firstOffset, lastOffset, lastStableOffset]]}
 * </pre>
 *
 * <p>append and roll answer nothing.
 */
final class CompactionOracle {
    private static final int MAP_BYTES = 1024 * 1024;

    private static final int BUFFER_BYTES = 64 * 1024;

    private static final int NEVER_MS = Integer.MAX_VALUE;

    private static Path folder;

    private static UnifiedLog log;

    private static long firstDirtyOffset;

    public static void main(String[] args) throws Exception {
        folder = Files.createTempDirectory("compaction-oracle");
        try {
            LineServer.serve(words -> {
                switch (words[0]) {
                    case "new" -> open(words[1]);
                    case "append" -> log.appendAsLeader(
                        MemoryRecords.readableRecords(LineServer.bytes(words[2])),
                        0, // the leader epoch
                        AppendOrigin.valueOf(words[1]), RequestLocal.noCaching(),
                        VerificationGuard.SENTINEL, (short) 0);
                    case "roll" -> {
                        log.roll();
                        log.updateHighWatermark(log.logEndOffset());
                    }
                    case "clean" -> {
                        return LineServer.JSON.writeValueAsString(clean(Long.parseLong(words[1])));
                    }
                    default -> throw new IllegalArgumentException("no command " + words[0]);
                }
                return "";
            });
        } finally {
            Utils.delete(folder.toFile());
        }
    }

    private static void open(String deleteRetentionMs) throws IOException {
        if (log != null) {
            log.closeHandlers();
            Utils.delete(log.dir());
        }
        firstDirtyOffset = 0;
        log = UnifiedLog.create(
            Files.createDirectory(folder.resolve("topic-0")).toFile(),
            new LogConfig(Map.of(
                "cleanup.policy", "compact",
                "delete.retention.ms", deleteRetentionMs,
                "segment.index.bytes", "1024",
                "message.timestamp.after.max.ms", Long.toString(Long.MAX_VALUE))),
            0, // log start offset
            0, // recovery point
            new Inline(), new BrokerTopicStats(), Time.SYSTEM,
            NEVER_MS, // the longest transaction
            new ProducerStateManagerConfig(NEVER_MS, false),
            NEVER_MS, // between checks for expired producer ids
            new LogDirFailureChannel(1),
            true, // shut down cleanly: nothing to recover
            Optional.empty());
    }

    private static ObjectNode clean(long nowMs) throws Exception {
        var cleaner = new Cleaner(
            0, new SkimpyOffsetMap(MAP_BYTES), BUFFER_BYTES, BUFFER_BYTES,
            0.9, // how full the map may get
            new Throttler(Double.MAX_VALUE, NEVER_MS, "bytes", "bytes", Time.SYSTEM),
            Time.SYSTEM, partition -> {});
        var part = new LogToClean(
            log, firstDirtyOffset, log.activeSegment().baseOffset(), false);
        firstDirtyOffset = cleaner.doClean(part, nowMs).getKey();
        ObjectNode json = LineServer.JSON.createObjectNode().put("dirty", firstDirtyOffset);
        ArrayNode segments = json.putArray("segments");
        for (LogSegment segment : log.logSegments()) {
            var bytes = ByteBuffer.allocate(segment.log().sizeInBytes());
            segment.log().readInto(bytes, 0);
            segments.addObject().put("base", segment.baseOffset()).put("log", bytes.array());
        }
        ArrayNode aborted = json.putArray("aborted");
        for (AbortedTxn transaction
                : log.collectAbortedTransactions(log.logStartOffset(), log.logEndOffset())) {
            aborted.addArray()
                .add(transaction.producerId()).add(transaction.firstOffset())
                .add(transaction.lastOffset()).add(transaction.lastStableOffset());
        }
        return json;
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

    private CompactionOracle() {}
}
