import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.TreeMap;
import java.util.stream.Collectors;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.ConfigSynonym;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.DynamicConfig;
import org.apache.kafka.server.config.QuotaConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.server.metrics.ClientMetricsConfigs;
import org.apache.kafka.storage.internals.log.LogConfig;

/**
 * The configs that Kafka knows, and what it thinks of values of them.
 *
 * <pre>
 * define KIND          a list of {name, type, default, validator, internal, scope, synonyms}
 * check KIND JSON      "ok", or the exception that the values of a resource raise
 * parse KIND NAME TEXT the value as text again, or the exception
 * properties JSON      what a file with that text says, by name
 * </pre>
 *
 * <p>A kind is topic, group, client_metrics, broker, or dynamic (configs that a broker has only as
 * dynamic ones). A synonym is a broker config and the milliseconds that its 1 stands for, or 0 for a
 * value that carries over as it is.
 */
final class ConfigOracle {
    public static void main(String[] args) throws IOException {
        LineServer.serve(ConfigOracle::answer);
    }

    private static String answer(String[] words) throws Exception {
        return switch (words[0]) {
            case "define" -> LineServer.JSON.writeValueAsString(define(words[1]));
            case "check" -> check(words[1], strings(words[2]));
            case "parse" -> parse(words[1], words[2], LineServer.JSON.readValue(words[3], String.class));
            case "properties" -> properties(LineServer.JSON.readValue(words[1], String.class));
            default -> throw new IllegalArgumentException(words[0]);
        };
    }

    private static Map<String, ConfigDef.ConfigKey> keys(String kind) {
        return switch (kind) {
            case "topic" -> LogConfig.configDefCopy().configKeys();
            case "group" -> GroupConfig.CONFIG_DEF.configKeys();
            case "client_metrics" -> ClientMetricsConfigs.configDef().configKeys();
            case "broker" -> KafkaConfig.configDef().configKeys();
            case "dynamic" -> QuotaConfig.brokerQuotaConfigs().configKeys();
            default -> throw new IllegalArgumentException(kind);
        };
    }

    private static List<ObjectNode> define(String kind) {
        List<ObjectNode> rows = new ArrayList<>();
        for (ConfigDef.ConfigKey key : new TreeMap<>(keys(kind)).values()) {
            ObjectNode row = LineServer.JSON.createObjectNode();
            row.put("name", key.name);
            row.put("type", key.type.name());
            row.put("default", key.hasDefault() ? text(key) : null);
            row.put("has_default", key.hasDefault());
            row.put("validator", key.validator == null ? null : key.validator.toString());
            row.put("internal", key.internalConfig);
            row.put("scope", DynamicBrokerConfig.dynamicConfigUpdateModes().get(key.name));
            var synonyms = row.putArray("synonyms");
            if (kind.equals("topic")) {
                for (ConfigSynonym synonym : ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS
                        .getOrDefault(key.name, List.of())) {
                    String one = synonym.converter().apply("1");
                    long unitMs = one.equals("1") ? 0 : Long.parseLong(one);
                    synonyms.addArray().add(synonym.name()).add(unitMs);
                }
            } else if (kind.equals("group")) {
                GroupConfig.brokerSynonym(key.name)
                    .ifPresent(name -> synonyms.addArray().add(name).add(0));
            } else if (kind.equals("broker")) {
                DynamicBrokerConfig.brokerConfigSynonyms(key.name, true)
                    .forEach(name -> synonyms.addArray().add(name).add(0));
            }
            rows.add(row);
        }
        return rows;
    }

    private static String text(ConfigDef.ConfigKey key) {
        return ConfigDef.convertToString(key.defaultValue, key.type);
    }

    private static String check(String kind, Map<String, String> values) {
        Properties properties = new Properties();
        properties.putAll(values);
        switch (kind) {
            case "topic" -> LogConfig.validate(values);
            case "tiered_topic" -> LogConfig.validate(
                Map.of(), values, new KafkaConfig(brokerProperties(Map.of())).extractLogConfigMap(), true);
            case "group" -> {
                KafkaConfig config = new KafkaConfig(brokerProperties(Map.of()));
                GroupConfig.validate(
                    values, config.groupCoordinatorConfig(), config.shareGroupConfig());
            }
            case "client_metrics" -> ClientMetricsConfigs.validate("subscription", properties);
            case "broker" -> new KafkaConfig(brokerProperties(values));
            default -> throw new IllegalArgumentException(kind);
        }
        return "ok";
    }

    private static Map<String, String> brokerProperties(Map<String, String> values) {
        Map<String, String> all = new TreeMap<>(Map.of(
            "node.id", "1",
            "process.roles", "broker,controller",
            "controller.listener.names", "CONTROLLER",
            "controller.quorum.voters", "1@127.0.0.1:9093",
            "listeners", "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093"));
        all.putAll(values);
        return all;
    }

    private static String parse(String kind, String name, String value) {
        ConfigDef.ConfigKey key = keys(kind).get(name);
        Object parsed = ConfigDef.parseType(name, value, key.type);
        if (key.validator != null) {
            key.validator.ensureValid(name, parsed);
        }
        return Optional.ofNullable(ConfigDef.convertToString(parsed, key.type)).orElse("null");
    }

    private static String properties(String text) throws IOException {
        Properties properties = new Properties();
        properties.load(new java.io.StringReader(text));
        return LineServer.JSON.writeValueAsString(new TreeMap<>(Utils.propsToStringMap(properties)));
    }

    private static Map<String, String> strings(String json) throws IOException {
        Map<?, ?> map = LineServer.JSON.readValue(json, Map.class);
        return map.entrySet().stream()
            .collect(Collectors.toMap(e -> (String) e.getKey(), e -> (String) e.getValue()));
    }

    private ConfigOracle() {}
}
