import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executor;
import java.util.concurrent.Semaphore;
import java.util.concurrent.locks.LockSupport;
import org.apache.inlong.tubemq.client.common.PeerInfo;
import org.apache.inlong.tubemq.client.config.ConsumerConfig;
import org.apache.inlong.tubemq.client.config.TubeClientConfig;
import org.apache.inlong.tubemq.client.consumer.ConsumePosition;
import org.apache.inlong.tubemq.client.consumer.ConsumerResult;
import org.apache.inlong.tubemq.client.consumer.MessageListener;
import org.apache.inlong.tubemq.client.consumer.PullMessageConsumer;
import org.apache.inlong.tubemq.client.consumer.PushMessageConsumer;
import org.apache.inlong.tubemq.client.factory.MessageSessionFactory;
import org.apache.inlong.tubemq.client.factory.TubeMultiSessionFactory;
import org.apache.inlong.tubemq.client.producer.MessageProducer;
import org.apache.inlong.tubemq.client.producer.MessageSentCallback;
import org.apache.inlong.tubemq.client.producer.MessageSentResult;
import org.apache.inlong.tubemq.corebase.Message;

/**
 * TubeMQ's own Java client as a load, the same for every server; its settings are its own defaults.
 *
 *   TubeLoad produce MASTER TOPIC --size 100 --outstanding 2000 --warmup 4 --seconds 4
 *   TubeLoad through MASTER TOPIC --size 100 --rate 200 --pull 0 --warmup 4 --seconds 4
 *   TubeLoad client  MASTER TOPIC --size 100 --outstanding 2000 --messages 200000 --singles 100
 *   TubeLoad group   MASTER TOPIC --partitions 4 --number 1
 *   TubeLoad member  MASTER TOPIC --number 1
 *   TubeLoad usable  MASTER TOPIC
 *   TubeLoad until-killed MASTER TOPIC --count 1000
 *   TubeLoad present MASTER TOPIC --count 1000 --number 1
 *
 * `produce` keeps so many messages on their way (1: send and wait); what is refused with a code is
 * counted and not sent again. `through` sends at a steady pace and takes the time from the call to the
 * consumer's. `client` sends so many messages, one of `singles` by itself, and reads them; each for a second
 * time with its rate and the CPU of this process, a row a leg (side_by_side.py). `group` says how long a group of one waits for all its partitions, and with a second
 * member how long one waits for the other's after it closed. `member` has all partitions and stays
 * until it is killed ("ready" when it has them). `usable` sends until the topic takes something: how
 * long, from the start of the program's first attempt. `until-killed` sends a sequence number at a time
 * and says "enough" after so many acks, goes on until the server is gone, then says how many were acked;
 * `present` counts how many of these numbers can be read. Prints "begin" and "end" around what is
 * measured, then one line of JSON.
 */
public class TubeLoad extends Load {
    static final long PATIENCE_NS = 150_000_000_000L;

    public static void main(String[] words) throws Throwable {
        read(words);
        String master = words[1];
        String topic = words[2];
        MessageSessionFactory sessions = new TubeMultiSessionFactory(new TubeClientConfig(master));
        switch (words[0]) {
            case "produce": produce(sessions, topic); break;
            case "through": through(sessions, master, topic); break;
            case "client": client(sessions, master, topic); break;
            case "group": group(sessions, master, topic); break;
            case "member": member(sessions, master, topic); break;
            case "usable": usable(sessions, topic); break;
            case "until-killed": untilKilled(sessions, topic); break;
            case "present": present(sessions, master, topic); break;
            default: throw new IllegalArgumentException(words[0]);
        }
        Runtime.getRuntime().halt(0); // closing waits for threads; there is nothing left to wait for
    }

    static MessageProducer producer(MessageSessionFactory sessions, String topic) throws Exception {
        MessageProducer producer = sessions.createProducer();
        producer.publish(topic);
        long end = System.nanoTime() + PATIENCE_NS;
        while (!producer.isTopicCurAcceptPublish(topic)) {
            if (System.nanoTime() > end) {
                throw new IllegalStateException(topic + " does not become usable");
            }
            Thread.sleep(10);
        }
        return producer;
    }

    // --- sending -------------------------------------------------------------------------------

    static void produce(MessageSessionFactory sessions, String topic) throws Exception {
        MessageProducer producer = producer(sessions, topic);
        int outstanding = (int) option("outstanding", 2000);
        Semaphore room = new Semaphore(outstanding);
        Totals totals = new Totals();
        byte[] payload = payload();
        sendUntil(producer, topic, room, totals, payload,
                System.nanoTime() + (long) (option("warmup", 4) * 1e9));
        say("begin");
        totals.begin();
        long began = System.nanoTime();
        sendUntil(producer, topic, room, totals, payload, began + (long) (option("seconds", 4) * 1e9));
        totals.counting = false;
        double seconds = (System.nanoTime() - began) / 1e9;
        say("end");
        room.acquire(outstanding);
        totals.print(seconds, payload.length);
    }

    static void sendUntil(MessageProducer producer, String topic, Semaphore room, Totals totals,
            byte[] payload, long end) throws Exception {
        boolean alone = option("outstanding", 2000) == 1;
        while (System.nanoTime() < end) {
            long began = System.nanoTime();
            if (alone) {
                MessageSentResult result = producer.sendMessage(new Message(topic, payload));
                if (result.isSuccess()) {
                    totals.add(System.nanoTime() - began);
                } else {
                    totals.refuse(result.getErrCode() + " " + result.getErrMsg());
                }
                continue;
            }
            room.acquire();
            try {
                producer.sendMessage(new Message(topic, payload), new MessageSentCallback() {
                    @Override
                    public void onMessageSent(MessageSentResult result) {
                        if (result.isSuccess()) {
                            totals.add(System.nanoTime() - began);
                        } else {
                            totals.refuse(result.getErrCode() + " " + result.getErrMsg());
                        }
                        room.release();
                    }

                    @Override
                    public void onException(Throwable error) {
                        totals.refuse(error.toString());
                        room.release();
                    }
                });
            } catch (Exception error) {
                totals.refuse(error.toString());
                room.release();
            }
        }
    }

    // --- what the client itself costs ----------------------------------------------------------

    interface Leg {
        void run() throws Exception;
    }

    static void client(MessageSessionFactory sessions, String master, String topic) throws Exception {
        int count = (int) option("messages", 200_000);
        int singles = count / (int) option("singles", 100);
        Semaphore room = new Semaphore((int) option("outstanding", 2000));
        MessageProducer producer = producer(sessions, topic);
        byte[] payload = payload();
        twice("send", count, () -> sendMany(producer, topic, room, payload, count));
        twice("send one by one", singles, () -> {
            for (int n = 0; n < singles; n++) {
                check(producer.sendMessage(new Message(topic, payload)));
            }
        });
        PullMessageConsumer consumer = pulling(sessions, master, topic);
        waitFor(consumer, 1);
        twice("read", count, () -> {
            for (long left = count; left > 0;) {
                ConsumerResult result = consumer.getMessage();
                if (result.isSuccess()) {
                    left -= result.getMessageList().size();
                    consumer.confirmConsume(result.getConfirmContext(), true);
                }
            }
        });
    }

    static void sendMany(MessageProducer producer, String topic, Semaphore room, byte[] payload, int count)
            throws Exception {
        int most = room.availablePermits();
        for (int n = 0; n < count; n++) {
            room.acquire();
            producer.sendMessage(new Message(topic, payload), new MessageSentCallback() {
                @Override
                public void onMessageSent(MessageSentResult result) {
                    check(result);
                    room.release();
                }

                @Override
                public void onException(Throwable error) {
                    fail(error.toString());
                }
            });
        }
        room.acquire(most);
        room.release(most);
    }

    static void check(MessageSentResult result) {
        if (!result.isSuccess()) {
            fail(result.getErrCode() + " " + result.getErrMsg());
        }
    }

    static void fail(String reason) {
        System.err.println(reason);
        Runtime.getRuntime().halt(1);
    }

    static void twice(String name, int count, Leg leg) throws Exception {
        com.sun.management.OperatingSystemMXBean process =
                (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        leg.run();
        long cpu = process.getProcessCpuTime();
        long began = System.nanoTime();
        leg.run();
        double seconds = (System.nanoTime() - began) / 1e9;
        say(String.format("%s\t%.1f\t%.3f", name, count / seconds,
                (process.getProcessCpuTime() - cpu) / 1e3 / count));
    }

    // --- reading -------------------------------------------------------------------------------

    static ConsumerConfig config(String master, String topic) {
        ConsumerConfig config = new ConsumerConfig(master, topic + "_g" + (int) option("number", 0));
        config.setConsumePosition(ConsumePosition.CONSUMER_FROM_FIRST_OFFSET);
        return config;
    }

    interface Taker {
        void take(Message message);
    }

    static PushMessageConsumer pushed(MessageSessionFactory sessions, String master, String topic, Taker taker)
            throws Exception {
        PushMessageConsumer consumer = sessions.createPushConsumer(config(master, topic));
        consumer.subscribe(topic, null, new MessageListener() {
            @Override
            public void receiveMessages(PeerInfo peer, List<Message> messages) {
                messages.forEach(taker::take);
            }

            @Override
            public Executor getExecutor() {
                return null;
            }

            @Override
            public void stop() {
            }
        });
        consumer.completeSubscribe();
        return consumer;
    }

    static PullMessageConsumer pulling(MessageSessionFactory sessions, String master, String topic)
            throws Exception {
        PullMessageConsumer consumer = sessions.createPullConsumer(config(master, topic));
        consumer.subscribe(topic, null);
        consumer.completeSubscribe();
        return consumer;
    }

    static void pull(PullMessageConsumer consumer, Taker taker) {
        while (true) {
            try {
                ConsumerResult result = consumer.getMessage();
                if (result.isSuccess()) {
                    result.getMessageList().forEach(taker::take);
                    consumer.confirmConsume(result.getConfirmContext(), true);
                }
            } catch (Exception error) {
                System.err.println(error);
                return;
            }
        }
    }

    static void through(MessageSessionFactory sessions, String master, String topic) throws Exception {
        Totals totals = new Totals();
        MessageProducer producer = producer(sessions, topic);
        Taker taker = message -> totals.add(
                System.nanoTime() - ByteBuffer.wrap(message.getData()).getLong());
        if (option("pull", 0) != 0) {
            PullMessageConsumer consumer = pulling(sessions, master, topic);
            waitFor(consumer, 1);
            Thread thread = new Thread(() -> pull(consumer, taker));
            thread.setDaemon(true);
            thread.start();
        } else {
            pushed(sessions, master, topic, taker);
        }
        byte[] payload = payload();
        producer.sendMessage(new Message(topic, numbered(payload, System.nanoTime())));
        long first = System.nanoTime() + PATIENCE_NS;
        while (totals.inAll.get() == 0 && System.nanoTime() < first) {
            Thread.sleep(5); // until the consumer has its partition
        }
        long gap = (long) (1e9 / option("rate", 200));
        long next = System.nanoTime();
        long begin = next + (long) (option("warmup", 4) * 1e9);
        long end = begin + (long) (option("seconds", 4) * 1e9);
        long sent = 1;
        for (; next < end; next += gap) {
            if (!totals.counting && next >= begin) {
                say("begin");
                totals.begin();
            }
            while (System.nanoTime() < next) {
                LockSupport.parkNanos(Math.max(1, next - System.nanoTime()));
            }
            // the time as it should have been: waiting counts
            producer.sendMessage(new Message(topic, numbered(payload, next)), new MessageSentCallback() {
                @Override
                public void onMessageSent(MessageSentResult result) {
                    if (!result.isSuccess()) {
                        totals.errors.incrementAndGet();
                    }
                }

                @Override
                public void onException(Throwable error) {
                    totals.errors.incrementAndGet();
                }
            });
            sent++;
        }
        say("end");
        long deadline = System.nanoTime() + 20_000_000_000L;
        while (totals.inAll.get() < sent && System.nanoTime() < deadline) {
            Thread.sleep(5);
        }
        totals.errors.addAndGet(Math.max(0, sent - totals.inAll.get()));
        totals.print(option("seconds", 4), payload.length);
    }

    // --- groups --------------------------------------------------------------------------------

    static double waitFor(PullMessageConsumer consumer, int partitions) throws Exception {
        long began = System.nanoTime();
        while (consumer.getCurConsumedPartitions().size() < partitions) {
            if (System.nanoTime() - began > PATIENCE_NS) {
                throw new IllegalStateException("no partitions");
            }
            Thread.sleep(2);
        }
        return (System.nanoTime() - began) / 1e9;
    }

    static void group(MessageSessionFactory sessions, String master, String topic) throws Throwable {
        int partitions = (int) option("partitions", 4);
        say("begin");
        PullMessageConsumer one = sessions.createPullConsumer(config(master, topic));
        one.subscribe(topic, null);
        long began = System.nanoTime();
        one.completeSubscribe();
        waitFor(one, partitions);
        double alone = (System.nanoTime() - began) / 1e9;
        PullMessageConsumer two = pulling(sessions, master, topic);
        while (two.getCurConsumedPartitions().size() < partitions / 2
                || one.getCurConsumedPartitions().size() > partitions / 2) {
            Thread.sleep(5);
        }
        long closed = System.nanoTime();
        one.shutdown();
        double closing = (System.nanoTime() - closed) / 1e9;
        waitFor(two, partitions);
        double taken = (System.nanoTime() - closed) / 1e9;
        say("end");
        say(String.format("{\"messages\": 1, \"bytes\": 1, \"errors\": 0, \"seconds\": 1.0, \"group_s\": %.4f, "
                + "\"closing_s\": %.4f, \"takeover_s\": %.4f}", alone, closing, taken));
    }

    static void member(MessageSessionFactory sessions, String master, String topic) throws Exception {
        PullMessageConsumer one = pulling(sessions, master, topic);
        waitFor(one, (int) option("partitions", 4));
        say("begin");
        Thread.sleep((long) (option("seconds", 300) * 1000));
        say("end");
        say("{\"messages\": 1, \"bytes\": 1, \"errors\": 0, \"seconds\": 1.0}");
    }

    static void usable(MessageSessionFactory sessions, String topic) throws Exception {
        MessageProducer producer = sessions.createProducer();
        producer.publish(topic);
        say("begin");
        long began = System.nanoTime();
        while (!producer.isTopicCurAcceptPublish(topic)
                || !producer.sendMessage(new Message(topic, payload())).isSuccess()) {
            if (System.nanoTime() - began > PATIENCE_NS) {
                throw new IllegalStateException(topic + " does not become usable");
            }
            Thread.sleep(2);
        }
        say("end");
        say(String.format("{\"messages\": 1, \"bytes\": 1, \"errors\": 0, \"seconds\": %.4f}",
                (System.nanoTime() - began) / 1e9));
    }

    // --- what a kill costs ---------------------------------------------------------------------

    static void untilKilled(MessageSessionFactory sessions, String topic) throws Exception {
        MessageProducer producer = producer(sessions, topic);
        int count = (int) option("count", 1000);
        byte[] payload = payload();
        long number = 0;
        try {
            while (true) {
                MessageSentResult result = producer.sendMessage(new Message(topic, numbered(payload, number)));
                if (!result.isSuccess()) {
                    break;
                }
                if (++number == count) {
                    say("begin");
                    break; // the last of them was acked right now
                }
            }
        } catch (Exception error) {
            System.err.println(error);
        }
        say("end");
        say(String.format("{\"messages\": %d, \"bytes\": 1, \"errors\": %d, \"seconds\": 1.0}", number,
                number < count ? 1 : 0));
    }

    static void present(MessageSessionFactory sessions, String master, String topic) throws Exception {
        Set<Long> seen = ConcurrentHashMap.newKeySet();
        PullMessageConsumer consumer = pulling(sessions, master, topic);
        waitFor(consumer, 1);
        Thread thread = new Thread(() -> pull(consumer,
                message -> seen.add(ByteBuffer.wrap(message.getData()).getLong())));
        thread.setDaemon(true);
        say("begin");
        thread.start();
        long last = System.nanoTime();
        int before = 0;
        // until nothing came for a while
        while (seen.size() < option("count", 1000) && System.nanoTime() - last < 4_000_000_000L) {
            if (seen.size() != before) {
                before = seen.size();
                last = System.nanoTime();
            }
            Thread.sleep(20);
        }
        say("end");
        List<Long> found = new ArrayList<>(new TreeSet<>(seen));
        say(String.format("{\"messages\": %d, \"bytes\": 1, \"errors\": 0, \"seconds\": 1.0}", found.size()));
    }
}
