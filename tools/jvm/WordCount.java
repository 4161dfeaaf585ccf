import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.common.errors.InvalidTxnStateException;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/**
 * Counts the words of a topic's lines, exactly once, until its standard input ends.
 *
 * <p>Arguments: address, application id, group protocol (classic or streams), folder for its state,
 * topic of lines, topic of counts, and any more settings as name=value. Each new count of a word is
 * a record of the second topic: the word, and the count in digits. Prints its states, one a line.
 * Ends with status 1, and what went wrong on standard error, if a thread of it fails; but a thread
 * whose transaction ran out of time is replaced.
 *
 * <p>The counts are kept in memory and in their changelog topic, so that no RocksDB is needed and a
 * new process begins with what the broker gives back.
 */
final class WordCount {
    private static final Duration CLOSE = Duration.ofSeconds(10);

    public static void main(String[] arguments) throws IOException {
        var settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("application.id", arguments[1]);
        settings.put("group.protocol", arguments[2]);
        settings.put("state.dir", arguments[3]);
        settings.put("processing.guarantee", "exactly_once_v2");
        // Without a cache every count is written, not only the last one of a commit.
        settings.put("statestore.cache.max.bytes", "0");
        for (String more : List.of(arguments).subList(6, arguments.length)) {
            int at = more.indexOf('=');
            settings.put(more.substring(0, at), more.substring(at + 1));
        }

        var streams = new KafkaStreams(topology(arguments[4], arguments[5]), settings);
        streams.setStateListener((now, before) -> System.out.println(now));
        streams.setUncaughtExceptionHandler(failure -> {
            failure.printStackTrace();
            // So a broker answers the commit of a transaction that it has aborted for its age, as
            // happens on a busy machine. Streams does not take that for a lost task by itself.
            if (failure.getCause() instanceof InvalidTxnStateException) {
                return StreamThreadExceptionResponse.REPLACE_THREAD;
            }
            // At once and without a word to the broker, as a crash is.
            Runtime.getRuntime().halt(1);
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        while (System.in.read() >= 0) {
            // what is said does not matter, only that it ends
        }
        boolean isClosed = streams.close(CLOSE);
        System.exit(isClosed ? 0 : 2);
    }

    private static Topology topology(String lines, String counts) {
        var builder = new StreamsBuilder();
        builder.stream(lines, Consumed.with(Serdes.String(), Serdes.String()))
            .flatMap((key, line) -> List.of(line.split(" ")).stream()
                .map(word -> KeyValue.pair(word, word))
                .toList())
            .groupByKey(Grouped.with(Serdes.String(), Serdes.String()))
            .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts"))
                .withKeySerde(Serdes.String())
                .withValueSerde(Serdes.Long()))
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to(counts, Produced.with(Serdes.String(), Serdes.String()));
        return builder.build();
    }
}
