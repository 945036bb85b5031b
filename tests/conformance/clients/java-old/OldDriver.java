import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's Java clients of 0.9 to 0.11 behind the lines of java-kafka/Driver.java: the verbs "write"
 * and "read" alone. Without headers and times, which not all of them know, and one request after the
 * other.
 */
public final class OldDriver {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final PrintStream OUT = System.out;

    private OldDriver() {}

    public static void main(String[] arguments) throws Exception {
        BufferedReader in =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode request = JSON.readTree(line);
            ObjectNode answer = JSON.createObjectNode().put("id", request.get("id").asInt());
            try {
                boolean writes = request.get("do").asText().equals("write");
                answer.set("got", JSON.valueToTree(writes ? write(request) : read(request)));
            } catch (Exception error) {
                answer.put("error", error.toString());
            }
            OUT.println(answer);
            OUT.flush();
        }
    }

    private static Properties settings(JsonNode r) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", r.get("address").asText());
        settings.put("client.id", "old");
        return settings;
    }

    private static Object write(JsonNode r) throws Exception {
        Properties settings = settings(r);
        settings.put("acks", r.get("acks").asText());
        settings.put("compression.type", r.get("codec").asText());
        settings.put("linger.ms", "20");
        List<Object> offsets = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(
                settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (JsonNode each : r.get("records")) {
                sent.add(producer.send(new ProducerRecord<>(
                        r.get("topic").asText(), bytes(each.get("key")), bytes(each.get("value")))));
            }
            for (Future<RecordMetadata> each : sent) {
                offsets.add(each.get(30, TimeUnit.SECONDS).offset());
            }
        }
        return offsets;
    }

    private static Object read(JsonNode r) {
        int count = r.get("count").asInt();
        String topic = r.get("topic").asText();
        boolean isMember = r.hasNonNull("group");
        Properties settings = settings(r);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("check.crcs", "true");
        settings.put("group.id", isMember ? r.get("group").asText() : "nobody");
        List<Object> reads = new ArrayList<>();
        long until = System.currentTimeMillis() + 30_000;
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
                settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            if (isMember) {
                consumer.subscribe(java.util.Collections.singletonList(topic));
            } else {
                List<TopicPartition> partitions = new ArrayList<>();
                for (PartitionInfo each : consumer.partitionsFor(topic)) {
                    partitions.add(new TopicPartition(topic, each.partition()));
                }
                consumer.assign(partitions);
            }
            while (reads.size() < count && System.currentTimeMillis() < until) {
                for (ConsumerRecord<byte[], byte[]> each : consumer.poll(500)) {
                    reads.add(read(each));
                }
            }
            if (isMember) {
                consumer.commitSync();
            }
        }
        return reads;
    }

    private static Map<String, Object> read(ConsumerRecord<byte[], byte[]> record) {
        Map<String, Object> read = new TreeMap<>();
        read.put("partition", record.partition());
        read.put("offset", record.offset());
        read.put("key", token(record.key()));
        read.put("value", token(record.value()));
        read.put("headers", new ArrayList<>());
        read.put("timestamp", -1);
        return read;
    }

    private static byte[] bytes(JsonNode value) {
        return value.isNull() ? null : Base64.getDecoder().decode(value.asText());
    }

    private static String token(byte[] value) {
        return value == null ? null : Base64.getEncoder().encodeToString(value);
    }
}
