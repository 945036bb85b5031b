// The verbs of an administrator, in kafkajs's words.
const { AssignerProtocol, ConfigResourceTypes, ConfigSource } = require("kafkajs");

const admins = new Map();

async function connected(connection, r) {
  if (!admins.has(r.address)) {
    const made = connection(r).admin();
    admins.set(r.address, made.connect().then(() => made));
  }
  return admins.get(r.address);
}

const byPartition = (told, offset) =>
  Object.fromEntries(told.map((each) => [each.partition, Number(each[offset])]));
const listed = (pairs) =>
  Object.entries(pairs).map(([partition, offset]) => ({
    partition: Number(partition), offset: String(offset),
  }));
const resource = (r) => ({ type: ConfigResourceTypes[r.resource.toUpperCase()], name: r.name });

async function entries(admin, r) {
  const { resources } = await admin.describeConfigs({
    resources: [resource(r)], includeSynonyms: false,
  });
  return resources[0].configEntries;
}

async function configs(admin, r) {
  return Object.fromEntries((await entries(admin, r)).map((each) => [each.configName, {
    value: each.configValue, read_only: each.readOnly, sensitive: each.isSensitive,
    default: each.configSource === ConfigSource.DEFAULT_CONFIG,
  }]));
}

/** The whole set at once: it has no other way. */
async function alter(admin, r) {
  const own = r.resource === "topic" ? ConfigSource.TOPIC_CONFIG : ConfigSource.DYNAMIC_BROKER_CONFIG;
  const set = {};
  for (const each of await entries(admin, r)) {
    if (each.configSource === own) set[each.configName] = each.configValue;
  }
  Object.assign(set, r.values);
  for (const name of r.without || []) delete set[name];
  await admin.alterConfigs({
    validateOnly: false,
    resources: [{
      ...resource(r), configEntries: Object.entries(set).map(([name, value]) => ({ name, value })),
    }],
  });
}

async function topics(admin, r) {
  switch (r.do) {
    case "topics": return admin.listTopics();
    case "partitions": {
      const { topics } = await admin.fetchTopicMetadata({ topics: [r.topic] });
      return topics[0].partitions.length;
    }
    case "create": {
      const configEntries = Object.entries(r.configs || {}).map(([name, value]) => ({ name, value }));
      const topic = {
        topic: r.topic, numPartitions: r.partitions, replicationFactor: 1, configEntries,
      };
      if (!(await admin.createTopics({ topics: [topic] }))) {
        throw new Error("createTopics said false: TOPIC_ALREADY_EXISTS");
      }
      return null;
    }
    case "delete": return admin.deleteTopics({ topics: [r.topic] });
    case "grow":
      await admin.createPartitions({ topicPartitions: [{ topic: r.topic, count: r.partitions }] });
      return null;
  }
}

async function offsets(admin, r) {
  if (r.at === "earliest" || r.at === "latest") {
    const told = await admin.fetchTopicOffsets(r.topic);
    return byPartition(told, r.at === "earliest" ? "low" : "high");
  }
  return byPartition(await admin.fetchTopicOffsetsByTimestamp(r.topic, Number(r.at)), "offset");
}

/** It tells no low watermarks: those are asked for; and has to have asked of a topic before. */
async function deleteRecords(admin, r) {
  await admin.fetchTopicOffsets(r.topic);
  await admin.deleteTopicRecords({ topic: r.topic, partitions: listed(r.before) });
  return byPartition(await admin.fetchTopicOffsets(r.topic), "low");
}

async function cluster(admin) {
  const told = await admin.describeCluster();
  return {
    id: told.clusterId, controller: told.controller,
    nodes: told.brokers.map((each) => [each.nodeId, each.host, each.port]),
  };
}

async function describeGroup(admin, r) {
  const [told] = (await admin.describeGroups([r.group])).groups;
  if (told.errorCode) throw new Error(`error ${told.errorCode}`);
  return {
    state: told.state, protocol: told.protocol,
    members: told.members.map((each) => {
      const assigned = each.memberAssignment.length
        ? AssignerProtocol.MemberAssignment.decode(each.memberAssignment).assignment : {};
      return {
        id: each.memberId, client: each.clientId, host: each.clientHost,
        partitions: Object.entries(assigned).flatMap(([topic, partitions]) =>
          partitions.map((partition) => [topic, partition])),
      };
    }),
  };
}

async function groups(admin, r) {
  switch (r.do) {
    case "groups": {
      const { groups } = await admin.listGroups();
      return Object.fromEntries(groups.map((each) => [each.groupId, null]));
    }
    case "describe_group": return describeGroup(admin, r);
    case "group_offsets": {
      const told = await admin.fetchOffsets({ groupId: r.group });
      return Object.fromEntries(told.map((each) => [each.topic, byPartition(each.partitions, "offset")]));
    }
    case "delete_group":
      await admin.deleteGroups([r.group]);
      return null;
  }
}

async function reassignments(admin, r) {
  if (r.do === "reassign") {
    const partitionAssignment = [{ partition: r.partition, replicas: r.nodes }];
    await admin.alterPartitionReassignments({ topics: [{ topic: r.topic, partitionAssignment }] });
    return null;
  }
  const told = await admin.listPartitionReassignments({ topics: null });
  return Object.fromEntries(told.topics.flatMap((topic) =>
    topic.partitions.map((each) => [`${topic.topic || topic.name}-${each.partition}`, each.replicas])));
}

module.exports = async function administer(connection, r) {
  const admin = await connected(connection, r);
  switch (r.do) {
    case "topics": case "partitions": case "create": case "delete": case "grow":
      return topics(admin, r);
    case "configs": return configs(admin, r);
    case "alter": return alter(admin, r);
    case "offsets": return offsets(admin, r);
    case "delete_records": return deleteRecords(admin, r);
    case "cluster": return cluster(admin);
    case "groups": case "describe_group": case "group_offsets": case "delete_group":
      return groups(admin, r);
    case "reassign": case "reassignments": return reassignments(admin, r);
  }
  throw new Error(`unknown verb ${r.do}`);
};
