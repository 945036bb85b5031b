// Asks for everything that the Java administration client can ask of one server, and says how it went:
// a line "ok <what> -> <answer>" or "refused <what> -> <status> <reason>" for each.
// java -cp "<jars>/*" Admin.java HTTP-ADDRESS PULSAR-ADDRESS
import org.apache.pulsar.client.admin.*;
import org.apache.pulsar.client.api.*;
import org.apache.pulsar.common.policies.data.*;
import java.util.*;
import java.util.concurrent.*;
public class Admin {
  interface Do { Object run() throws Exception; }
  static void t(String what, Do d) {
    try { Object o = d.run(); System.out.println("ok " + what + " -> " + (o == null ? "" : cut(String.valueOf(o)))); }
    catch (PulsarAdminException e) { System.out.println("refused " + what + " -> " + e.getStatusCode() + " " + cut(e.getMessage())); }
    catch (Throwable e) { System.out.println("refused " + what + " -> " + cut(e.toString())); }
  }
  static String cut(String s) { s = s.replace("\n"," "); return s.length() > 160 ? s.substring(0,160) : s; }
  public static void main(String[] a) throws Exception {
    PulsarAdmin ad = PulsarAdmin.builder().serviceHttpUrl("http://"+a[0]).build();
    PulsarClient c = PulsarClient.builder().serviceUrl("pulsar://"+a[1]).build();
    t("clusters", () -> ad.clusters().getClusters());
    t("cluster", () -> ad.clusters().getCluster("standalone"));
    t("brokers", () -> ad.brokers().getActiveBrokers("standalone"));
    t("leader", () -> ad.brokers().getLeaderBroker());
    t("health", () -> { ad.brokers().healthcheck(); return null; });
    t("health2", () -> { ad.brokers().healthcheck(org.apache.pulsar.common.naming.TopicVersion.V2); return null; });
    t("runtime", () -> ad.brokers().getRuntimeConfigurations());
    t("dyn", () -> ad.brokers().getAllDynamicConfigurations());
    t("version", () -> ad.brokers().getVersion());
    t("createTenant", () -> { ad.tenants().createTenant("jt", TenantInfo.builder().allowedClusters(Set.of("standalone")).adminRoles(Set.of("x")).build()); return null; });
    t("getTenants", () -> ad.tenants().getTenants());
    t("tenantInfo", () -> ad.tenants().getTenantInfo("jt"));
    t("updateTenant", () -> { ad.tenants().updateTenant("jt", TenantInfo.builder().allowedClusters(Set.of("standalone")).build()); return null; });
    t("createNamespace", () -> { ad.namespaces().createNamespace("jt/ns"); return null; });
    t("createNamespace bundles", () -> { ad.namespaces().createNamespace("jt/ns4", 4); return null; });
    t("createNamespace clusters", () -> { ad.namespaces().createNamespace("jt/ns5", Set.of("standalone")); return null; });
    t("createNamespace policies", () -> { Policies p = new Policies(); p.retention_policies = new RetentionPolicies(5, 5); ad.namespaces().createNamespace("jt/ns6", p); return null; });
    t("namespaces", () -> ad.namespaces().getNamespaces("jt"));
    t("policies", () -> ad.namespaces().getPolicies("jt/ns6"));
    t("setRetention", () -> { ad.namespaces().setRetention("jt/ns", new RetentionPolicies(10, 10)); return ad.namespaces().getRetention("jt/ns"); });
    t("removeRetention", () -> { ad.namespaces().removeRetention("jt/ns"); return ad.namespaces().getRetention("jt/ns"); });
    t("ttl", () -> { ad.namespaces().setNamespaceMessageTTL("jt/ns", 60); return ad.namespaces().getNamespaceMessageTTL("jt/ns"); });
    t("dedup", () -> { ad.namespaces().setDeduplicationStatus("jt/ns", false); return ad.namespaces().getDeduplicationStatus("jt/ns"); });
    t("quota", () -> { ad.namespaces().setBacklogQuota("jt/ns", BacklogQuota.builder().limitSize(100000000).retentionPolicy(BacklogQuota.RetentionPolicy.consumer_backlog_eviction).build()); return ad.namespaces().getBacklogQuotaMap("jt/ns"); });
    t("removeQuota", () -> { ad.namespaces().removeBacklogQuota("jt/ns"); return ad.namespaces().getBacklogQuotaMap("jt/ns"); });
    t("maxProducers", () -> { ad.namespaces().setMaxProducersPerTopic("jt/ns", 5); return ad.namespaces().getMaxProducersPerTopic("jt/ns"); });
    t("autoTopic", () -> { ad.namespaces().setAutoTopicCreation("jt/ns", AutoTopicCreationOverride.builder().allowAutoTopicCreation(true).topicType("partitioned").defaultNumPartitions(3).build()); return ad.namespaces().getAutoTopicCreation("jt/ns"); });
    t("removeAutoTopic", () -> { ad.namespaces().removeAutoTopicCreation("jt/ns"); return ad.namespaces().getAutoTopicCreation("jt/ns"); });
    t("autoSub", () -> { ad.namespaces().setAutoSubscriptionCreation("jt/ns", AutoSubscriptionCreationOverride.builder().allowAutoSubscriptionCreation(true).build()); return ad.namespaces().getAutoSubscriptionCreation("jt/ns"); });
    t("persistence", () -> { ad.namespaces().setPersistence("jt/ns", new PersistencePolicies(1,1,1,0.0)); return ad.namespaces().getPersistence("jt/ns"); });
    t("compat", () -> { ad.namespaces().setSchemaCompatibilityStrategy("jt/ns", SchemaCompatibilityStrategy.FULL); return ad.namespaces().getSchemaCompatibilityStrategy("jt/ns"); });
    t("schemaValid", () -> { ad.namespaces().setSchemaValidationEnforced("jt/ns", false); return ad.namespaces().getSchemaValidationEnforced("jt/ns"); });
    t("autoUpdate", () -> { ad.namespaces().setIsAllowAutoUpdateSchema("jt/ns", true); return ad.namespaces().getIsAllowAutoUpdateSchema("jt/ns"); });
    t("subTypes", () -> { ad.namespaces().setSubscriptionTypesEnabled("jt/ns", Set.of(SubscriptionType.Shared, SubscriptionType.Exclusive, SubscriptionType.Failover, SubscriptionType.Key_Shared)); return ad.namespaces().getSubscriptionTypesEnabled("jt/ns"); });
    t("encryption", () -> { ad.namespaces().setEncryptionRequiredStatus("jt/ns", false); return ad.namespaces().getEncryptionRequiredStatus("jt/ns"); });
    t("delayed", () -> { ad.namespaces().setDelayedDeliveryMessages("jt/ns", DelayedDeliveryPolicies.builder().active(true).tickTime(1000).build()); return ad.namespaces().getDelayedDelivery("jt/ns"); });
    t("unacked", () -> { ad.namespaces().setMaxUnackedMessagesPerConsumer("jt/ns", 500); return ad.namespaces().getMaxUnackedMessagesPerConsumer("jt/ns"); });
    t("grant", () -> { ad.namespaces().grantPermissionOnNamespace("jt/ns", "r", EnumSet.allOf(AuthAction.class)); return ad.namespaces().getPermissions("jt/ns"); });
    t("revoke", () -> { ad.namespaces().revokePermissionsOnNamespace("jt/ns", "r"); return ad.namespaces().getPermissions("jt/ns"); });
    t("props", () -> { ad.namespaces().setProperty("jt/ns", "k", "v"); return ad.namespaces().getProperties("jt/ns"); });
    t("replication", () -> { ad.namespaces().setNamespaceReplicationClusters("jt/ns", Set.of("standalone")); return ad.namespaces().getNamespaceReplicationClusters("jt/ns"); });
    t("bundles", () -> ad.namespaces().getBundles("jt/ns"));
    String tp = "persistent://jt/ns/t", pt = "persistent://jt/ns/pt";
    t("createNonPartitioned", () -> { ad.topics().createNonPartitionedTopic(tp); return null; });
    t("createPartitioned", () -> { ad.topics().createPartitionedTopic(pt, 2); return null; });
    t("createPartitioned props", () -> { ad.topics().createPartitionedTopic("persistent://jt/ns/pp", 2, Map.of("a","b")); return ad.topics().getProperties("persistent://jt/ns/pp"); });
    t("updatePartitioned", () -> { ad.topics().updatePartitionedTopic(pt, 3); return ad.topics().getPartitionedTopicMetadata(pt); });
    t("list", () -> ad.topics().getList("jt/ns"));
    t("plist", () -> ad.topics().getPartitionedTopicList("jt/ns"));
    t("ns topics", () -> ad.namespaces().getTopics("jt/ns"));
    t("lookup", () -> ad.lookups().lookupTopic(tp));
    t("plookup", () -> ad.lookups().lookupPartitionedTopic(pt));
    t("bundleRange", () -> ad.lookups().getBundleRange(tp));
    t("createSub", () -> { ad.topics().createSubscription(tp, "s", MessageId.earliest); return ad.topics().getSubscriptions(tp); });
    t("createSub props", () -> { ad.topics().createSubscription(tp, "sp", MessageId.latest, false, Map.of("x","y")); return ad.topics().getSubscriptionProperties(tp, "sp"); });
    Producer<byte[]> p = c.newProducer().topic(tp).enableBatching(false).create();
    MessageId[] ids = new MessageId[10];
    for (int i = 0; i < 10; i++) ids[i] = p.newMessage().key("k"+i%2).property("a","b").value(("m"+i).getBytes()).send();
    t("stats", () -> ad.topics().getStats(tp).getSubscriptions().get("s").getMsgBacklog());
    t("stats backlog", () -> ad.topics().getStats(tp, true, true, true));
    t("internalStats", () -> ad.topics().getInternalStats(tp).ledgers);
    t("internalInfo", () -> ad.topics().getInternalInfo(tp));
    t("partitionedStats", () -> ad.topics().getPartitionedStats(pt, true).getPartitions().keySet());
    t("partitionedInternal", () -> ad.topics().getPartitionedInternalStats(pt));
    t("lastMessageId", () -> ad.topics().getLastMessageId(tp));
    t("peek", () -> { StringBuilder b = new StringBuilder(); for (Message<byte[]> m : ad.topics().peekMessages(tp, "s", 3)) b.append(new String(m.getData())).append(m.getKey()).append(m.getProperties()).append(m.getMessageId()).append(' '); return b; });
    t("getMessageById", () -> new String(ad.topics().getMessageById(tp, ((MessageIdAdv) ids[3]).getLedgerId(), ((MessageIdAdv) ids[3]).getEntryId()).getData()));
    t("examine", () -> new String(ad.topics().examineMessage(tp, "earliest", 2).getData()));
    t("idByTime", () -> ad.topics().getMessageIdByTimestamp(tp, 0));
    t("skip", () -> { ad.topics().skipMessages(tp, "s", 3); return ad.topics().getStats(tp).getSubscriptions().get("s").getMsgBacklog(); });
    t("resetId", () -> { ad.topics().resetCursor(tp, "s", ids[5]); return ad.topics().getStats(tp).getSubscriptions().get("s").getMsgBacklog(); });
    t("resetId excl", () -> { ad.topics().resetCursor(tp, "s", ids[5], true); return ad.topics().getStats(tp).getSubscriptions().get("s").getMsgBacklog(); });
    t("resetTime", () -> { ad.topics().resetCursor(tp, "s", 0); return ad.topics().getStats(tp).getSubscriptions().get("s").getMsgBacklog(); });
    t("expire", () -> { ad.topics().expireMessages(tp, "s", 1000); return null; });
    t("expire id", () -> { ad.topics().expireMessages(tp, "s", ids[2], false); return ad.topics().getStats(tp).getSubscriptions().get("s").getMsgBacklog(); });
    t("expireAll", () -> { ad.topics().expireMessagesForAllSubscriptions(tp, 1000); return null; });
    t("analyze", () -> ad.topics().analyzeSubscriptionBacklog(tp, "s", Optional.empty()));
    t("backlogSize", () -> ad.topics().getBacklogSizeByMessageId(tp, ids[5]));
    t("skipAll", () -> { ad.topics().skipAllMessages(tp, "s"); return null; });
    t("updProps sub", () -> { ad.topics().updateSubscriptionProperties(tp, "s", Map.of("q","r")); return ad.topics().getSubscriptionProperties(tp, "s"); });
    t("topic props", () -> { ad.topics().updateProperties(tp, Map.of("q","r")); ad.topics().removeProperties(tp, "q"); return ad.topics().getProperties(tp); });
    t("tp retention", () -> { ad.topicPolicies().setRetention(tp, new RetentionPolicies(5,5)); return ad.topicPolicies().getRetention(tp, true); });
    t("tp rmretention", () -> { ad.topicPolicies().removeRetention(tp); return ad.topicPolicies().getRetention(tp); });
    t("tp ttl", () -> { ad.topicPolicies().setMessageTTL(tp, 10); return ad.topicPolicies().getMessageTTL(tp); });
    t("tp maxProducers", () -> { ad.topicPolicies().setMaxProducers(tp, 10); return ad.topicPolicies().getMaxProducers(tp); });
    t("tp maxConsumers", () -> { ad.topicPolicies().setMaxConsumers(tp, 10); return ad.topicPolicies().getMaxConsumers(tp); });
    t("tp maxCps", () -> { ad.topicPolicies().setMaxConsumersPerSubscription(tp, 10); return ad.topicPolicies().getMaxConsumersPerSubscription(tp); });
    t("tp maxSubs", () -> { ad.topicPolicies().setMaxSubscriptionsPerTopic(tp, 10); return ad.topicPolicies().getMaxSubscriptionsPerTopic(tp); });
    t("tp dedup", () -> { ad.topicPolicies().setDeduplicationStatus(tp, true); return ad.topicPolicies().getDeduplicationStatus(tp); });
    t("tp delayed", () -> { ad.topicPolicies().setDelayedDeliveryPolicy(tp, DelayedDeliveryPolicies.builder().active(true).tickTime(1000).build()); return ad.topicPolicies().getDelayedDeliveryPolicy(tp); });
    t("tp quota", () -> { ad.topicPolicies().setBacklogQuota(tp, BacklogQuota.builder().limitTime(100).retentionPolicy(BacklogQuota.RetentionPolicy.producer_exception).build(), BacklogQuota.BacklogQuotaType.message_age); return ad.topicPolicies().getBacklogQuotaMap(tp); });
    t("tp rmquota", () -> { ad.topicPolicies().removeBacklogQuota(tp, BacklogQuota.BacklogQuotaType.message_age); return null; });
    t("tp unackedC", () -> { ad.topicPolicies().setMaxUnackedMessagesOnConsumer(tp, 10); return ad.topicPolicies().getMaxUnackedMessagesOnConsumer(tp); });
    t("tp unackedS", () -> { ad.topicPolicies().setMaxUnackedMessagesOnSubscription(tp, 10); return ad.topicPolicies().getMaxUnackedMessagesOnSubscription(tp); });
    t("tp persistence", () -> { ad.topicPolicies().setPersistence(tp, new PersistencePolicies(1,1,1,0)); return ad.topicPolicies().getPersistence(tp); });
    t("tp subtypes", () -> { ad.topicPolicies().setSubscriptionTypesEnabled(tp, Set.of(SubscriptionType.Shared)); Object o = ad.topicPolicies().getSubscriptionTypesEnabled(tp); ad.topicPolicies().removeSubscriptionTypesEnabled(tp); return o; });
    t("tp maxMessageSize", () -> { ad.topicPolicies().setMaxMessageSize(tp, 1000); return ad.topicPolicies().getMaxMessageSize(tp); });
    t("tp compat", () -> { ad.topicPolicies().setSchemaCompatibilityStrategy(tp, SchemaCompatibilityStrategy.BACKWARD); return ad.topicPolicies().getSchemaCompatibilityStrategy(tp, false); });
    t("tp autosub", () -> { ad.topicPolicies().setAutoSubscriptionCreation(tp, AutoSubscriptionCreationOverride.builder().allowAutoSubscriptionCreation(true).build()); return ad.topicPolicies().getAutoSubscriptionCreation(tp, false); });
    t("tp dispatchRate get", () -> ad.topicPolicies().getDispatchRate(tp));
    t("tp dispatchRate set (refused)", () -> { ad.topicPolicies().setDispatchRate(tp, DispatchRate.builder().dispatchThrottlingRateInMsg(5).build()); return null; });
    t("tp compactionThreshold get", () -> ad.topicPolicies().getCompactionThreshold(tp));
    t("compact", () -> { ad.topics().triggerCompaction(tp); Thread.sleep(500); return ad.topics().compactionStatus(tp); });
    t("unload", () -> { ad.topics().unload(tp); return null; });
    t("ns unload", () -> { ad.namespaces().unload("jt/ns"); return null; });
    t("schema", () -> ad.schemas().getAllSchemas(tp));
    t("deleteSub", () -> { ad.topics().deleteSubscription(tp, "s"); return ad.topics().getSubscriptions(tp); });
    t("terminate", () -> ad.topics().terminateTopic(tp));
    t("terminateP", () -> ad.topics().terminatePartitionedTopic(pt));
    t("truncate", () -> { ad.topics().truncate(tp); return null; });
    p.close();
    t("delete busy?", () -> { ad.topics().delete(tp); return null; });
    t("deleteP", () -> { ad.topics().deletePartitionedTopic(pt); return null; });
    t("deleteP2", () -> { ad.topics().deletePartitionedTopic("persistent://jt/ns/pp", true); return null; });
    t("deleteBundle", () -> { ad.namespaces().deleteNamespaceBundle("jt/ns", "0x00000000_0xffffffff"); return null; });
    t("deleteNs", () -> { ad.namespaces().deleteNamespace("jt/ns"); return null; });
    t("deleteNs force", () -> { for (String n : ad.namespaces().getNamespaces("jt")) ad.namespaces().deleteNamespace(n, true); return null; });
    t("deleteTenant", () -> { ad.tenants().deleteTenant("jt"); return null; });
    t("notfound", () -> ad.topics().getStats("persistent://public/default/nope"));
    c.close(); ad.close();
  }
}
