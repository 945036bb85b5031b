import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.pulsar.client.api.*;
import org.apache.pulsar.client.api.transaction.Transaction;

/**
 * Pulsar's own Java client as a load, the same for every server.
 *
 *   PulsarLoad produce ADDRESS TOPIC --size 100 --outstanding 1000 --batching 1 --warmup 4 --seconds 4
 *   PulsarLoad through ADDRESS TOPIC --size 100 --rate 1000 --warmup 4 --seconds 4
 *   PulsarLoad topics  ADDRESS PREFIX --count 500
 *   PulsarLoad commits ADDRESS TOPIC --open 10 --messages 1 --size 100 --warmup 4 --seconds 4
 *   PulsarLoad shared  ADDRESS TOPIC --messages 100000 --size 100 --consumers 4
 *   PulsarLoad count   ADDRESS TOPIC --wanted 100000
 *
 * `produce` keeps so many messages on their way (1: send and wait). `through` sends at a steady pace
 * and takes the time from the call to the consumer's. `topics` makes a producer on each of many new
 * topics, one after the other. `commits` has so many transactions open at once, each with a producer
 * of its own and so many messages, and takes the time of a commit. `shared` fills a topic, and so many
 * consumers of one Shared subscription take and acknowledge the messages one by one. `count` reads from the beginning.
 * Prints "begin" and "end" around what is measured, then one line of JSON.
 */
public class PulsarLoad extends Load {
    public static void main(String[] words) throws Exception {
        read(words);
        PulsarClient client = PulsarClient.builder().serviceUrl("pulsar://" + words[1])
                .enableTransaction(words[0].equals("commits"))
                .statsInterval(0, TimeUnit.SECONDS).memoryLimit(0, SizeUnit.BYTES).build();
        switch (words[0]) {
            case "produce": produce(client, words[2]); break;
            case "through": through(client, words[2]); break;
            case "topics": topics(client, words[2]); break;
            case "commits": commits(client, words[2]); break;
            case "shared": shared(client, words[2]); break;
            case "count": count(client, words[2]); break;
            default: throw new IllegalArgumentException(words[0]);
        }
        Runtime.getRuntime().halt(0); // closing waits for threads; there is nothing left to wait for
    }

    static ProducerBuilder<byte[]> producer(PulsarClient client, String topic) {
        return client.newProducer().topic(topic).sendTimeout(0, TimeUnit.SECONDS)
                .maxPendingMessages(100_000).blockIfQueueFull(true)
                .enableBatching(option("batching", 0) != 0)
                .batchingMaxPublishDelay(1, TimeUnit.MILLISECONDS)
                .batchingMaxMessages(1000).batchingMaxBytes(128 * 1024);
    }

    static void produce(PulsarClient client, String topic) throws Exception {
        Producer<byte[]> producer = producer(client, topic).create();
        Semaphore room = new Semaphore((int) option("outstanding", 1000));
        Totals totals = new Totals();
        byte[] payload = payload();
        long end = System.nanoTime() + (long) (option("warmup", 4) * 1e9);
        sendUntil(producer, room, totals, payload, end);
        say("begin");
        totals.begin();
        long began = System.nanoTime();
        sendUntil(producer, room, totals, payload, began + (long) (option("seconds", 4) * 1e9));
        totals.counting = false;
        double seconds = (System.nanoTime() - began) / 1e9;
        say("end");
        producer.flush();
        room.acquire((int) option("outstanding", 1000));
        totals.print(seconds, payload.length);
    }

    static void sendUntil(Producer<byte[]> producer, Semaphore room, Totals totals, byte[] payload, long end)
            throws Exception {
        boolean alone = option("outstanding", 1000) == 1;
        while (System.nanoTime() < end) {
            long began = System.nanoTime();
            if (alone) {
                producer.send(payload);
                totals.add(System.nanoTime() - began);
                continue;
            }
            room.acquire();
            producer.sendAsync(payload).whenComplete((id, error) -> {
                if (error != null) {
                    totals.errors.incrementAndGet();
                } else {
                    totals.add(System.nanoTime() - began);
                }
                room.release();
            });
        }
    }

    static void through(PulsarClient client, String topic) throws Exception {
        Totals totals = new Totals();
        Consumer<byte[]> consumer = client.newConsumer().topic(topic).subscriptionName("bench")
                .messageListener((from, message) -> {
                    byte[] data = message.getData();
                    totals.add(System.nanoTime() - java.nio.ByteBuffer.wrap(data).getLong());
                    from.acknowledgeAsync(message);
                }).subscribe();
        Producer<byte[]> producer = producer(client, topic).create();
        long gap = (long) (1e9 / option("rate", 1000));
        byte[] payload = payload();
        long next = System.nanoTime();
        long begin = next + (long) (option("warmup", 4) * 1e9);
        long end = begin + (long) (option("seconds", 4) * 1e9);
        long sent = 0;
        for (; next < end; next += gap) {
            if (!totals.counting && next >= begin) {
                say("begin");
                totals.begin();
            }
            while (System.nanoTime() < next) {
                LockSupport.parkNanos(Math.max(1, next - System.nanoTime()));
            }
            // the time as it should have been: waiting counts
            producer.sendAsync(numbered(payload, next)).exceptionally(error -> {
                totals.errors.incrementAndGet();
                return null;
            });
            sent++;
        }
        totals.counting = false;
        say("end");
        producer.flush();
        long deadline = System.nanoTime() + 20_000_000_000L;
        while (totals.inAll.get() < sent && System.nanoTime() < deadline) {
            Thread.sleep(5);
        }
        totals.errors.addAndGet(sent - totals.inAll.get());
        totals.print(option("seconds", 4), payload.length);
    }

    static void topics(PulsarClient client, String prefix) throws Exception {
        int count = (int) option("count", 500);
        for (int i = 0; i < 50; i++) {
            producer(client, prefix + "-warm-" + i).create();
        }
        List<Producer<byte[]>> made = new ArrayList<>();
        say("begin");
        long began = System.nanoTime();
        for (int i = 0; i < count; i++) {
            made.add(producer(client, prefix + "-" + i).create());
        }
        double seconds = (System.nanoTime() - began) / 1e9;
        say("end");
        say(String.format("{\"messages\": %d, \"bytes\": %d, \"errors\": 0, \"seconds\": %.4f, "
                + "\"topics_s\": %.4f}", count, count, seconds, seconds));
    }

    static void commits(PulsarClient client, String topic) throws Exception {
        int open = (int) option("open", 1);
        Totals totals = new Totals();
        byte[] payload = payload();
        long begin = System.nanoTime() + (long) (option("warmup", 4) * 1e9);
        long end = begin + (long) (option("seconds", 4) * 1e9);
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < open; i++) {
            Producer<byte[]> producer = producer(client, topic).create();
            threads.add(new Thread(() -> commitUntil(client, producer, totals, payload, end)));
        }
        for (Thread thread : threads) {
            thread.start();
        }
        Thread.sleep(Math.max(0, (begin - System.nanoTime()) / 1_000_000));
        say("begin");
        totals.begin();
        long began = System.nanoTime();
        Thread.sleep(Math.max(0, (end - System.nanoTime()) / 1_000_000));
        totals.counting = false;
        double seconds = (System.nanoTime() - began) / 1e9;
        say("end");
        for (Thread thread : threads) {
            thread.join();
        }
        totals.print(seconds, payload.length);
    }

    static void commitUntil(PulsarClient client, Producer<byte[]> producer, Totals totals, byte[] payload,
            long end) {
        try {
            while (System.nanoTime() < end) {
                Transaction transaction = client.newTransaction()
                        .withTransactionTimeout(1, TimeUnit.MINUTES).build().get();
                for (int i = 0; i < (int) option("messages", 1); i++) {
                    producer.newMessage(transaction).value(payload).sendAsync();
                }
                long began = System.nanoTime();
                transaction.commit().get();
                totals.add(System.nanoTime() - began);
            }
        } catch (Exception error) {
            totals.errors.incrementAndGet();
            totals.refuse(error.toString());
        }
    }

    static void shared(PulsarClient client, String topic) throws Exception {
        ConsumerBuilder<byte[]> subscription = client.newConsumer().topic(topic).subscriptionName("bench")
                .subscriptionType(SubscriptionType.Shared).receiverQueueSize(1000);
        subscription.clone().subscribe().close();
        Drain drain = new Drain();
        byte[] payload = payload();
        Producer<byte[]> producer = producer(client, topic).enableBatching(true).create();
        for (long i = 0; i < drain.wanted; i++) {
            producer.sendAsync(payload);
        }
        producer.flush();
        for (int i = 0; i < (int) option("consumers", 4); i++) {
            subscription.clone().messageListener((from, message) -> {
                from.acknowledgeAsync(message);
                drain.add(1);
            }).subscribe();
        }
        drain.await();
    }

    static void count(PulsarClient client, String topic) throws Exception {
        long wanted = (long) option("wanted", 1);
        AtomicLong seen = new AtomicLong();
        CountDownLatch all = new CountDownLatch(1);
        say("begin");
        client.newReader().topic(topic).startMessageId(MessageId.earliest).receiverQueueSize(5000)
                .readerListener((reader, message) -> {
                    if (seen.incrementAndGet() >= wanted) {
                        all.countDown();
                    }
                }).create();
        all.await((long) option("seconds", 60), TimeUnit.SECONDS);
        say("end");
        say(String.format("{\"messages\": %d, \"bytes\": 1, \"errors\": %d, \"seconds\": 1.0}", seen.get(),
                seen.get() < wanted ? 1 : 0));
    }
}
