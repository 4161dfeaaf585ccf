import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.Collection;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.record.internal.MemoryRecords;

/**
 * What Kafka's generated message classes make of a value or of bytes.
 *
 * <pre>
 * find     name                  -> class, lowest version, highest version (parted by tabs)
 * default  name  version         -> hex of a new object of the class
 * encode   name  version  json   -> hex
 * decode   name  version  hex    -> json
 * recode   name  version  hex    -> hex, read and written again; keeps unknown tagged fields
 * </pre>
 *
 * <p>A name is a schema's ({@code FetchRequest}, {@code RequestHeader}, {@code OffsetCommitKey}) or
 * a class with its package. Bytes left over after a message are an error.
 *
 * <p>The JSON is that of Kafka's generated JsonConverter classes:
 * <ul>
 *   <li>a key is the schema's field name with its first letter in lower case;
 *   <li>a field of the version must be there, unless it is tagged: a tagged one may be left out for
 *       its default, and is left out of replies where it has the default;
 *   <li>a field that the version lacks may be left out; it is taken if given, so that a value other
 *       than the default shows the ignorable rule (UnsupportedVersionException, or left unwritten);
 *       keys that no version knows are ignored;
 *   <li>integers are numbers (a string of "0x" and hex digits is taken as well), bool is a boolean;
 *       int8 takes 128 to 256 and makes 0 to 128 of them, so keep to -128..127;
 *   <li>float64 must have a point or an exponent (1.0, not 1), or be NaN, Infinity, -Infinity;
 *   <li>string is a string, uuid its URL-safe base64 of 22 characters without padding;
 *   <li>bytes and records are standard base64 with padding;
 *   <li>an array, keyed or not, is an array, a struct an object;
 *   <li>null stands where the schema says nullable, for a struct too.
 * </ul>
 *
 * <p>JsonConverter.write leaves records empty; {@link #fillRecords} puts their bytes in.
 */
final class MessageOracle {
    private static final List<String> PACKAGES = List.of(
        "org.apache.kafka.common.message.",
        "org.apache.kafka.coordinator.group.generated.",
        "org.apache.kafka.coordinator.share.generated.",
        "org.apache.kafka.coordinator.transaction.generated.",
        "org.apache.kafka.server.log.remote.metadata.storage.generated.");

    private static final Map<String, Generated> KNOWN = new HashMap<>();

    public static void main(String[] args) throws Exception {
        LineServer.serve(MessageOracle::answer);
    }

    private static String answer(String[] words) throws Exception {
        Generated message = KNOWN.get(words[1]);
        if (message == null) {
            message = Generated.find(words[1]);
            KNOWN.put(words[1], message);
        }
        if (words[0].equals("find")) {
            Message empty = message.create();
            return empty.getClass().getName() + "\t" + empty.lowestSupportedVersion()
                + "\t" + empty.highestSupportedVersion();
        }
        short version = Short.parseShort(words[2]);
        return switch (words[0]) {
            case "default" -> LineServer.hex(written(message.create(), version));
            case "encode" -> LineServer.hex(
                written(message.fromJson(LineServer.JSON.readTree(words[3]), version), version));
            case "decode" -> LineServer.JSON.writeValueAsString(
                message.toJson(message.parse(words[3], version), version));
            case "recode" -> LineServer.hex(written(message.parse(words[3], version), version));
            default -> throw new IllegalArgumentException("no command " + words[0]);
        };
    }

    private static ByteBuffer written(Message message, short version) {
        return MessageUtil.toByteBufferAccessor(message, version).buffer();
    }

    /** A generated message class and the class that turns it into JSON and back. */
    private record Generated(Class<? extends Message> type, Class<?> converter) {
        static Generated find(String name) throws ClassNotFoundException {
            if (name.contains(".")) {
                return of(name);
            }
            for (String prefix : PACKAGES) {
                for (String suffix : List.of("", "Data")) {
                    try {
                        return of(prefix + name + suffix);
                    } catch (ClassNotFoundException absent) {
                        // the next place
                    }
                }
            }
            throw new ClassNotFoundException("no generated message class for " + name);
        }

        private static Generated of(String className) throws ClassNotFoundException {
            return new Generated(
                Class.forName(className).asSubclass(Message.class),
                Class.forName(className + "JsonConverter"));
        }

        Message create() throws ReflectiveOperationException {
            return type.getConstructor().newInstance();
        }

        Message parse(String hex, short version) throws ReflectiveOperationException {
            var buffer = LineServer.bytes(hex);
            Message message = create();
            message.read(new ByteBufferAccessor(buffer), version);
            if (buffer.hasRemaining()) {
                throw new IllegalArgumentException(buffer.remaining() + " bytes left over");
            }
            return message;
        }

        Message fromJson(JsonNode json, short version) throws ReflectiveOperationException {
            Method read = converter.getMethod("read", JsonNode.class, short.class);
            return (Message) read.invoke(null, json, version);
        }

        JsonNode toJson(Message message, short version) throws ReflectiveOperationException {
            Method write = converter.getMethod("write", type, short.class);
            JsonNode json = (JsonNode) write.invoke(null, message, version);
            fillRecords(message, json);
            return json;
        }
    }

    /** Puts into every records field under {@code json} the bytes that {@code value} has there. */
    private static void fillRecords(Object value, JsonNode json)
            throws ReflectiveOperationException {
        if (json instanceof ArrayNode array && value instanceof Collection<?> elements) {
            Iterator<?> each = elements.iterator();
            for (JsonNode item : array) {
                fillRecords(each.next(), item);
            }
        } else if (json instanceof ObjectNode object) {
            for (Map.Entry<String, JsonNode> field : List.copyOf(object.properties())) {
                Object inner = value.getClass().getMethod(field.getKey()).invoke(value);
                if (inner instanceof MemoryRecords records) {
                    object.put(field.getKey(), MessageUtil.byteBufferToArray(records.buffer()));
                } else {
                    fillRecords(inner, field.getValue());
                }
            }
        }
    }

    private MessageOracle() {}
}
