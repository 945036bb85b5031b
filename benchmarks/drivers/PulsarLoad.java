import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.pulsar.client.api.*;

/**
 * Pulsar's own Java client as a load, the same for every server.
 *
 *   PulsarLoad produce ADDRESS TOPIC --size 100 --outstanding 1000 --batching 1 --warmup 4 --seconds 4
 *   PulsarLoad through ADDRESS TOPIC --size 100 --rate 1000 --warmup 4 --seconds 4
 *   PulsarLoad topics  ADDRESS PREFIX --count 500
 *   PulsarLoad count   ADDRESS TOPIC --wanted 100000
 *
 * `produce` keeps so many messages on their way (1: send and wait). `through` sends at a steady pace
 * and takes the time from the call to the consumer's. `topics` makes a producer on each of many new
 * topics, one after the other. `count` reads from the beginning. Prints "begin" and "end" around what
 * is measured, then one line of JSON.
 */
public class PulsarLoad {
    static final Map<String, Double> OPTIONS = new HashMap<>();
    static final int LATENCIES = 4_000_000;

    public static void main(String[] words) throws Exception {
        for (int i = 3; i + 1 < words.length; i += 2) {
            OPTIONS.put(words[i].substring(2), Double.parseDouble(words[i + 1]));
        }
        PulsarClient client = PulsarClient.builder().serviceUrl("pulsar://" + words[1])
                .statsInterval(0, TimeUnit.SECONDS).memoryLimit(0, SizeUnit.BYTES).build();
        switch (words[0]) {
            case "produce": produce(client, words[2]); break;
            case "through": through(client, words[2]); break;
            case "topics": topics(client, words[2]); break;
            case "count": count(client, words[2]); break;
            default: throw new IllegalArgumentException(words[0]);
        }
        Runtime.getRuntime().halt(0); // closing waits for threads; there is nothing left to wait for
    }

    static double option(String name, double otherwise) {
        return OPTIONS.getOrDefault(name, otherwise);
    }

    static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    static ProducerBuilder<byte[]> producer(PulsarClient client, String topic) {
        return client.newProducer().topic(topic).sendTimeout(0, TimeUnit.SECONDS)
                .maxPendingMessages(100_000).blockIfQueueFull(true)
                .enableBatching(option("batching", 0) != 0)
                .batchingMaxPublishDelay(1, TimeUnit.MILLISECONDS)
                .batchingMaxMessages(1000).batchingMaxBytes(128 * 1024);
    }

    /** What was acked while it was measured, and how long that took, in nanoseconds. */
    static final class Totals {
        final long[] latencies = new long[LATENCIES];
        final AtomicLong kept = new AtomicLong();
        final AtomicLong messages = new AtomicLong();
        final AtomicLong inAll = new AtomicLong();
        final AtomicLong errors = new AtomicLong();
        volatile boolean counting;
        long before; // acked while it was not measured yet

        void begin() {
            before = inAll.get();
            counting = true;
        }

        void add(long nanos) {
            inAll.incrementAndGet();
            if (counting) {
                messages.incrementAndGet();
                int at = (int) kept.getAndIncrement();
                if (at < LATENCIES) {
                    latencies[at] = nanos;
                }
            }
        }

        void print(double seconds, int size) {
            int count = (int) Math.min(kept.get(), LATENCIES);
            long[] sorted = Arrays.copyOf(latencies, count);
            Arrays.sort(sorted);
            long done = messages.get();
            say(String.format("{\"messages\": %d, \"messages_in_all\": %d, \"stored\": %d, \"bytes\": %d, \"errors\": %d, "
                    + "\"seconds\": %.4f, \"messages_per_s\": %.1f, \"mb_per_s\": %.3f, \"p50_ms\": %.4f, "
                    + "\"p99_ms\": %.4f}", done, inAll.get() - before, inAll.get(), done * size, errors.get(), seconds,
                    done / seconds, done * size / seconds / 1e6, part(sorted, 0.5), part(sorted, 0.99)));
        }

        static double part(long[] sorted, double share) {
            return sorted.length == 0 ? 0
                    : sorted[(int) Math.min(sorted.length - 1, sorted.length * share)] / 1e6;
        }
    }

    static byte[] payload(Random random) {
        byte[] payload = new byte[(int) option("size", 100)];
        random.nextBytes(payload);
        return payload;
    }

    static void produce(PulsarClient client, String topic) throws Exception {
        Producer<byte[]> producer = producer(client, topic).create();
        Semaphore room = new Semaphore((int) option("outstanding", 1000));
        Totals totals = new Totals();
        byte[] payload = payload(new Random(1));
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
        byte[] payload = payload(new Random(1));
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
            byte[] own = payload.clone();
            java.nio.ByteBuffer.wrap(own).putLong(next); // as it should have been: waiting counts
            producer.sendAsync(own).exceptionally(error -> {
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
