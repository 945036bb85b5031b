import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/** What the loads in Java share: their options, what they print, and what they count. */
public class Load {
    static final Map<String, Double> OPTIONS = new HashMap<>();
    static final int LATENCIES = 4_000_000;

    /** The words after the first three are options and their values. */
    static void read(String[] words) {
        for (int i = 3; i + 1 < words.length; i += 2) {
            OPTIONS.put(words[i].substring(2), Double.parseDouble(words[i + 1]));
        }
    }

    static double option(String name, double otherwise) {
        return OPTIONS.getOrDefault(name, otherwise);
    }

    static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    static byte[] payload() {
        byte[] payload = new byte[(int) option("size", 100)];
        new Random(1).nextBytes(payload);
        return payload;
    }

    static byte[] numbered(byte[] payload, long number) {
        byte[] own = payload.clone();
        ByteBuffer.wrap(own).putLong(number);
        return own;
    }

    /** What was acked while it was measured, and how long that took, in nanoseconds. */
    static final class Totals {
        final long[] latencies = new long[LATENCIES];
        final AtomicLong kept = new AtomicLong();
        final AtomicLong messages = new AtomicLong();
        final AtomicLong inAll = new AtomicLong();
        final AtomicLong refused = new AtomicLong();
        final AtomicLong errors = new AtomicLong();
        final Map<String, AtomicLong> reasons = new ConcurrentHashMap<>();
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

        void refuse(String reason) {
            refused.incrementAndGet();
            if (reasons.size() < 20) {
                reasons.computeIfAbsent(reason, r -> new AtomicLong()).incrementAndGet();
            }
        }

        void print(double seconds, int size) {
            int count = (int) Math.min(kept.get(), LATENCIES);
            long[] sorted = Arrays.copyOf(latencies, count);
            Arrays.sort(sorted);
            long done = messages.get();
            reasons.forEach((reason, times) -> System.err.println(times + " times " + reason));
            say(String.format("{\"messages\": %d, \"messages_in_all\": %d, \"stored\": %d, \"bytes\": %d, "
                    + "\"errors\": %d, \"refused\": %d, \"seconds\": %.4f, \"messages_per_s\": %.1f, "
                    + "\"mb_per_s\": %.3f, \"p50_ms\": %.4f, \"p99_ms\": %.4f}", done, inAll.get() - before,
                    inAll.get(), done * size, errors.get(), refused.get(), seconds, done / seconds,
                    done * size / seconds / 1e6, part(sorted, 0.5), part(sorted, 0.99)));
        }

        static double part(long[] sorted, double share) {
            return sorted.length == 0 ? 0
                    : sorted[(int) Math.min(sorted.length - 1, sorted.length * share)] / 1e6;
        }
    }

    /** What is taken out of a topic that was filled before; the first tenth is not measured. */
    static final class Drain {
        final long wanted = (long) option("messages", 100_000);
        final AtomicLong seen = new AtomicLong();
        final CountDownLatch all = new CountDownLatch(1);
        volatile long began;
        volatile long measured;
        volatile double seconds;

        void add(long count) {
            long now = seen.addAndGet(count);
            if (now - count < wanted / 10 && now >= wanted / 10) {
                say("begin");
                measured = wanted - now;
                began = System.nanoTime();
            }
            if (now - count < wanted && now >= wanted) {
                seconds = (System.nanoTime() - began) / 1e9;
                say("end");
                all.countDown();
            }
        }

        void await() throws InterruptedException {
            boolean done = all.await((long) option("limit", 120), TimeUnit.SECONDS);
            long size = (long) option("size", 100);
            say(String.format("{\"messages\": %d, \"bytes\": %d, \"errors\": %d, \"seconds\": %.4f, "
                    + "\"messages_per_s\": %.1f, \"mb_per_s\": %.3f}", measured, measured * size,
                    done ? 0 : wanted - seen.get(), seconds, measured / seconds,
                    measured * size / seconds / 1e6));
        }
    }
}
