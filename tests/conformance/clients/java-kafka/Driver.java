import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own Java client behind lines of JSON: {"id": 7, "do": "write", ...} on standard input is
 * answered by {"id": 7, "got": ...} or {"id": 7, "error": "..."} on standard output, in any order, each
 * request on a thread of its own. Verbs and their words: driven.py beside this folder.
 *
 * Compiled against each version from 2.0.0 on: what 2.0.0 has is here and in Administration.java, what
 * came later (or is called otherwise since) in since-3/Later.java, its absence in before-3/Later.java.
 */
public class Driver extends Lines {
    final AtomicInteger handles = new AtomicInteger();
    final Map<Integer, KafkaConsumer<byte[], byte[]>> members = new ConcurrentHashMap<>();
    final Map<Integer, KafkaProducer<byte[], byte[]>> producers = new ConcurrentHashMap<>();
    final Administration administration = new Administration();

    public static void main(String[] arguments) throws Exception {
        new Driver().serve();
    }

    @Override
    Object run(JsonNode r) throws Exception {
        switch (r.get("do").asText()) {
            case "write": return write(r);
            case "read": return read(r);
            case "join": return join(r);
            case "poll": return poll(r);
            case "commit": return commit(r);
            case "leave": return leave(r);
            case "open_producer": return openProducer(r);
            case "begin_transaction": producer(r).beginTransaction(); return null;
            case "send": return send(r);
            case "end_transaction": return endTransaction(r);
            case "close_producer": Later.close(producers.remove(r.get("of").asInt())); return null;
            default: return administration.run(r);
        }
    }

    // --- words ---------------------------------------------------------------------------------

    static boolean has(JsonNode r, String name) {
        return r.hasNonNull(name);
    }

    static String text(JsonNode r, String name) {
        return has(r, name) ? r.get(name).asText() : null;
    }

    static boolean is(JsonNode r, String name) {
        return has(r, name) && r.get(name).asBoolean();
    }

    static Map<String, String> pairs(JsonNode r, String name) {
        Map<String, String> pairs = new HashMap<>();
        if (has(r, name)) {
            r.get(name).fields().forEachRemaining(e -> pairs.put(e.getKey(), e.getValue().asText()));
        }
        return pairs;
    }

    static List<String> texts(JsonNode r, String name) {
        List<String> texts = new ArrayList<>();
        if (has(r, name)) {
            r.get(name).forEach(each -> texts.add(each.asText()));
        }
        return texts;
    }

    /** {"0": 7} of a topic, as partitions and numbers. */
    static Map<TopicPartition, Long> places(JsonNode r, String name) {
        Map<TopicPartition, Long> places = new HashMap<>();
        pairs(r, name).forEach((partition, number) -> places.put(
                new TopicPartition(text(r, "topic"), Integer.parseInt(partition)),
                Long.parseLong(number)));
        return places;
    }

    static byte[] bytes(JsonNode value) {
        return value == null || value.isNull() ? null : Base64.getDecoder().decode(value.asText());
    }

    static String token(byte[] value) {
        return value == null ? null : Base64.getEncoder().encodeToString(value);
    }

    static Map<String, Object> settings(JsonNode r) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", text(r, "address"));
        settings.put("client.id", has(r, "client") ? text(r, "client") : "driven");
        settings.putAll(pairs(r, "settings"));
        return settings;
    }

    // --- writing -------------------------------------------------------------------------------

    Object write(JsonNode r) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("compression.type", text(r, "codec"));
        settings.put("acks", text(r, "acks"));
        settings.put("enable.idempotence", is(r, "idempotent"));
        settings.put("linger.ms", 20);
        if (has(r, "transaction")) {
            settings.put("transactional.id", text(r, "transaction"));
        }
        settings.putAll(settings(r));
        List<List<Object>> places = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(
                settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            if (has(r, "transaction")) {
                producer.initTransactions();
                producer.beginTransaction();
            }
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (JsonNode record : r.get("records")) {
                sent.add(producer.send(record(text(r, "topic"), record)));
            }
            producer.flush();
            for (Future<RecordMetadata> each : sent) {
                RecordMetadata at = each.get(30, TimeUnit.SECONDS);
                places.add(List.of(at.partition(), at.offset()));
            }
            if (has(r, "transaction")) {
                if (is(r, "abort")) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
        return places;
    }

    // --- transactions, one after the other -----------------------------------------------------

    Object openProducer(JsonNode r) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("transactional.id", text(r, "transaction"));
        settings.putAll(settings(r));
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(
                settings, new ByteArraySerializer(), new ByteArraySerializer());
        try {
            producer.initTransactions();
        } catch (RuntimeException error) {
            Later.close(producer);
            throw error;
        }
        int handle = handles.incrementAndGet();
        producers.put(handle, producer);
        return handle;
    }

    KafkaProducer<byte[], byte[]> producer(JsonNode r) {
        return producers.get(r.get("of").asInt());
    }

    Object send(JsonNode r) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode record : r.get("records")) {
            sent.add(producer(r).send(record(text(r, "topic"), record)));
        }
        List<Long> offsets = new ArrayList<>();
        for (Future<RecordMetadata> each : sent) {
            offsets.add(each.get().offset());
        }
        return offsets;
    }

    Object endTransaction(JsonNode r) {
        if (is(r, "commit")) {
            producer(r).commitTransaction();
        } else {
            producer(r).abortTransaction();
        }
        return null;
    }

    static ProducerRecord<byte[], byte[]> record(String topic, JsonNode record) {
        List<Header> headers = new ArrayList<>();
        if (has(record, "headers")) {
            record.get("headers").forEach(each ->
                    headers.add(new RecordHeader(each.get(0).asText(), bytes(each.get(1)))));
        }
        return new ProducerRecord<>(
                topic,
                has(record, "partition") ? record.get("partition").asInt() : null,
                has(record, "timestamp") ? record.get("timestamp").asLong() : null,
                bytes(record.get("key")), bytes(record.get("value")), headers);
    }

    // --- reading -------------------------------------------------------------------------------

    static KafkaConsumer<byte[], byte[]> consumer(JsonNode r) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", false);
        settings.put("metadata.max.age.ms", 1000);
        if (has(r, "group")) {
            settings.put("group.id", text(r, "group"));
        }
        if (has(r, "group") && !pairs(r, "settings").containsKey("group.protocol")) {
            settings.put("session.timeout.ms", 6000);
            settings.put("heartbeat.interval.ms", 500);
        }
        if (is(r, "committed")) {
            settings.put("isolation.level", "read_committed");
        }
        settings.putAll(settings(r));
        return new KafkaConsumer<>(
                settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static List<TopicPartition> partitions(KafkaConsumer<?, ?> consumer, String topic) {
        List<TopicPartition> partitions = new ArrayList<>();
        for (PartitionInfo each : consumer.partitionsFor(topic)) {
            partitions.add(new TopicPartition(topic, each.partition()));
        }
        return partitions;
    }

    Object read(JsonNode r) {
        int count = r.get("count").asInt();
        long wait = has(r, "wait_ms") ? r.get("wait_ms").asLong() : 30_000;
        long until = System.currentTimeMillis() + wait;
        List<Object> reads = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(withMost(r, count))) {
            if (has(r, "group")) {
                consumer.subscribe(List.of(text(r, "topic")));
            } else {
                Collection<TopicPartition> partitions = partitions(consumer, text(r, "topic"));
                consumer.assign(partitions);
                consumer.seekToBeginning(partitions);
            }
            while (reads.size() < count && System.currentTimeMillis() < until) {
                for (ConsumerRecord<byte[], byte[]> each : consumer.poll(Duration.ofMillis(500))) {
                    if (reads.size() < count) {
                        reads.add(read(each));
                    } else {
                        consumer.seek(new TopicPartition(each.topic(), each.partition()), each.offset());
                        break;
                    }
                }
            }
            if (has(r, "group")) {
                consumer.commitSync();
            }
        }
        return reads;
    }

    /** A reader that commits after so many must not be handed more of them at once. */
    static JsonNode withMost(JsonNode r, int count) {
        ObjectNode more = ((ObjectNode) r).deepCopy();
        more.withObject("/settings").put("max.poll.records", String.valueOf(Math.max(1, count)));
        return more;
    }

    static Map<String, Object> read(ConsumerRecord<byte[], byte[]> record) {
        Map<String, Object> read = new TreeMap<>();
        List<Object> headers = new ArrayList<>();
        for (Header each : record.headers()) {
            List<String> pair = new ArrayList<>();
            pair.add(each.key());
            pair.add(token(each.value()));
            headers.add(pair);
        }
        read.put("topic", record.topic());
        read.put("partition", record.partition());
        read.put("offset", record.offset());
        read.put("key", token(record.key()));
        read.put("value", token(record.value()));
        read.put("headers", headers);
        read.put("timestamp", record.timestamp());
        return read;
    }

    // --- members of groups: a consumer is one thread's at a time -----------------------------------

    Object join(JsonNode r) throws Exception {
        KafkaConsumer<byte[], byte[]> consumer = consumer(r);
        if (has(r, "re2")) {
            subscribeAtBroker(consumer, text(r, "re2"));
        } else if (has(r, "pattern")) {
            Later.subscribe(consumer, text(r, "pattern"));
        } else {
            consumer.subscribe(texts(r, "topics"));
        }
        int handle = handles.incrementAndGet();
        members.put(handle, consumer);
        return handle;
    }

    /** A pattern that the broker looks up: clients from 4.0 on have it. */
    static void subscribeAtBroker(KafkaConsumer<?, ?> consumer, String pattern) throws Exception {
        Class<?> kind = Class.forName("org.apache.kafka.clients.consumer.SubscriptionPattern");
        KafkaConsumer.class
                .getMethod("subscribe", kind)
                .invoke(consumer, kind.getConstructor(String.class).newInstance(pattern));
    }

    KafkaConsumer<byte[], byte[]> member(JsonNode r) {
        return members.get(r.get("of").asInt());
    }

    Object poll(JsonNode r) {
        KafkaConsumer<byte[], byte[]> consumer = member(r);
        synchronized (consumer) {
            List<Object> reads = new ArrayList<>();
            for (ConsumerRecord<byte[], byte[]> each :
                    consumer.poll(Duration.ofMillis(r.get("ms").asLong()))) {
                reads.add(read(each));
            }
            List<Object> partitions = new ArrayList<>();
            for (TopicPartition each : consumer.assignment()) {
                partitions.add(List.of(each.topic(), each.partition()));
            }
            Map<String, Object> got = new TreeMap<>();
            got.put("reads", reads);
            got.put("partitions", partitions);
            return got;
        }
    }

    Object commit(JsonNode r) {
        KafkaConsumer<byte[], byte[]> consumer = member(r);
        synchronized (consumer) {
            consumer.commitSync();
        }
        return null;
    }

    Object leave(JsonNode r) {
        KafkaConsumer<byte[], byte[]> consumer = members.remove(r.get("of").asInt());
        synchronized (consumer) {
            consumer.close();
        }
        return null;
    }
}
