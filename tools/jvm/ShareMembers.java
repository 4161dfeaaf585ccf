import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Kafka's share consumers, by names that the caller gives them, doing what they are told.
 *
 * <p>Requests, in words parted by tabs, and their replies, in JSON:
 * <ul>
 *   <li>{@code open NAME ADDRESS GROUP TOPIC SETTING=VALUE...}: null
 *   <li>{@code poll NAME MILLISECONDS}: rows of topic, partition, offset, delivery count, value
 *   <li>{@code acknowledge NAME TOPIC PARTITION OFFSET TYPE}, of a record that was polled: null
 *   <li>{@code commit NAME}: for each partition null, or the class of its error
 *   <li>{@code commitAsync NAME}: null
 *   <li>{@code told NAME}: what the callback heard since: partitions' offsets, and the error or null
 *   <li>{@code lock NAME}: how long records are locked, or null
 *   <li>{@code close NAME}: null
 * </ul>
 */
final class ShareMembers {
    private static final Map<String, Member> MEMBERS = new HashMap<>();

    private static final class Member {
        final KafkaShareConsumer<String, String> consumer;
        final Map<String, ConsumerRecord<String, String>> records = new HashMap<>();
        List<Object> told = new ArrayList<>();

        Member(String[] words) {
            var settings = new Properties();
            settings.put("bootstrap.servers", words[2]);
            settings.put("group.id", words[3]);
            for (int index = 5; index < words.length; index++) {
                var parts = words[index].split("=", 2);
                settings.put(parts[0], parts[1]);
            }
            var text = new StringDeserializer();
            consumer = new KafkaShareConsumer<>(settings, text, text);
            consumer.setAcknowledgementCommitCallback(this::tell);
            consumer.subscribe(List.of(words[4]));
        }

        private void tell(Map<TopicIdPartition, Set<Long>> offsets, Exception error) {
            var named = new TreeMap<String, Object>();
            offsets.forEach((partition, each) ->
                named.put(partition.topicPartition().toString(), new TreeSet<>(each)));
            var row = new ArrayList<Object>();
            row.add(named);
            row.add(name(error));
            told.add(row);
        }
    }

    public static void main(String[] arguments) throws Exception {
        LineServer.serve(words -> LineServer.JSON.writeValueAsString(answer(words)));
    }

    private static Object answer(String[] words) {
        if (words[0].equals("open")) {
            MEMBERS.put(words[1], new Member(words));
            return null;
        }
        var member = MEMBERS.get(words[1]);
        switch (words[0]) {
            case "poll":
                return poll(member, Duration.ofMillis(Long.parseLong(words[2])));
            case "acknowledge":
                member.consumer.acknowledge(
                    member.records.get(key(words[2], words[3], words[4])),
                    AcknowledgeType.valueOf(words[5]));
                return null;
            case "commit":
                var results = new TreeMap<String, String>();
                member.consumer.commitSync().forEach((partition, error) ->
                    results.put(partition.topicPartition().toString(), name(error.orElse(null))));
                return results;
            case "commitAsync":
                member.consumer.commitAsync();
                return null;
            case "told":
                var told = member.told;
                member.told = new ArrayList<>();
                return told;
            case "lock":
                return member.consumer.acquisitionLockTimeoutMs().orElse(null);
            case "close":
                MEMBERS.remove(words[1]).consumer.close();
                return null;
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private static Object poll(Member member, Duration wait) {
        var rows = new ArrayList<Object>();
        var polled = member.consumer.poll(wait);
        member.records.clear();
        for (var record : polled) {
            member.records.put(
                key(record.topic(), "" + record.partition(), "" + record.offset()), record);
            rows.add(List.of(
                record.topic(),
                record.partition(),
                record.offset(),
                (int) record.deliveryCount().orElse((short) -1),
                record.value()));
        }
        return rows;
    }

    private static String key(String topic, String partition, String offset) {
        return topic + "/" + partition + "/" + offset;
    }

    private static String name(Throwable error) {
        return error == null ? null : error.getClass().getSimpleName();
    }

    private ShareMembers() {}
}
