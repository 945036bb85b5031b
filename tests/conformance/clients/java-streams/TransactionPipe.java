import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Writes what it reads to the same partition of another topic, with its positions, in transactions, as the
 * documentation of KafkaProducer shows it: what can be aborted is aborted, and read again.
 *
 * TransactionPipe INPUT OUTPUT threads=N hold.ms=N name=value... ; each thread is a member of the group with
 * a transactional id of its own, and keeps each transaction open for that long. Prints "aborted X" and
 * "failed X" as it happens, "closed COMMITS" when its input has ended.
 */
public final class TransactionPipe {
    private static final PrintStream OUT = new PrintStream(System.out, true);
    private static volatile boolean stopping;

    private final String input;
    private final String output;
    private final long holdMs;
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final KafkaProducer<byte[], byte[]> producer;
    private int commits;

    private TransactionPipe(String input, String output, Properties settings, int number) {
        this.input = input;
        this.output = output;
        holdMs = Long.parseLong(settings.getProperty("hold.ms"));
        Properties reading = with(settings, "isolation.level", "read_committed");
        reading.put("enable.auto.commit", "false");
        reading.put("auto.offset.reset", "earliest");
        consumer = new KafkaConsumer<>(reading, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        String name = settings.getProperty("group.id") + "-" + number;
        Properties writing = with(settings, "transactional.id", name);
        producer = new KafkaProducer<>(writing, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static Properties with(Properties settings, String name, String value) {
        Properties more = new Properties();
        more.putAll(settings);
        more.put(name, value);
        return more;
    }

    private void run() {
        try {
            producer.initTransactions();
            consumer.subscribe(List.of(input));
            while (!stopping) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(200));
                if (!records.isEmpty()) {
                    pass(records);
                }
            }
            consumer.close();
            producer.close();
        } catch (Exception failure) {
            OUT.println("failed " + failure.toString().replace('\n', ' '));
        }
    }

    private void pass(ConsumerRecords<byte[], byte[]> records) throws InterruptedException {
        try {
            producer.beginTransaction();
            Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();
            for (ConsumerRecord<byte[], byte[]> each : records) {
                producer.send(new ProducerRecord<>(output, each.partition(), each.key(), each.value()));
                next.put(new TopicPartition(each.topic(), each.partition()), new OffsetAndMetadata(each.offset() + 1));
            }
            producer.sendOffsetsToTransaction(next, consumer.groupMetadata());
            Thread.sleep(holdMs);
            producer.commitTransaction();
            commits++;
        } catch (ProducerFencedException | InvalidProducerEpochException | AuthorizationException fatal) {
            throw fatal;
        } catch (KafkaException problem) {
            OUT.println("aborted " + problem.toString().replace('\n', ' '));
            producer.abortTransaction();
            readAgain();
        }
    }

    private void readAgain() {
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
        committed.forEach((partition, position) -> {
            if (position == null) {
                consumer.seekToBeginning(List.of(partition));
            } else {
                consumer.seek(partition, position);
            }
        });
    }

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        for (String each : Arrays.asList(arguments).subList(2, arguments.length)) {
            int at = each.indexOf('=');
            settings.put(each.substring(0, at), each.substring(at + 1));
        }
        List<TransactionPipe> pipes = new ArrayList<>();
        List<Thread> threads = new ArrayList<>();
        for (int number = 0; number < Integer.parseInt(settings.getProperty("threads")); number++) {
            TransactionPipe pipe = new TransactionPipe(arguments[0], arguments[1], settings, number);
            pipes.add(pipe);
            threads.add(new Thread(pipe::run));
        }
        threads.forEach(Thread::start);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        while (in.readLine() != null) { }
        stopping = true;
        for (Thread each : threads) {
            each.join();
        }
        OUT.println("closed " + pipes.stream().mapToInt(each -> each.commits).sum());
    }
}
