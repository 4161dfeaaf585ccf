import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.PartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.SimpleAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/**
 * The assignors of share and consumer groups: who reads what.
 *
 * <pre>
 * {"assignor": "simple", "topics": {"a": 3}, "members": {"m": {"topics": ["a"], "assigned": {"a": [0]}}}}
 *     -> {"m": {"a": [0, 1, 2]}}
 * </pre>
 *
 * <p>Topics are named by one letter, which becomes their id.
 */
final class AssignorOracle {
    public static void main(String[] args) throws Exception {
        LineServer.serve(words -> LineServer.JSON.writeValueAsString(
            assign(LineServer.JSON.readTree(words[0]))));
    }

    private static ObjectNode assign(JsonNode question) {
        Map<Uuid, Integer> counts = new HashMap<>();
        question.get("topics").properties().forEach(
            topic -> counts.put(id(topic.getKey()), topic.getValue().asInt()));
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new HashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        Set<Set<Uuid>> wishes = new HashSet<>();
        question.get("members").properties().forEach(member -> {
            Set<Uuid> wanted = new HashSet<>();
            member.getValue().get("topics").forEach(topic -> wanted.add(id(topic.asText())));
            Map<Uuid, Set<Integer>> assigned = new HashMap<>();
            member.getValue().get("assigned").properties().forEach(topic -> topic.getValue()
                .forEach(index -> assigned.computeIfAbsent(
                    id(topic.getKey()), any -> new HashSet<>()).add(index.asInt())));
            assigned.forEach((topic, indexes) -> indexes.forEach(index -> owners.computeIfAbsent(
                topic, any -> new HashMap<>()).put(index, member.getKey())));
            wishes.add(wanted);
            members.put(member.getKey(), new MemberSubscriptionAndAssignmentImpl(
                Optional.empty(), Optional.empty(), wanted, new Assignment(assigned)));
        });
        var spec = new GroupSpecImpl(
            members,
            wishes.size() > 1 ? SubscriptionType.HETEROGENEOUS : SubscriptionType.HOMOGENEOUS,
            owners);
        ObjectNode answer = LineServer.JSON.createObjectNode();
        assignor(question.get("assignor").asText()).assign(spec, describer(counts)).members().forEach((name, member) -> {
            ObjectNode row = answer.putObject(name);
            member.partitions().forEach((topic, indexes) -> {
                ArrayNode list = row.putArray(String.valueOf((char) topic.getLeastSignificantBits()));
                indexes.stream().sorted().forEach(list::add);
            });
        });
        return answer;
    }

    private static PartitionAssignor assignor(String name) {
        return switch (name) {
            case "simple" -> new SimpleAssignor();
            case "uniform" -> new UniformAssignor();
            case "range" -> new RangeAssignor();
            default -> throw new IllegalArgumentException(name);
        };
    }

    private static SubscribedTopicDescriber describer(Map<Uuid, Integer> counts) {
        return new SubscribedTopicDescriber() {
            @Override
            public int numPartitions(Uuid topic) {
                return counts.getOrDefault(topic, -1);
            }

            @Override
            public Set<String> racksForPartition(Uuid topic, int partition) {
                return Set.of();
            }
        };
    }

    private static Uuid id(String letter) {
        return new Uuid(1, letter.charAt(0));
    }

    private AssignorOracle() {}
}
