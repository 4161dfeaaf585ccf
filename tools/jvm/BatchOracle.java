import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.message.LeaderChangeMessageJsonConverter;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.ControlRecordUtils;
import org.apache.kafka.common.record.internal.DefaultRecordBatch;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.ByteBufferOutputStream;

/**
 * What Kafka's record classes make of batches.
 *
 * <pre>
 * read   hex    -> json, an array of batches
 * write  json   -> hex of one batch of magic 2, from the form that read gives
 * </pre>
 *
 * <pre>
 * {"baseOffset": 0, "lastOffset": 0, "leaderEpoch": -1, "magic": 2, "valid": true,
 *  "compression": "none", "timestampType": "CreateTime", "baseTimestamp": 0, "maxTimestamp": 0,
 *  "producerId": -1, "producerEpoch": -1, "baseSequence": -1, "transactional": false,
 *  "control": false, "deleteHorizon": null, "count": 1,
 *  "records": [{"offset": 0, "timestamp": 0, "key": null, "value": "AAE=",
 *               "headers": [{"key": "h", "value": null}]}]}
 * </pre>
 *
 * <p>Keys and values are base64 or null. A batch whose checksum or size is wrong has
 * {@code "valid": false} and null for records. {@code baseTimestamp} is null below magic 2.
 * A control record also has {@code controlType}, and by that type {@code coordinatorEpoch} (COMMIT,
 * ABORT) or {@code message} (LEADER_CHANGE, the JSON of a LeaderChangeMessage).
 *
 * <p>write takes a record's offset, or else the one after the last; every other key may be left out
 * for the value shown above, null or no records. It works out magic, valid, count, baseTimestamp
 * and maxTimestamp; the last is taken as given for LogAppendTime and for a batch of no records.
 * A given lastOffset must not be below the last record's. A control batch is one record, whose key
 * and value come from controlType and what goes with it; a leader change needs a leaderEpoch.
 */
final class BatchOracle {
    private static final int FIRST_CAPACITY = 1024;

    public static void main(String[] args) throws Exception {
        LineServer.serve(words -> switch (words[0]) {
            case "read" -> LineServer.JSON.writeValueAsString(read(LineServer.bytes(words[1])));
            case "write" -> LineServer.hex(write(LineServer.JSON.readTree(words[1])));
            default -> throw new IllegalArgumentException("no command " + words[0]);
        });
    }

    private static ArrayNode read(ByteBuffer bytes) {
        ArrayNode batches = LineServer.JSON.createArrayNode();
        for (RecordBatch batch : MemoryRecords.readableRecords(bytes).batches()) {
            describe(batch, batches.addObject());
        }
        return batches;
    }

    private static void describe(RecordBatch batch, ObjectNode json) {
        json.put("baseOffset", batch.baseOffset())
            .put("lastOffset", batch.lastOffset())
            .put("leaderEpoch", batch.partitionLeaderEpoch())
            .put("magic", batch.magic())
            .put("valid", batch.isValid())
            .put("compression", batch.compressionType().name)
            .put("timestampType", batch.timestampType().name)
            .put("baseTimestamp",
                batch instanceof DefaultRecordBatch current ? current.baseTimestamp() : null)
            .put("maxTimestamp", batch.maxTimestamp())
            .put("producerId", batch.producerId())
            .put("producerEpoch", batch.producerEpoch())
            .put("baseSequence", batch.baseSequence())
            .put("transactional", batch.isTransactional())
            .put("control", batch.isControlBatch())
            .put("deleteHorizon", batch.deleteHorizonMs().isPresent()
                ? (Long) batch.deleteHorizonMs().getAsLong() : null)
            .put("count", batch.countOrNull());
        if (!batch.isValid()) {
            json.putNull("records");
            return;
        }
        ArrayNode records = json.putArray("records");
        for (Record record : batch) {
            ObjectNode each = records.addObject();
            describe(record, each);
            if (batch.isControlBatch()) {
                describeControl(record, each);
            }
        }
    }

    private static void describe(Record record, ObjectNode json) {
        json.put("offset", record.offset())
            .put("timestamp", record.timestamp())
            .put("key", record.hasKey() ? MessageUtil.byteBufferToArray(record.key()) : null)
            .put("value", record.hasValue() ? MessageUtil.byteBufferToArray(record.value()) : null);
        ArrayNode headers = json.putArray("headers");
        for (Header header : record.headers()) {
            headers.addObject().put("key", header.key()).put("value", header.value());
        }
    }

    private static void describeControl(Record record, ObjectNode json) {
        ControlRecordType type = ControlRecordType.parse(record.key());
        json.put("controlType", type.name());
        if (type == ControlRecordType.COMMIT || type == ControlRecordType.ABORT) {
            json.put("coordinatorEpoch",
                EndTransactionMarker.deserialize(record).coordinatorEpoch());
        } else if (type == ControlRecordType.LEADER_CHANGE) {
            var message = ControlRecordUtils.deserializeLeaderChangeMessage(record);
            json.set("message",
                LeaderChangeMessageJsonConverter.write(message, message.version()));
        }
    }

    private static ByteBuffer write(JsonNode batch) throws IOException {
        if (batch.path("control").asBoolean()) {
            return writeControl(batch, batch.path("records").path(0));
        }
        return batch.path("records").isEmpty() ? writeEmpty(batch) : writeRecords(batch);
    }

    private static ByteBuffer writeRecords(JsonNode batch) throws IOException {
        var type = timestampType(batch);
        try (var builder = new MemoryRecordsBuilder(
                new ByteBufferOutputStream(FIRST_CAPACITY),
                RecordBatch.MAGIC_VALUE_V2,
                Compression.of(batch.path("compression").asText("none")).build(),
                type,
                baseOffset(batch),
                type == TimestampType.LOG_APPEND_TIME
                    ? batch.required("maxTimestamp").longValue() : RecordBatch.NO_TIMESTAMP,
                producerId(batch), producerEpoch(batch), baseSequence(batch),
                batch.path("transactional").asBoolean(),
                false, // control
                leaderEpoch(batch),
                0, // no limit that a producer's batch.size would set
                number(batch, "deleteHorizon", RecordBatch.NO_TIMESTAMP))) {
            long offset = baseOffset(batch);
            for (JsonNode record : batch.path("records")) {
                offset = number(record, "offset", offset);
                builder.appendWithOffset(offset, number(record, "timestamp", 0),
                    bytes(record, "key"), bytes(record, "value"), headers(record));
                offset++;
            }
            builder.overrideLastOffset(number(batch, "lastOffset", offset - 1));
            return builder.build().buffer();
        }
    }

    private static ByteBuffer writeEmpty(JsonNode batch) {
        var bytes = ByteBuffer.allocate(DefaultRecordBatch.RECORD_BATCH_OVERHEAD);
        DefaultRecordBatch.writeEmptyHeader(bytes, RecordBatch.MAGIC_VALUE_V2,
            producerId(batch), producerEpoch(batch), baseSequence(batch),
            baseOffset(batch), number(batch, "lastOffset", baseOffset(batch)),
            leaderEpoch(batch), timestampType(batch),
            number(batch, "maxTimestamp", RecordBatch.NO_TIMESTAMP),
            batch.path("transactional").asBoolean(), false);
        return bytes.flip();
    }

    private static ByteBuffer writeControl(JsonNode batch, JsonNode record) {
        var type = ControlRecordType.valueOf(record.required("controlType").textValue());
        long timestamp = number(record, "timestamp", 0);
        return switch (type) {
            case COMMIT, ABORT -> MemoryRecords.withEndTransactionMarker(
                baseOffset(batch), timestamp, leaderEpoch(batch), producerId(batch),
                producerEpoch(batch),
                new EndTransactionMarker(type, (int) number(record, "coordinatorEpoch", 0)))
                .buffer();
            case LEADER_CHANGE -> MemoryRecords.withLeaderChangeMessage(
                baseOffset(batch), timestamp, leaderEpoch(batch),
                ByteBuffer.allocate(FIRST_CAPACITY),
                LeaderChangeMessageJsonConverter.read(record.required("message"),
                    (short) number(record.required("message"), "version", 0))).buffer();
            default -> throw new IllegalArgumentException("cannot write " + type);
        };
    }

    private static TimestampType timestampType(JsonNode batch) {
        return TimestampType.forName(batch.path("timestampType").asText("CreateTime"));
    }

    private static long baseOffset(JsonNode batch) {
        return number(batch, "baseOffset", 0);
    }

    private static int leaderEpoch(JsonNode batch) {
        return (int) number(batch, "leaderEpoch", RecordBatch.NO_PARTITION_LEADER_EPOCH);
    }

    private static long producerId(JsonNode batch) {
        return number(batch, "producerId", RecordBatch.NO_PRODUCER_ID);
    }

    private static short producerEpoch(JsonNode batch) {
        return (short) number(batch, "producerEpoch", RecordBatch.NO_PRODUCER_EPOCH);
    }

    private static int baseSequence(JsonNode batch) {
        return (int) number(batch, "baseSequence", RecordBatch.NO_SEQUENCE);
    }

    private static long number(JsonNode json, String key, long absent) {
        JsonNode value = json.path(key);
        if (value.isMissingNode() || value.isNull()) {
            return absent;
        }
        if (!value.isIntegralNumber() || !value.canConvertToLong()) {
            throw new IllegalArgumentException(key + " is not an int64: " + value);
        }
        return value.longValue();
    }

    private static byte[] bytes(JsonNode json, String key) throws IOException {
        return json.path(key).binaryValue();
    }

    private static Header[] headers(JsonNode record) throws IOException {
        List<Header> headers = new ArrayList<>();
        for (JsonNode header : record.path("headers")) {
            headers.add(
                new RecordHeader(header.required("key").textValue(), bytes(header, "value")));
        }
        return headers.toArray(Header[]::new);
    }

    private BatchOracle() {}
}
