import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.pulsar.client.api.*;
import org.apache.pulsar.client.api.schema.Field;
import org.apache.pulsar.client.api.schema.GenericRecord;
import org.apache.pulsar.client.api.schema.GenericRecordBuilder;
import org.apache.pulsar.client.api.schema.GenericSchema;
import org.apache.pulsar.client.api.transaction.Transaction;
import org.apache.pulsar.common.schema.SchemaInfo;
import org.apache.pulsar.common.schema.SchemaType;

/**
 * The Java client behind lines of JSON: {"id": 7, "do": "send", ...} on standard input is answered
 * by {"id": 7, "got": ...} or {"id": 7, "error": "..."} on standard output, in any order, each
 * request on a thread of its own. Verbs and their words: pulsar.py beside this folder.
 */
public class Driver extends Lines {
    final AtomicInteger handles = new AtomicInteger();
    final Map<Integer, PulsarClient> clients = new ConcurrentHashMap<>();
    final Map<Integer, Producer<Object>> producers = new ConcurrentHashMap<>();
    final Map<Integer, Schema<?>> schemas = new ConcurrentHashMap<>();
    final Map<Integer, Consumer<?>> consumers = new ConcurrentHashMap<>();
    final Map<Integer, Reader<?>> readers = new ConcurrentHashMap<>();
    final Map<Integer, Transaction> transactions = new ConcurrentHashMap<>();
    final Map<Integer, TableView<byte[]>> views = new ConcurrentHashMap<>();
    final Map<Integer, List<String>> events = new ConcurrentHashMap<>();
    final Map<String, Message<?>> messages = new ConcurrentHashMap<>();

    public static void main(String[] arguments) throws Exception {
        Driver driver = new Driver();
        System.setOut(System.err);
        driver.serve();
        Runtime.getRuntime().halt(0);
    }

    @Override
    Object run(JsonNode r) throws Exception {
        switch (r.get("do").asText()) {
            case "connect": return connect(r);
            case "producer": return producer(r);
            case "send": return send(r);
            case "consumer": return consumer(r);
            case "reader": return reader(r);
            case "view": return view(r);
            case "partitions": return clients.get(of(r)).getPartitionsForTopic(text(r, "topic")).get();
            case "receive": return receive(r);
            case "ack": return ack(r);
            case "nack": return nack(r);
            case "redeliver": consumers.get(of(r)).redeliverUnacknowledgedMessages(); return null;
            case "reconsume": return reconsume(r);
            case "unsubscribe": consumers.get(of(r)).unsubscribe(); return null;
            case "last": return last(r);
            case "seek": return seek(r);
            case "has_next": return readers.get(of(r)).hasMessageAvailable();
            case "events": return List.copyOf(events.get(of(r)));
            case "sequence": return producers.get(of(r)).getLastSequenceId();
            case "entries": return entries(r);
            case "ended": return ended(r);
            case "begin": return begin(r);
            case "commit": transactions.get(of(r)).commit().get(); return null;
            case "abort": transactions.get(of(r)).abort().get(); return null;
            case "close": return close(r);
            default: throw new IllegalArgumentException(r.toString());
        }
    }

    // --- words ---------------------------------------------------------------------------------

    static int of(JsonNode r) {
        return r.get("of").asInt();
    }

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

    static MessageId id(String token) throws Exception {
        switch (token) {
            case "earliest": return MessageId.earliest;
            case "latest": return MessageId.latest;
            default: return MessageId.fromByteArray(Base64.getDecoder().decode(token));
        }
    }

    static String token(MessageId id) {
        return Base64.getEncoder().encodeToString(id.toByteArray());
    }

    /** Ids of chunked messages are told apart by their last chunk alone. */
    static String key(int handle, String token) {
        return handle + "/" + token;
    }

    static Schema<?> schema(JsonNode r) {
        if (!has(r, "schema")) {
            return Schema.BYTES;
        }
        String type = r.get("schema").get("type").asText();
        if (type.equals("auto")) {
            return Schema.AUTO_CONSUME();
        }
        if (type.equals("string")) {
            return Schema.STRING;
        }
        SchemaType kind = SchemaType.valueOf(type.toUpperCase());
        byte[] definition = r.get("schema").get("definition").toString().getBytes();
        return Schema.generic(SchemaInfo.builder().name("record").type(kind).schema(definition).build());
    }

    // --- making --------------------------------------------------------------------------------

    Object connect(JsonNode r) throws Exception {
        int handle = handles.incrementAndGet();
        ClientBuilder builder = PulsarClient.builder();
        if (has(r, "token")) {
            builder.authentication(AuthenticationFactory.token(text(r, "token")));
        } else if (has(r, "user")) {
            String parameters = JSON.createObjectNode().put("userId", text(r, "user")).put("password", text(r, "password")).toString();
            builder.authentication("org.apache.pulsar.client.impl.auth.AuthenticationBasic", parameters);
        } else if (has(r, "certificate")) {
            builder.authentication(AuthenticationFactory.TLS(text(r, "certificate"), text(r, "key")));
        }
        if (has(r, "ca")) {
            builder.tlsTrustCertsFilePath(text(r, "ca")).enableTlsHostnameVerification(true);
        }
        clients.put(handle, builder.serviceUrl(text(r, "url"))
                .operationTimeout(has(r, "timeout_ms") ? r.get("timeout_ms").asInt() : 30_000, TimeUnit.MILLISECONDS)
                .enableTransaction(is(r, "transactions")).maxBackoffInterval(1, TimeUnit.SECONDS).statsInterval(0, TimeUnit.SECONDS).build());
        return handle;
    }

    @SuppressWarnings("unchecked")
    Object producer(JsonNode r) throws Exception {
        Schema<?> schema = schema(r);
        ProducerBuilder<Object> builder = (ProducerBuilder<Object>) clients.get(of(r)).newProducer(schema);
        builder.topic(text(r, "topic")).properties(pairs(r, "properties")).enableBatching(is(r, "batching"));
        builder.blockIfQueueFull(true);
        if (is(r, "batching")) {
            builder.batchingMaxMessages(has(r, "batch_messages") ? r.get("batch_messages").asInt() : 1000);
            builder.batchingMaxPublishDelay(
                    has(r, "batch_delay_ms") ? r.get("batch_delay_ms").asInt() : 10, TimeUnit.MILLISECONDS);
            builder.batcherBuilder(is(r, "by_key") ? BatcherBuilder.KEY_BASED : BatcherBuilder.DEFAULT);
        }
        builder.enableChunking(is(r, "chunking"));
        if (has(r, "name")) builder.producerName(text(r, "name"));
        if (has(r, "compression")) builder.compressionType(CompressionType.valueOf(text(r, "compression").toUpperCase()));
        if (has(r, "send_timeout_ms")) builder.sendTimeout(r.get("send_timeout_ms").asInt(), TimeUnit.MILLISECONDS);
        if (has(r, "sequence")) builder.initialSequenceId(r.get("sequence").asLong());
        if (has(r, "access")) builder.accessMode(access(text(r, "access")));
        builder.messageRoutingMode(is(r, "single") ? MessageRoutingMode.SinglePartition : MessageRoutingMode.RoundRobinPartition);
        Producer<Object> producer = builder.create();
        int handle = handles.incrementAndGet();
        producers.put(handle, producer);
        schemas.put(handle, schema);
        return Map.of("handle", handle, "name", producer.getProducerName(), "sequence", producer.getLastSequenceId());
    }

    static ProducerAccessMode access(String name) {
        switch (name) {
            case "exclusive": return ProducerAccessMode.Exclusive;
            case "fencing": return ProducerAccessMode.ExclusiveWithFencing;
            case "wait": return ProducerAccessMode.WaitForExclusive;
            default: return ProducerAccessMode.Shared;
        }
    }

    Object send(JsonNode r) throws Exception {
        Producer<Object> producer = producers.get(of(r));
        List<CompletableFuture<MessageId>> sent = new ArrayList<>();
        for (JsonNode m : r.get("messages")) {
            sent.add(message(r, producer, m).sendAsync());
        }
        producer.flushAsync();
        List<Map<String, String>> results = new ArrayList<>();
        for (CompletableFuture<MessageId> one : sent) {
            try {
                results.add(Map.of("id", token(one.get())));
            } catch (ExecutionException error) {
                results.add(Map.of("error", said(error)));
            }
        }
        return results;
    }

    Map<String, Object> begin(JsonNode r) throws Exception {
        Transaction made = clients.get(of(r)).newTransaction()
                .withTransactionTimeout(r.get("timeout_ms").asInt(), TimeUnit.MILLISECONDS).build().get();
        int handle = handles.incrementAndGet();
        transactions.put(handle, made);
        return Map.of("handle", handle, "most", made.getTxnID().getMostSigBits(),
                "least", made.getTxnID().getLeastSigBits());
    }

    Transaction transaction(JsonNode r) {
        return has(r, "transaction") ? transactions.get(r.get("transaction").asInt()) : null;
    }

    TypedMessageBuilder<?> message(JsonNode r, Producer<Object> producer, JsonNode m) {
        Transaction within = transaction(r);
        TypedMessageBuilder<Object> builder = within == null ? producer.newMessage() : producer.newMessage(within);
        Schema<?> schema = schemas.get(of(r));
        if (schema instanceof GenericSchema) {
            GenericRecordBuilder record = ((GenericSchema<?>) schema).newRecordBuilder();
            m.get("record").fields().forEachRemaining(e ->
                    record.set(e.getKey(), e.getValue().isNumber() ? e.getValue().asInt() : e.getValue().asText()));
            builder.value(record.build());
        } else if (has(m, "value")) {
            byte[] value = Base64.getDecoder().decode(text(m, "value"));
            builder.value(schema == Schema.STRING ? new String(value) : value);
        } else {
            builder.value(null);
        }
        if (has(m, "key")) builder.key(text(m, "key"));
        if (has(m, "ordering_key")) builder.orderingKey(text(m, "ordering_key").getBytes());
        if (has(m, "event_time")) builder.eventTime(m.get("event_time").asLong());
        if (has(m, "sequence")) builder.sequenceId(m.get("sequence").asLong());
        return builder.properties(pairs(m, "properties"));
    }

    Object consumer(JsonNode r) throws Exception {
        ConsumerBuilder<?> builder = clients.get(of(r)).newConsumer(schema(r));
        int handle = handles.incrementAndGet();
        List<String> seen = java.util.Collections.synchronizedList(new ArrayList<>());
        events.put(handle, seen);
        if (has(r, "pattern")) {
            builder.topicsPattern(text(r, "pattern")).patternAutoDiscoveryPeriod(1, TimeUnit.SECONDS);
        } else {
            r.get("topics").forEach(topic -> builder.topic(topic.asText()));
        }
        builder.subscriptionName(text(r, "subscription")).subscriptionType(type(text(r, "type")));
        builder.properties(pairs(r, "properties"));
        builder.subscriptionInitialPosition(
                is(r, "earliest") ? SubscriptionInitialPosition.Earliest : SubscriptionInitialPosition.Latest);
        builder.isAckReceiptEnabled(is(r, "receipts")).enableBatchIndexAcknowledgment(is(r, "batch_index"));
        builder.acknowledgmentGroupTime(has(r, "ack_group_ms") ? r.get("ack_group_ms").asInt() : 0, TimeUnit.MILLISECONDS);
        builder.negativeAckRedeliveryDelay(has(r, "nack_ms") ? r.get("nack_ms").asInt() : 100, TimeUnit.MILLISECONDS);
        if (has(r, "ack_timeout_ms")) builder.ackTimeout(r.get("ack_timeout_ms").asInt(), TimeUnit.MILLISECONDS);
        if (has(r, "queue")) builder.receiverQueueSize(r.get("queue").asInt());
        if (has(r, "name")) builder.consumerName(text(r, "name"));
        if (has(r, "priority")) builder.priorityLevel(r.get("priority").asInt());
        if (is(r, "inclusive")) builder.startMessageIdInclusive();
        builder.readCompacted(is(r, "compacted")).enableRetry(is(r, "retry"));
        if (has(r, "dead_after")) {
            DeadLetterPolicy.DeadLetterPolicyBuilder dead =
                    DeadLetterPolicy.builder().maxRedeliverCount(r.get("dead_after").asInt());
            if (has(r, "dead_topic")) dead.deadLetterTopic(text(r, "dead_topic"));
            if (has(r, "retry_topic")) dead.retryLetterTopic(text(r, "retry_topic"));
            if (has(r, "dead_subscription")) dead.initialSubscriptionName(text(r, "dead_subscription"));
            builder.deadLetterPolicy(dead.build());
        }
        if (has(r, "ranges")) {
            List<Range> ranges = new ArrayList<>();
            r.get("ranges").forEach(range -> ranges.add(Range.of(range.get(0).asInt(), range.get(1).asInt())));
            builder.keySharedPolicy(KeySharedPolicy.stickyHashRange().ranges(ranges));
        } else if (is(r, "out_of_order")) {
            builder.keySharedPolicy(KeySharedPolicy.autoSplitHashRange().setAllowOutOfOrderDelivery(true));
        }
        if ("failover".equals(text(r, "type"))) {
            builder.consumerEventListener(listener(seen));
        }
        consumers.put(handle, builder.subscribe());
        return handle;
    }

    static ConsumerEventListener listener(List<String> seen) {
        return new ConsumerEventListener() {
            @Override
            public void becameActive(Consumer<?> consumer, int partitionId) {
                seen.add("active");
            }

            @Override
            public void becameInactive(Consumer<?> consumer, int partitionId) {
                seen.add("inactive");
            }
        };
    }

    static SubscriptionType type(String name) {
        switch (name == null ? "exclusive" : name) {
            case "shared": return SubscriptionType.Shared;
            case "failover": return SubscriptionType.Failover;
            case "key_shared": return SubscriptionType.Key_Shared;
            default: return SubscriptionType.Exclusive;
        }
    }

    Object reader(JsonNode r) throws Exception {
        ReaderBuilder<?> builder = clients.get(of(r)).newReader(schema(r));
        builder.topic(text(r, "topic")).startMessageId(id(text(r, "start"))).readCompacted(is(r, "compacted"));
        if (is(r, "inclusive")) builder.startMessageIdInclusive();
        int handle = handles.incrementAndGet();
        readers.put(handle, builder.create());
        return handle;
    }

    Object view(JsonNode r) throws Exception {
        int handle = handles.incrementAndGet();
        views.put(handle, clients.get(of(r)).newTableView(Schema.BYTES).topic(text(r, "topic")).create());
        return handle;
    }

    // --- using ---------------------------------------------------------------------------------

    Object receive(JsonNode r) throws Exception {
        List<ObjectNode> got = new ArrayList<>();
        int count = r.get("count").asInt();
        long end = System.nanoTime() + r.get("timeout_ms").asLong() * 1_000_000;
        while (got.size() < count) {
            int left = (int) Math.max(0, (end - System.nanoTime()) / 1_000_000);
            Message<?> message = readers.containsKey(of(r))
                    ? readers.get(of(r)).readNext(left, TimeUnit.MILLISECONDS)
                    : consumers.get(of(r)).receive(left, TimeUnit.MILLISECONDS);
            if (message == null) {
                break;
            }
            messages.put(key(of(r), token(message.getMessageId())), message);
            got.add(described(message));
        }
        return got;
    }

    static ObjectNode described(Message<?> m) {
        ObjectNode out = JSON.createObjectNode().put("id", token(m.getMessageId()));
        if (m.getValue() instanceof GenericRecord) {
            ObjectNode record = out.putObject("record");
            GenericRecord value = (GenericRecord) m.getValue();
            for (Field field : value.getFields()) {
                Object content = value.getField(field);
                if (content instanceof Number) {
                    record.put(field.getName(), ((Number) content).longValue());
                } else {
                    record.put(field.getName(), String.valueOf(content));
                }
            }
        } else {
            out.put("value", m.getValue() == null ? null : Base64.getEncoder().encodeToString(m.getData()));
        }
        out.put("key", m.getKey()).put("redelivery", m.getRedeliveryCount()).put("topic", m.getTopicName());
        out.put("ordering_key", m.getOrderingKey() == null ? null : new String(m.getOrderingKey()));
        out.put("event_time", m.getEventTime()).put("publish_time", m.getPublishTime());
        out.put("producer", m.getProducerName()).put("sequence", m.getSequenceId());
        m.getProperties().forEach(out.putObject("properties")::put);
        MessageId id = m.getMessageId();
        if (id instanceof TopicMessageId && !(id instanceof MessageIdAdv)) {
            return out;
        }
        MessageIdAdv whole = (MessageIdAdv) id;
        out.put("ledger", whole.getLedgerId()).put("entry", whole.getEntryId());
        return out.put("batch", whole.getBatchIndex()).put("partition", whole.getPartitionIndex());
    }

    List<MessageId> ids(JsonNode r) throws Exception {
        List<MessageId> ids = new ArrayList<>();
        for (JsonNode token : r.get("ids")) {
            Message<?> known = messages.get(key(of(r), token.asText()));
            ids.add(known == null ? id(token.asText()) : known.getMessageId());
        }
        return ids;
    }

    Object ack(JsonNode r) throws Exception {
        Consumer<?> consumer = consumers.get(of(r));
        List<CompletableFuture<Void>> acked = new ArrayList<>();
        for (MessageId id : ids(r)) {
            acked.add(is(r, "cumulative") ? consumer.acknowledgeCumulativeAsync(id, transaction(r))
                    : consumer.acknowledgeAsync(id, transaction(r)));
        }
        for (CompletableFuture<Void> one : acked) {
            one.get();
        }
        return null;
    }

    Object nack(JsonNode r) throws Exception {
        for (MessageId id : ids(r)) {
            consumers.get(of(r)).negativeAcknowledge(id);
        }
        return null;
    }

    Object reconsume(JsonNode r) throws Exception {
        for (JsonNode token : r.get("ids")) {
            Message<?> message = messages.get(key(of(r), token.asText()));
            consumers.get(of(r)).reconsumeLater(message, r.get("delay_ms").asInt(), TimeUnit.MILLISECONDS);
        }
        return null;
    }

    Object last(JsonNode r) throws Exception {
        List<TopicMessageId> ids = readers.containsKey(of(r))
                ? readers.get(of(r)).getLastMessageIds() : consumers.get(of(r)).getLastMessageIds();
        return token(ids.get(0));
    }

    Object seek(JsonNode r) throws Exception {
        if (readers.containsKey(of(r))) {
            if (has(r, "time")) readers.get(of(r)).seek(r.get("time").asLong());
            else readers.get(of(r)).seek(id(text(r, "to")));
        } else {
            if (has(r, "time")) consumers.get(of(r)).seek(r.get("time").asLong());
            else consumers.get(of(r)).seek(id(text(r, "to")));
        }
        return null;
    }

    Object entries(JsonNode r) {
        Map<String, String> entries = new HashMap<>();
        views.get(of(r)).forEach((key, value) -> entries.put(key, Base64.getEncoder().encodeToString(value)));
        return entries;
    }

    Object ended(JsonNode r) {
        return consumers.get(of(r)).hasReachedEndOfTopic();
    }

    static void closeQuietly(PulsarClient client) {
        try {
            client.close();
        } catch (PulsarClientException error) {
            System.err.println(error);
        }
    }

    Object close(JsonNode r) throws Exception {
        int handle = of(r);
        PulsarClient client = clients.remove(handle);
        if (client != null) {
            THREADS.execute(() -> closeQuietly(client)); // it takes two seconds for threads of its own
        }
        AutoCloseable[] known = {producers.remove(handle), consumers.remove(handle), readers.remove(handle),
            views.remove(handle)};
        for (AutoCloseable one : known) {
            if (one != null) {
                one.close();
            }
        }
        messages.keySet().removeIf(key -> key.startsWith(handle + "/"));
        return null;
    }
}
