import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupListing;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.PartitionReassignment;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;

/** What came after 2.0.0, or is called otherwise since, in words that 3.9.1 and 4.3.1 share. */
class Later {
    static Object run(AdminClient admin, JsonNode r) throws Exception {
        switch (r.get("do").asText()) {
            case "groups": return groups(admin);
            case "partitions": {
                String topic = Driver.text(r, "topic");
                return admin.describeTopics(List.of(topic)).allTopicNames().get()
                        .get(topic).partitions().size();
            }
            case "alter": return alter(admin, r);
            case "log_dirs": return logDirs(admin, r);
            case "newest": return newest(admin, r);
            case "alter_group_offsets": return alterGroupOffsets(admin, r);
            case "delete_group_offsets": return deleteGroupOffsets(admin, r);
            case "producers": return producers(admin, r);
            case "transactions": return transactions(admin);
            case "describe_transaction": return describeTransaction(admin, r);
            case "quotas": return quotas(admin);
            case "set_quota": return setQuota(admin, r);
            case "elect": return elect(admin, r);
            case "reassign": return reassign(admin, r);
            case "reassignments": return reassignments(admin);
            default: throw new IllegalArgumentException(r.toString());
        }
    }

    static void subscribe(KafkaConsumer<?, ?> consumer, String pattern) {
        consumer.subscribe(Pattern.compile(pattern));
    }

    static void close(KafkaProducer<?, ?> producer) {
        producer.close(Duration.ZERO);
    }

    static TopicPartition place(JsonNode r) {
        return new TopicPartition(Driver.text(r, "topic"), r.get("partition").asInt());
    }

    @SuppressWarnings("deprecation")
    static Object groups(AdminClient admin) throws Exception {
        Map<String, Object> found = new TreeMap<>();
        for (ConsumerGroupListing each : admin.listConsumerGroups().all().get()) {
            found.put(each.groupId(), each.state().map(Object::toString).orElse(null));
        }
        return found;
    }

    static Object alter(AdminClient admin, JsonNode r) throws Exception {
        ConfigResource resource = Administration.resource(r);
        List<AlterConfigOp> changes = new ArrayList<>();
        Driver.pairs(r, "values").forEach((name, value) -> changes.add(
                new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET)));
        Driver.texts(r, "without").forEach(name -> changes.add(
                new AlterConfigOp(new ConfigEntry(name, ""), AlterConfigOp.OpType.DELETE)));
        admin.incrementalAlterConfigs(Map.of(resource, changes)).all().get();
        return null;
    }

    static Object logDirs(AdminClient admin, JsonNode r) throws Exception {
        int node = r.get("node").asInt();
        Map<String, LogDirDescription> told =
                admin.describeLogDirs(List.of(node)).allDescriptions().get().get(node);
        Map<String, Object> found = new TreeMap<>();
        told.forEach((path, directory) -> {
            Map<String, Long> sizes = new TreeMap<>();
            directory.replicaInfos().forEach((p, info) -> sizes.put(p.toString(), info.size()));
            found.put(path, sizes);
        });
        return found;
    }

    /** Where the newest record is, by time. */
    static Object newest(AdminClient admin, JsonNode r) throws Exception {
        return admin.listOffsets(Map.of(place(r), OffsetSpec.maxTimestamp()))
                .partitionResult(place(r)).get().offset();
    }

    static Object alterGroupOffsets(AdminClient admin, JsonNode r) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        Driver.places(r, "offsets").forEach((p, o) -> offsets.put(p, new OffsetAndMetadata(o)));
        admin.alterConsumerGroupOffsets(Driver.text(r, "group"), offsets).all().get();
        return null;
    }

    static Object deleteGroupOffsets(AdminClient admin, JsonNode r) throws Exception {
        admin.deleteConsumerGroupOffsets(Driver.text(r, "group"), Set.of(place(r))).all().get();
        return null;
    }

    static Object producers(AdminClient admin, JsonNode r) throws Exception {
        List<Object> found = new ArrayList<>();
        for (ProducerState each : admin.describeProducers(Set.of(place(r)))
                .partitionResult(place(r)).get().activeProducers()) {
            Map<String, Object> state = new TreeMap<>();
            state.put("id", each.producerId());
            state.put("epoch", each.producerEpoch());
            state.put("sequence", each.lastSequence());
            state.put("open_from", each.currentTransactionStartOffset().orElse(-1));
            found.add(state);
        }
        return found;
    }

    static Object transactions(AdminClient admin) throws Exception {
        Map<String, String> found = new TreeMap<>();
        for (TransactionListing each : admin.listTransactions().all().get()) {
            found.put(each.transactionalId(), each.state().toString());
        }
        return found;
    }

    static Object describeTransaction(AdminClient admin, JsonNode r) throws Exception {
        TransactionDescription told = admin
                .describeTransactions(List.of(Driver.text(r, "transaction")))
                .description(Driver.text(r, "transaction")).get();
        return told.state().toString();
    }

    static Object quotas(AdminClient admin) throws Exception {
        Map<String, Object> found = new TreeMap<>();
        admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get().forEach(
                (entity, values) -> found.put(
                        String.valueOf(entity.entries().get("client-id")), values));
        return found;
    }

    /** A value of null takes it away. */
    static Object setQuota(AdminClient admin, JsonNode r) throws Exception {
        Map<String, String> entity = new HashMap<>();
        entity.put("client-id", Driver.text(r, "client"));
        Double value = Driver.has(r, "value") ? r.get("value").asDouble() : null;
        admin.alterClientQuotas(List.of(new ClientQuotaAlteration(
                new ClientQuotaEntity(entity),
                List.of(new ClientQuotaAlteration.Op(Driver.text(r, "key"), value))))).all().get();
        return null;
    }

    /** The error of the partition, by its name; null where there is none. */
    static Object elect(AdminClient admin, JsonNode r) throws Exception {
        Optional<Throwable> told = admin.electLeaders(ElectionType.PREFERRED, Set.of(place(r)))
                .partitions().get().get(place(r));
        return told.map(error -> error.getClass().getSimpleName()).orElse(null);
    }

    static Object reassign(AdminClient admin, JsonNode r) throws Exception {
        List<Integer> nodes = new ArrayList<>();
        r.get("nodes").forEach(each -> nodes.add(each.asInt()));
        admin.alterPartitionReassignments(
                Map.of(place(r), Optional.of(new NewPartitionReassignment(nodes)))).all().get();
        return null;
    }

    static Object reassignments(AdminClient admin) throws Exception {
        Map<String, Object> found = new TreeMap<>();
        Map<TopicPartition, PartitionReassignment> told =
                admin.listPartitionReassignments().reassignments().get();
        told.forEach((p, each) -> found.put(p.toString(), each.replicas()));
        return found;
    }
}
