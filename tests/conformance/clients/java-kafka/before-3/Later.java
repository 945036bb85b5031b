import com.fasterxml.jackson.databind.JsonNode;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupListing;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.requests.DescribeLogDirsResponse;

/** The words that 2.0.0 has for what is called otherwise later; it has no more verbs than these. */
class Later {
    static Object run(AdminClient admin, JsonNode r) throws Exception {
        switch (r.get("do").asText()) {
            case "groups": return groups(admin);
            case "partitions": {
                String topic = Driver.text(r, "topic");
                return admin.describeTopics(List.of(topic)).all().get().get(topic).partitions().size();
            }
            case "alter": return alter(admin, r);
            case "log_dirs": return logDirs(admin, r);
            default: throw new IllegalArgumentException(r.toString());
        }
    }

    static void subscribe(KafkaConsumer<?, ?> consumer, String pattern) {
        consumer.subscribe(Pattern.compile(pattern));
    }

    static void close(KafkaProducer<?, ?> producer) {
        producer.close(0, TimeUnit.MILLISECONDS);
    }

    static Object groups(AdminClient admin) throws Exception {
        Map<String, Object> found = new TreeMap<>();
        for (ConsumerGroupListing each : admin.listConsumerGroups().all().get()) {
            found.put(each.groupId(), null);
        }
        return found;
    }

    /** The whole set at once: there was no other way. */
    static Object alter(AdminClient admin, JsonNode r) throws Exception {
        ConfigResource resource = Administration.resource(r);
        Map<String, ConfigEntry> entries = new HashMap<>();
        for (ConfigEntry each :
                admin.describeConfigs(List.of(resource)).all().get().get(resource).entries()) {
            if (each.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG) {
                entries.put(each.name(), each);
            }
        }
        Driver.pairs(r, "values").forEach((name, value) -> entries.put(name, new ConfigEntry(name, value)));
        Driver.texts(r, "without").forEach(entries::remove);
        admin.alterConfigs(Map.of(resource, new Config(entries.values()))).all().get();
        return null;
    }

    static Object logDirs(AdminClient admin, JsonNode r) throws Exception {
        int node = r.get("node").asInt();
        Map<String, DescribeLogDirsResponse.LogDirInfo> told =
                admin.describeLogDirs(List.of(node)).all().get().get(node);
        Map<String, Object> found = new TreeMap<>();
        told.forEach((path, directory) -> {
            Map<String, Long> sizes = new TreeMap<>();
            directory.replicaInfos.forEach((place, info) -> sizes.put(place.toString(), info.size));
            found.put(path, sizes);
        });
        return found;
    }
}
