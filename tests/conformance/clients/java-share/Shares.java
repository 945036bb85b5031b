import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.SharePartitionOffsetInfo;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Kafka's own share consumers behind lines of JSON; verbs and their words: kafka_shares.py. */
public class Shares extends Lines {
    static final class Member {
        KafkaShareConsumer<byte[], String> consumer;
        final Map<String, ConsumerRecord<byte[], String>> records = new HashMap<>();
    }

    final AtomicInteger handles = new AtomicInteger();
    final Map<Integer, Member> members = new ConcurrentHashMap<>();

    public static void main(String[] arguments) throws Exception {
        new Shares().serve();
    }

    @Override
    Object run(JsonNode r) throws Exception {
        switch (r.get("do").asText()) {
            case "open": return open(r);
            case "poll": return poll(r);
            case "acknowledge": return acknowledge(r);
            case "commit": return commit(members.get(r.get("member").asInt()));
            case "close": {
                members.remove(r.get("member").asInt()).consumer.close();
                return null;
            }
            case "configure": return configure(r);
            case "offsets": return offsets(r);
            default: throw new IllegalArgumentException(r.toString());
        }
    }

    Object open(JsonNode r) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", r.get("address").asText());
        settings.put("group.id", r.get("group").asText());
        settings.put("key.deserializer", ByteArrayDeserializer.class);
        settings.put("value.deserializer", StringDeserializer.class);
        settings.put("share.acknowledgement.mode", "explicit");
        r.get("settings").fields().forEachRemaining(e -> settings.put(e.getKey(), e.getValue().asText()));
        Member member = new Member();
        member.consumer = new KafkaShareConsumer<>(settings);
        member.consumer.subscribe(List.of(r.get("topic").asText()));
        int handle = handles.incrementAndGet();
        members.put(handle, member);
        return handle;
    }

    Object poll(JsonNode r) {
        Member member = members.get(r.get("member").asInt());
        List<Object> found = new ArrayList<>();
        Duration wait = Duration.ofMillis(r.get("ms").asInt());
        for (ConsumerRecord<byte[], String> record : member.consumer.poll(wait)) {
            member.records.put(record.partition() + "-" + record.offset(), record);
            int count = record.deliveryCount().map(Short::intValue).orElse(-1);
            found.add(List.of(record.partition(), record.offset(), record.value(), count));
        }
        return found;
    }

    Object acknowledge(JsonNode r) {
        Member member = members.get(r.get("member").asInt());
        AcknowledgeType type = AcknowledgeType.valueOf(r.get("type").asText().toUpperCase(Locale.ROOT));
        for (JsonNode each : r.get("records")) {
            String key = each.get(0).asInt() + "-" + each.get(1).asLong();
            member.consumer.acknowledge(member.records.get(key), type);
        }
        return null;
    }

    Object commit(Member member) {
        Map<String, String> found = new TreeMap<>();
        Map<TopicIdPartition, Optional<KafkaException>> results = member.consumer.commitSync();
        results.forEach((partition, error) ->
                found.put(String.valueOf(partition.partition()), error.map(Lines::said).orElse("")));
        return found;
    }

    Object configure(JsonNode r) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", r.get("address").asText()))) {
            ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, r.get("group").asText());
            List<AlterConfigOp> changes = new ArrayList<>();
            r.get("settings").fields().forEachRemaining(e -> changes.add(new AlterConfigOp(
                    new ConfigEntry(e.getKey(), e.getValue().asText()), AlterConfigOp.OpType.SET)));
            admin.incrementalAlterConfigs(Map.of(group, changes)).all().get();
        }
        return null;
    }

    Object offsets(JsonNode r) throws Exception {
        String group = r.get("group").asText();
        Map<String, List<Long>> found = new TreeMap<>();
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", r.get("address").asText()))) {
            Map<TopicPartition, SharePartitionOffsetInfo> all = admin
                    .listShareGroupOffsets(Map.of(group, new ListShareGroupOffsetsSpec()))
                    .partitionsToOffsetInfo(group).get();
            all.forEach((partition, info) -> found.put(String.valueOf(partition.partition()),
                    List.of(info.startOffset(), info.lag().orElse(-1L))));
        }
        return found;
    }
}
