import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Reads a topic from its beginning again and again, once for warmth and then by the clock, with the
 * consumer's own defaults and without a group.
 *
 * <p>Arguments: address, topic, its partitions, its records, how often to read it, and more settings
 * as NAME=VALUE. Prints the bytes of the values and the seconds of all readings but the first.
 */
final class AssignedConsumer {
    private static final Duration POLL = Duration.ofMillis(100);
    private static final long SILENCE_NANOS = 30_000_000_000L;

    public static void main(String[] arguments) {
        var settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        for (int next = 5; next < arguments.length; next++) {
            int equals = arguments[next].indexOf('=');
            settings.put(arguments[next].substring(0, equals), arguments[next].substring(equals + 1));
        }
        List<TopicPartition> partitions = IntStream.range(0, Integer.parseInt(arguments[2]))
            .mapToObj(index -> new TopicPartition(arguments[1], index))
            .toList();
        long wanted = Long.parseLong(arguments[3]);
        var plain = new ByteArrayDeserializer();
        try (var consumer = new KafkaConsumer<>(settings, plain, plain)) {
            consumer.assign(partitions);
            read(consumer, partitions, wanted);
            long begin = System.nanoTime();
            long bytes = 0;
            for (int pass = 1; pass < Integer.parseInt(arguments[4]); pass++) {
                bytes += read(consumer, partitions, wanted);
            }
            System.out.println(bytes + " " + (System.nanoTime() - begin) / 1e9);
        }
    }

    private static long read(
            KafkaConsumer<byte[], byte[]> consumer, List<TopicPartition> partitions, long wanted) {
        consumer.seekToBeginning(partitions);
        long records = 0;
        long bytes = 0;
        long last = System.nanoTime();
        while (records < wanted) {
            var polled = consumer.poll(POLL);
            for (var record : polled) {
                bytes += record.value().length;
            }
            records += polled.count();
            if (!polled.isEmpty()) {
                last = System.nanoTime();
            } else if (System.nanoTime() - last > SILENCE_NANOS) {
                throw new IllegalStateException("only " + records + " of " + wanted + " came");
            }
        }
        return bytes;
    }

    private AssignedConsumer() {}
}
