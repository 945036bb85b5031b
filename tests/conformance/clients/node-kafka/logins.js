// Logins by kafkajs: each line of standard input is an attempt in JSON, which is answered by one
// line: "ok" after one record was acknowledged, "refused" for credentials that the server did not
// accept, or the text of another error.
const { readFileSync } = require("fs");
const readline = require("readline");
const { Kafka, logLevel } = require("kafkajs");

function tls({ authority, certificate, key }) {
  if (!authority) return false;
  const own = certificate ? { cert: readFileSync(certificate), key: readFileSync(key) } : {};
  return { ca: [readFileSync(authority)], ...own };
}

function sasl({ mechanism, user, password, token }) {
  if (!mechanism) return undefined;
  if (mechanism === "OAUTHBEARER") {
    return { mechanism: "oauthbearer", oauthBearerProvider: async () => ({ value: token }) };
  }
  return { mechanism: mechanism.toLowerCase(), username: user, password };
}

async function login(attempt) {
  const kafka = new Kafka({
    brokers: [attempt.address], ssl: tls(attempt), sasl: sasl(attempt),
    logLevel: logLevel.NOTHING, retry: { retries: 0 },
  });
  const producer = kafka.producer();
  try {
    await producer.connect();
    await producer.send({ topic: attempt.topic, messages: [{ value: "x" }] });
    return "ok";
  } catch (error) {
    const causes = [error, error.cause, error.originalError].filter(Boolean);
    const refused = causes.some((each) => each.name === "KafkaJSSASLAuthenticationError");
    return refused ? "refused" : `${error.name} ${error.message}`.replaceAll("\n", " ");
  } finally {
    await producer.disconnect();
  }
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    console.log(await login(JSON.parse(line)));
  }
}
main();
