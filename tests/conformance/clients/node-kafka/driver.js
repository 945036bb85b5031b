// kafkajs behind lines of JSON: {"id": 7, "do": "write", ...} on standard input is answered by
// {"id": 7, "got": ...} or {"id": 7, "error": "..."} on standard output, in any order. Verbs and
// their words: driven.py beside this folder.
const readline = require("readline");
const { CompressionCodecs, CompressionTypes, Kafka, Partitioners, logLevel } =
  require("kafkajs");
const administer = require("./admin.js");
const lz4 = require("lz4js");
const xxh32 = require("lz4js/xxh32.js");
const snappy = require("snappyjs");
const zstd = new Promise((ready) => require("zstd-codec").ZstdCodec.run(ready));

// --- codecs: kafkajs has gzip alone ---------------------------------------------------------------

const XERIAL = Buffer.from([130, 83, 78, 65, 80, 80, 89, 0]);

/** What Java writes is blocks with their sizes, after a head of 16 bytes. */
function unsnap(data) {
  if (!data.subarray(0, XERIAL.length).equals(XERIAL)) {
    return Buffer.from(snappy.uncompress(data));
  }
  const blocks = [];
  for (let at = 16; at < data.length; ) {
    const size = data.readInt32BE(at);
    blocks.push(Buffer.from(snappy.uncompress(data.subarray(at + 4, at + 4 + size))));
    at += 4 + size;
  }
  return Buffer.concat(blocks);
}

/** It leaves out that blocks stand alone, which Kafka insists on; one block is all we ever write. */
function lz4Frame(data) {
  const frame = Buffer.from(lz4.compress(data));
  frame[4] |= 0x20;
  frame[6] = (xxh32.hash(0, frame, 4, 2) >> 8) & 0xff;
  return frame;
}

CompressionCodecs[CompressionTypes.Snappy] = () => ({
  compress: async (encoder) => Buffer.from(snappy.compress(encoder.buffer)),
  decompress: async (data) => unsnap(data),
});
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async (encoder) => lz4Frame(encoder.buffer),
  decompress: async (data) => Buffer.from(lz4.decompress(data)),
});
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder) => Buffer.from(new (await zstd).Simple().compress(encoder.buffer)),
  decompress: async (data) => Buffer.from(new (await zstd).Streaming().decompress(data)),
});

const CODECS = {
  none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4, zstd: CompressionTypes.ZSTD,
};
const ACKS = { 0: 0, 1: 1, all: -1 };

// --- words --------------------------------------------------------------------------------------

const bytes = (token) => (token == null ? null : Buffer.from(token, "base64"));
const token = (value) => (value == null ? null : Buffer.from(value).toString("base64"));
const connection = (r) =>
  new Kafka({
    clientId: r.client || "driven", brokers: [r.address], logLevel: logLevel.NOTHING,
    retry: { initialRetryTime: 50, maxRetryTime: 1000 },
  });

/** A name that comes again has a list of values: the order between names is lost. */
function asHeaders(pairs) {
  const headers = {};
  for (const [name, value] of pairs || []) {
    (headers[name] ||= []).push(bytes(value));
  }
  for (const name of Object.keys(headers)) {
    if (headers[name].length === 1) headers[name] = headers[name][0];
  }
  return headers;
}

const asRead = (topic, partition, message) => ({
  topic, partition, offset: Number(message.offset), timestamp: Number(message.timestamp),
  key: token(message.key), value: token(message.value),
  headers: Object.entries(message.headers || {}).flatMap(([name, value]) =>
    (Array.isArray(value) ? value : [value]).map((each) => [name, token(each)])),
});

// --- writing --------------------------------------------------------------------------------------

/** What is sent at once becomes one batch, however large. */
function stretches(messages) {
  const made = [[]];
  let size = 0;
  for (const each of messages) {
    size += each.value?.length || 0;
    if (size > 900000 && made.at(-1).length) {
      made.push([]);
      size = each.value?.length || 0;
    }
    made.at(-1).push(each);
  }
  return made;
}

async function write(r) {
  const producer = connection(r).producer({
    allowAutoTopicCreation: true, createPartitioner: Partitioners.DefaultPartitioner,
    idempotent: r.idempotent || undefined, transactionalId: r.transaction || undefined,
    maxInFlightRequests: r.transaction ? 1 : undefined,
  });
  await producer.connect();
  try {
    const sender = r.transaction ? await producer.transaction() : producer;
    const messages = r.records.map((each) => ({
      key: bytes(each.key), value: bytes(each.value), headers: asHeaders(each.headers),
      partition: each.partition ?? undefined,
      timestamp: each.timestamp == null ? undefined : String(each.timestamp),
    }));
    const answers = [];
    for (const stretch of stretches(messages)) {
      const sent = await sender.send({
        topic: r.topic, acks: ACKS[r.acks], compression: CODECS[r.codec], messages: stretch,
      });
      answers.push(...(sent || []));
    }
    if (r.transaction) await (r.abort ? sender.abort() : sender.commit());
    return answers.map((each) => [each.partition, Number(each.baseOffset ?? -1)]);
  } finally {
    await producer.disconnect();
  }
}

// --- reading: kafkajs has groups alone --------------------------------------------------------------

const members = new Map();
let handles = 0;

class Member {
  constructor(r, more = {}) {
    this.reads = [];
    this.next = new Map(); // by topic and partition: what a commit says
    this.partitions = [];
    this.wanted = Infinity;
    this.consumer = connection(r).consumer({
      groupId: r.group, sessionTimeout: 6000, heartbeatInterval: 500, maxWaitTimeInMs: 200,
      rebalanceTimeout: 10000, metadataMaxAge: 1000, readUncommitted: !r.committed,
      retry: { initialRetryTime: 50, maxRetryTime: 1000 }, ...more,
    });
    const { GROUP_JOIN, REBALANCING, CRASH } = this.consumer.events;
    this.consumer.on(GROUP_JOIN, ({ payload }) => {
      this.partitions = Object.entries(payload.memberAssignment).flatMap(([topic, partitions]) =>
        partitions.map((each) => [topic, each]));
    });
    this.consumer.on(REBALANCING, () => (this.partitions = []));
    this.consumer.on(CRASH, ({ payload }) => {
      this.error = payload.error;
      this.done?.();
    });
  }

  async start(topics) {
    await this.consumer.connect();
    await this.consumer.subscribe({ topics, fromBeginning: true });
    await this.consumer.run({
      autoCommit: false,
      eachMessage: async ({ topic, partition, message }) => {
        if (this.reads.length >= this.wanted) return;
        this.reads.push(asRead(topic, partition, message));
        this.next.set(`${topic} ${partition}`, String(Number(message.offset) + 1));
        if (this.reads.length === this.wanted) this.done?.();
      },
    });
  }

  async commit() {
    await this.consumer.commitOffsets([...this.next].map(([place, offset]) => {
      const [topic, partition] = place.split(" ");
      return { topic, partition: Number(partition), offset };
    }));
  }
}

async function read(r) {
  const group = r.group || `reads-${r.topic}-${process.pid}-${++handles}`;
  const member = new Member({ ...r, group });
  member.wanted = r.count;
  const all = new Promise((done) => (member.done = done));
  await member.start([r.topic]);
  const late = new Promise((done) => setTimeout(done, 30000).unref());
  await Promise.race([all, late]);
  if (member.error) throw member.error;
  if (r.group) await member.commit();
  await member.consumer.disconnect();
  return member.reads;
}

async function join(r) {
  const member = new Member(r);
  await member.start(r.pattern ? [new RegExp(r.pattern)] : r.topics);
  members.set(++handles, member);
  return handles;
}

async function poll(r) {
  const member = members.get(r.of);
  if (!member.reads.length) await new Promise((done) => setTimeout(done, r.ms));
  if (member.error) throw member.error;
  return { reads: member.reads.splice(0), partitions: member.partitions };
}

/** Its errors hold those that they come from in four ways. */
const said = (error) => [
  `${error.type || error.name}: ${error.message}`,
  ...[error.cause, ...(error.errors || []), ...(error.partitions || error.groups || [])]
    .map((each) => each?.error || each).filter((each) => each instanceof Error).map(said),
].join("; ");

async function run(r) {
  switch (r.do) {
    case "write": return write(r);
    case "read": return read(r);
    case "join": return join(r);
    case "poll": return poll(r);
    case "commit": return members.get(r.of).commit();
    case "leave": return members.get(r.of).consumer.disconnect();
    default: return administer(connection, r);
  }
}

process.env.KAFKAJS_NO_PARTITIONER_WARNING = "1";
readline.createInterface({ input: process.stdin }).on("line", async (line) => {
  const request = JSON.parse(line);
  const answer = { id: request.id };
  try {
    answer.got = (await run(request)) ?? null;
  } catch (error) {
    answer.error = said(error);
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
}).on("close", () => process.exit(0));
