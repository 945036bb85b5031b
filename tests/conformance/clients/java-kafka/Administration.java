import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.DeletedRecords;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.MemberDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/** The verbs of an administrator, in the words that every version from 2.0.0 on has. */
class Administration {
    private final Map<String, AdminClient> clients = new ConcurrentHashMap<>();

    Object run(JsonNode r) throws Exception {
        AdminClient admin = clients.computeIfAbsent(
                r.get("address").asText(), address -> AdminClient.create(Driver.settings(r)));
        switch (r.get("do").asText()) {
            case "topics": return admin.listTopics().names().get();
            case "create": return create(admin, r);
            case "delete":
                admin.deleteTopics(List.of(Driver.text(r, "topic"))).all().get();
                return null;
            case "grow":
                admin.createPartitions(Map.of(
                        Driver.text(r, "topic"),
                        NewPartitions.increaseTo(r.get("partitions").asInt()))).all().get();
                return null;
            case "configs": return configs(admin, r);
            case "offsets": return offsets(r);
            case "delete_records": return deleteRecords(admin, r);
            case "cluster": return cluster(admin);
            case "describe_group": return describeGroup(admin, r);
            case "group_offsets": return groupOffsets(admin, r);
            case "delete_group":
                admin.deleteConsumerGroups(List.of(Driver.text(r, "group"))).all().get();
                return null;
            default: return Later.run(admin, r);
        }
    }

    static Object create(AdminClient admin, JsonNode r) throws Exception {
        NewTopic topic = new NewTopic(
                Driver.text(r, "topic"), r.get("partitions").asInt(), (short) 1);
        topic.configs(Driver.pairs(r, "configs"));
        admin.createTopics(List.of(topic)).all().get();
        return null;
    }

    static ConfigResource resource(JsonNode r) {
        return new ConfigResource(
                ConfigResource.Type.valueOf(Driver.text(r, "resource").toUpperCase()),
                Driver.text(r, "name"));
    }

    static Object configs(AdminClient admin, JsonNode r) throws Exception {
        ConfigResource resource = resource(r);
        Config config = admin.describeConfigs(List.of(resource)).all().get().get(resource);
        Map<String, Object> found = new TreeMap<>();
        for (ConfigEntry each : config.entries()) {
            Map<String, Object> entry = new TreeMap<>();
            entry.put("value", each.value());
            entry.put("default", each.isDefault());
            entry.put("read_only", each.isReadOnly());
            entry.put("sensitive", each.isSensitive());
            found.put(each.name(), entry);
        }
        return found;
    }

    /** "at" is earliest, latest, or a time in milliseconds; partition -> offset. */
    static Object offsets(JsonNode r) {
        Map<Integer, Long> found = new TreeMap<>();
        String at = Driver.text(r, "at");
        try (KafkaConsumer<byte[], byte[]> consumer = Driver.consumer(r)) {
            List<TopicPartition> partitions = Driver.partitions(consumer, Driver.text(r, "topic"));
            if (at.equals("earliest")) {
                consumer.beginningOffsets(partitions).forEach((p, o) -> found.put(p.partition(), o));
            } else if (at.equals("latest")) {
                consumer.endOffsets(partitions).forEach((p, o) -> found.put(p.partition(), o));
            } else {
                Map<TopicPartition, Long> times = new HashMap<>();
                partitions.forEach(each -> times.put(each, Long.parseLong(at)));
                Map<TopicPartition, OffsetAndTimestamp> answer = consumer.offsetsForTimes(times);
                answer.forEach((p, o) -> found.put(p.partition(), o == null ? -1 : o.offset()));
            }
        }
        return found;
    }

    static Object deleteRecords(AdminClient admin, JsonNode r) throws Exception {
        Map<TopicPartition, RecordsToDelete> before = new HashMap<>();
        Driver.places(r, "before").forEach((p, o) -> before.put(p, RecordsToDelete.beforeOffset(o)));
        Map<Integer, Long> low = new TreeMap<>();
        for (Map.Entry<TopicPartition, KafkaFuture<DeletedRecords>> each :
                admin.deleteRecords(before).lowWatermarks().entrySet()) {
            low.put(each.getKey().partition(), each.getValue().get().lowWatermark());
        }
        return low;
    }

    static Object cluster(AdminClient admin) throws Exception {
        DescribeClusterResult result = admin.describeCluster();
        List<Object> nodes = new ArrayList<>();
        for (Node each : result.nodes().get()) {
            nodes.add(List.of(each.id(), each.host(), each.port()));
        }
        Map<String, Object> found = new TreeMap<>();
        found.put("id", result.clusterId().get());
        found.put("controller", result.controller().get().id());
        found.put("nodes", nodes);
        return found;
    }

    @SuppressWarnings("deprecation")
    static Object describeGroup(AdminClient admin, JsonNode r) throws Exception {
        String group = Driver.text(r, "group");
        ConsumerGroupDescription told =
                admin.describeConsumerGroups(List.of(group)).all().get().get(group);
        List<Object> members = new ArrayList<>();
        for (MemberDescription each : told.members()) {
            Map<String, Object> member = new TreeMap<>();
            List<Object> partitions = new ArrayList<>();
            for (TopicPartition place : each.assignment().topicPartitions()) {
                partitions.add(List.of(place.topic(), place.partition()));
            }
            member.put("id", each.consumerId());
            member.put("client", each.clientId());
            member.put("host", each.host());
            member.put("partitions", partitions);
            members.add(member);
        }
        Map<String, Object> found = new TreeMap<>();
        found.put("state", told.state().toString());
        found.put("protocol", told.partitionAssignor());
        found.put("members", members);
        return found;
    }

    static Object groupOffsets(AdminClient admin, JsonNode r) throws Exception {
        Map<String, Map<Integer, Long>> found = new TreeMap<>();
        Map<TopicPartition, OffsetAndMetadata> told = admin
                .listConsumerGroupOffsets(Driver.text(r, "group"))
                .partitionsToOffsetAndMetadata().get();
        told.forEach((place, position) -> {
            if (position != null) {
                found.computeIfAbsent(place.topic(), topic -> new TreeMap<>())
                        .put(place.partition(), position.offset());
            }
        });
        return found;
    }

    static Object sorted(Iterable<String> texts) {
        TreeSet<String> sorted = new TreeSet<>();
        texts.forEach(sorted::add);
        return sorted;
    }
}
