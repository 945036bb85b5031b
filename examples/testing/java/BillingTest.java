import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import org.apache.inlong.tubemq.client.config.TubeClientConfig;
import org.apache.inlong.tubemq.client.factory.TubeSingleSessionFactory;
import org.apache.inlong.tubemq.client.producer.MessageProducer;
import org.apache.inlong.tubemq.client.producer.MessageSentResult;
import org.apache.inlong.tubemq.corebase.Message;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.errors.KafkaStorageException;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Tests with Kafka's and TubeMQ's clients; a project has JUnit instead of `main`. Each test begins with
 * an empty broker, which all of them share.
 */
public final class BillingTest {
    interface Test {
        void run(TrilogueServer server) throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, Test> tests = new LinkedHashMap<>();
        tests.put("messages are stored", BillingTest::messagesAreStored);
        tests.put("a message is sent again", BillingTest::aMessageIsSentAgain);
        tests.put("a message is stored once, whatever happens to its requests", BillingTest::faultsArePassed);
        tests.put("a message is stored once, though the broker ends", BillingTest::aCrashIsPassed);
        tests.put("a full disk is reported", BillingTest::aFullDiskIsReported);
        tests.put("TubeMQ's client writes for Kafka's", BillingTest::tubeWritesForKafka);
        boolean failed = false;
        try (TrilogueServer server = new TrilogueServer()) {
            loadClients(server);
            for (Map.Entry<String, Test> test : tests.entrySet()) {
                server.call("POST", "/reset", "");
                long began = System.nanoTime();
                String outcome = "ok";
                try {
                    test.getValue().run(server);
                } catch (Throwable error) {
                    error.printStackTrace();
                    outcome = "failed";
                    failed = true;
                }
                double took = (System.nanoTime() - began) / 1e9;
                System.out.printf(java.util.Locale.ROOT, "%s: %s (%.3f s)%n", outcome, test.getKey(), took);
            }
        }
        System.exit(failed ? 1 : 0);
    }

    /** Uses each client once: loading its classes takes longer than a test. A project has @BeforeAll. */
    static void loadClients(TrilogueServer server) throws Exception {
        messagesAreStored(server);
        tubeWritesForKafka(server);
    }

    static void messagesAreStored(TrilogueServer server) throws Exception {
        try (KafkaProducer<String, String> producer = producer(server)) {
            producer.send(new ProducerRecord<>("orders", "k", "book")).get();
        }
        check(server.call("GET", "/messages/orders", "").contains("\"text\":\"book\""), "no message");
    }

    static void aMessageIsSentAgain(TrilogueServer server) throws Exception {
        String rule = server.call("POST", "/rules",
                "{\"action\": \"error\", \"request\": \"Produce\", \"error\": \"NOT_LEADER_OR_FOLLOWER\"}");
        check(rule.contains("\"applied\":0"), rule);
        try (KafkaProducer<String, String> producer = producer(server)) {
            producer.send(new ProducerRecord<>("orders", "k", "book")).get();
        }
        String rules = server.call("GET", "/rules", "");
        check(rules.contains("\"applied\":1"), rules);
    }

    static void faultsArePassed(TrilogueServer server) throws Exception {
        sendWith(
                server,
                "\"action\": \"error\", \"error\": \"NOT_LEADER_OR_FOLLOWER\", \"count\": 2",
                "\"action\": \"delay\", \"seconds\": 0.1",
                "\"action\": \"cut\"");
    }

    static void aCrashIsPassed(TrilogueServer server) throws Exception {
        sendWith(server, "\"action\": \"crash\"");
    }

    /** Sends a message while each of these faults happens to its request; each is stored once. */
    static void sendWith(TrilogueServer server, String... faults) throws Exception {
        try (KafkaProducer<String, String> producer = producer(server)) {
            for (int i = 0; i < faults.length; i++) {
                server.call("POST", "/rules",
                        "{" + faults[i] + ", \"request\": \"Produce\", \"topic\": \"orders\"}");
                producer.send(new ProducerRecord<>("orders", "k", "book " + i)).get();
                String messages = server.call("GET", "/messages/orders", "");
                check(messages.split("\"text\":\"book " + i, -1).length == 2, messages);
            }
        }
        check(!server.call("GET", "/rules", "").contains("\"applied\":0"), "a rule did not apply");
    }

    static void aFullDiskIsReported(TrilogueServer server) throws Exception {
        try (KafkaProducer<String, String> producer = producer(server, "retries", "0")) {
            producer.send(new ProducerRecord<>("orders", "k", "book")).get();
            server.call("POST", "/disk", "{\"full\": true}");
            try {
                producer.send(new ProducerRecord<>("orders", "k", "lamp")).get();
                throw new AssertionError("a message was stored on a full disk");
            } catch (ExecutionException error) {
                check(error.getCause() instanceof KafkaStorageException, error.toString());
            }
            server.call("POST", "/disk", "{\"full\": false}");
            producer.send(new ProducerRecord<>("orders", "k", "chair")).get();
        }
    }

    static void tubeWritesForKafka(TrilogueServer server) throws Exception {
        try (KafkaProducer<String, String> producer = producer(server)) {
            producer.send(new ProducerRecord<>("orders", "k", "book")).get();
        }
        TubeSingleSessionFactory sessions =
                new TubeSingleSessionFactory(new TubeClientConfig(server.address("tubemq")));
        try {
            MessageProducer producer = sessions.createProducer();
            producer.publish(new TreeSet<>(java.util.List.of("orders")));
            MessageSentResult sent = producer.sendMessage(new Message("orders", "lamp".getBytes()));
            check(sent.isSuccess(), sent.getErrMsg());
            server.call("POST", "/rules",
                    "{\"action\": \"error\", \"request\": \"sendMessageP2B\", \"error\": \"503\"}");
            MessageSentResult refused = producer.sendMessage(new Message("orders", "sofa".getBytes()));
            check(refused.getErrCode() == 503, refused.getErrMsg());
        } finally {
            sessions.shutdown();
        }
        check(server.call("GET", "/messages/orders", "").contains("\"text\":\"lamp\""), "no message");
    }

    static KafkaProducer<String, String> producer(TrilogueServer server, String... settings) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", server.address("kafka"));
        properties.put("retry.backoff.ms", "10"); // 100 by default: the broker is there at once
        properties.put("reconnect.backoff.ms", "10");
        for (int i = 0; i < settings.length; i += 2) {
            properties.put(settings[i], settings[i + 1]);
            properties.put("enable.idempotence", "false");
        }
        return new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer());
    }

    static void check(boolean holds, String text) {
        if (!holds) {
            throw new AssertionError(text);
        }
    }
}
