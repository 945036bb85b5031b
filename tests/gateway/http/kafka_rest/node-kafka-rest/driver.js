// Produces to a topic and lists it, by npm's kafka-rest; prints one line of JSON per answer.
const KafkaRest = require('kafka-rest');

const [, , url, name] = process.argv;
const kafka = new KafkaRest({url});
const topic = kafka.topic(name);

function show(what, error, answer) {
  console.log(JSON.stringify({what, error: error && String(error), answer}));
}

topic.produce('one', 'two', (error, sent) => {
  show('produced', error, sent && sent.offsets.map((each) => each.offset));
  topic.produce({key: 'k', value: 'v', partition: 0}, (error, sent) => {
    show('keyed', error, sent && sent.offsets.map((each) => each.offset));
    kafka.topics.list((error, topics) => {
      show('topics', error, topics && topics.map((each) => each.name).includes(name));
      topic.partitions.list((error, partitions) => {
        show('partitions', error, partitions && partitions.length);
        kafka.brokers.list((error, brokers) => {
          show('brokers', error, brokers && brokers.map((each) => each.id));
          kafka.topic('missing').get((error) => show('missing', error, null));
        });
      });
    });
  });
});
