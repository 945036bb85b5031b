import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own share consumers (KIP-932) as a load, the same for every server.
 *
 *   ShareLoad share ADDRESS TOPIC --messages 200000 --size 100 --consumers 4
 *
 * Fills the topic; then so many members of one share group take and acknowledge its messages. Prints
 * "begin" and "end" around what is measured, then one line of JSON.
 */
public class ShareLoad extends Load {
    public static void main(String[] words) throws Exception {
        read(words);
        String group = "bench-" + words[2];
        fill(words[1], words[2]);
        begin(words[1], group);
        Drain drain = new Drain();
        for (int i = 0; i < (int) option("consumers", 4); i++) {
            Thread member = new Thread(() -> consume(words[1], words[2], group, drain));
            member.setDaemon(true);
            member.start();
        }
        drain.await();
        Runtime.getRuntime().halt(0);
    }

    static void fill(String address, String topic) {
        byte[] payload = payload();
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", address,
                "key.serializer", ByteArraySerializer.class, "value.serializer", ByteArraySerializer.class,
                "linger.ms", "5", "batch.size", "131072"));
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings)) {
            for (long i = 0; i < (long) option("messages", 100_000); i++) {
                producer.send(new ProducerRecord<>(topic, payload));
            }
        }
    }

    /** A share group begins with what is there already. */
    static void begin(String address, String group) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", address))) {
            ConfigEntry earliest = new ConfigEntry("share.auto.offset.reset", "earliest");
            admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.GROUP, group),
                    List.of(new AlterConfigOp(earliest, AlterConfigOp.OpType.SET)))).all().get();
        }
    }

    static void consume(String address, String topic, String group, Drain drain) {
        Map<String, Object> settings = Map.of("bootstrap.servers", address, "group.id", group,
                "key.deserializer", ByteArrayDeserializer.class,
                "value.deserializer", ByteArrayDeserializer.class);
        try (KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(settings)) {
            consumer.subscribe(List.of(topic));
            while (true) {
                drain.add(consumer.poll(Duration.ofSeconds(1)).count()); // acked by the next poll
            }
        }
    }
}
