import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executor;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.inlong.tubemq.client.common.ConfirmResult;
import org.apache.inlong.tubemq.client.common.ConsumeResult;
import org.apache.inlong.tubemq.client.common.PeerInfo;
import org.apache.inlong.tubemq.client.common.QueryMetaResult;
import org.apache.inlong.tubemq.client.config.ConsumerConfig;
import org.apache.inlong.tubemq.client.config.TubeClientConfig;
import org.apache.inlong.tubemq.client.consumer.ClientBalanceConsumer;
import org.apache.inlong.tubemq.client.consumer.ConsumeOffsetInfo;
import org.apache.inlong.tubemq.client.consumer.ConsumePosition;
import org.apache.inlong.tubemq.client.consumer.ConsumerResult;
import org.apache.inlong.tubemq.client.consumer.MessageConsumer;
import org.apache.inlong.tubemq.client.consumer.MessageListener;
import org.apache.inlong.tubemq.client.consumer.PullMessageConsumer;
import org.apache.inlong.tubemq.client.consumer.PushMessageConsumer;
import org.apache.inlong.tubemq.client.factory.MessageSessionFactory;
import org.apache.inlong.tubemq.client.factory.TubeMultiSessionFactory;
import org.apache.inlong.tubemq.client.producer.MessageProducer;
import org.apache.inlong.tubemq.client.producer.MessageSentCallback;
import org.apache.inlong.tubemq.client.producer.MessageSentResult;
import org.apache.inlong.tubemq.corebase.Message;
import org.apache.inlong.tubemq.corebase.Shutdownable;
import org.apache.inlong.tubemq.corebase.config.TLSConfig;
import org.apache.inlong.tubemq.corebase.rv.ProcessResult;

/**
 * TubeMQ's own Java client behind lines of JSON: {"id": 7, "do": "send", ...} on standard input is
 * answered by {"id": 7, "got": ...} or {"id": 7, "error": "..."} on standard output, in any order, each
 * request on a thread of its own. Verbs and their words: tubemq.py beside this folder.
 */
public class TubeDriver {
    static final Gson JSON = new GsonBuilder().serializeNulls().create();
    static final ExecutorService THREADS = Executors.newCachedThreadPool();
    static final PrintStream OUT = System.out;

    final AtomicInteger handles = new AtomicInteger();
    final Map<Integer, JsonObject> words = new ConcurrentHashMap<>();
    final Map<Integer, MessageSessionFactory> factories = new ConcurrentHashMap<>();
    final Map<Integer, MessageProducer> producers = new ConcurrentHashMap<>();
    final Map<Integer, PullMessageConsumer> pulls = new ConcurrentHashMap<>();
    final Map<Integer, PushMessageConsumer> pushes = new ConcurrentHashMap<>();
    final Map<Integer, LinkedBlockingQueue<Map<String, Object>>> pushed = new ConcurrentHashMap<>();
    final Map<Integer, ClientBalanceConsumer> balanced = new ConcurrentHashMap<>();

    public static void main(String[] arguments) throws Exception {
        System.setOut(System.err);
        TubeDriver driver = new TubeDriver();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonObject request = JsonParser.parseString(line).getAsJsonObject();
            THREADS.execute(() -> driver.answer(request));
        }
        Runtime.getRuntime().halt(0);
    }

    void answer(JsonObject request) {
        Map<String, Object> answer = new HashMap<>();
        answer.put("id", request.get("id").getAsInt());
        try {
            answer.put("got", run(request));
        } catch (Throwable error) {
            answer.put("error", said(error));
        }
        String line = JSON.toJson(answer);
        synchronized (OUT) {
            OUT.println(line);
            OUT.flush();
        }
    }

    static String said(Throwable error) {
        return error.getClass().getSimpleName() + ": " + error.getMessage();
    }

    Object run(JsonObject r) throws Throwable {
        switch (r.get("do").getAsString()) {
            case "connect": return connect(r);
            case "producer": return producer(r);
            case "publish": return producers.get(of(r)).publish(new TreeSet<>(texts(r, "topics")));
            case "published": return producers.get(of(r)).getPublishedTopicSet();
            case "accepts": return producers.get(of(r)).isTopicCurAcceptPublish(text(r, "topic"));
            case "send": return send(r);
            case "pull": return pull(r);
            case "get": return get(r);
            case "confirm": return confirm(r);
            case "ready": return ready(r);
            case "positions": return positions(consumer(r).getCurConsumedPartitions());
            case "freeze": consumer(r).freezePartitions(texts(r, "partitions")); return null;
            case "unfreeze": consumer(r).unfreezePartitions(texts(r, "partitions")); return null;
            case "push": return push(r);
            case "pause": pushes.get(of(r)).pauseConsume(); return null;
            case "resume": pushes.get(of(r)).resumeConsume(); return null;
            case "taken": return taken(r);
            case "balance": return balance(r);
            case "meta": return meta(r);
            case "attach": return attach(r);
            case "detach": return detach(r);
            case "attached": return new TreeSet<>(balanced.get(of(r)).getCurRegisteredPartSet());
            case "close": return close(r);
            default: throw new IllegalArgumentException(r.toString());
        }
    }

    // --- words ---------------------------------------------------------------------------------

    static int of(JsonObject r) {
        return r.get("of").getAsInt();
    }

    static boolean has(JsonObject r, String name) {
        return r.has(name) && !r.get(name).isJsonNull();
    }

    static String text(JsonObject r, String name) {
        return has(r, name) ? r.get(name).getAsString() : null;
    }

    static long number(JsonObject r, String name, long otherwise) {
        return has(r, name) ? r.get(name).getAsLong() : otherwise;
    }

    static boolean is(JsonObject r, String name) {
        return has(r, name) && r.get(name).getAsBoolean();
    }

    static List<String> texts(JsonObject r, String name) {
        List<String> texts = new ArrayList<>();
        if (has(r, name)) {
            r.getAsJsonArray(name).forEach(e -> texts.add(e.getAsString()));
        }
        return texts;
    }

    static TreeMap<String, TreeSet<String>> filters(JsonObject r) {
        TreeMap<String, TreeSet<String>> topics = new TreeMap<>();
        for (Map.Entry<String, JsonElement> topic : r.getAsJsonObject("topics").entrySet()) {
            TreeSet<String> types = new TreeSet<>();
            topic.getValue().getAsJsonArray().forEach(e -> types.add(e.getAsString()));
            topics.put(topic.getKey(), types.isEmpty() ? null : types);
        }
        return topics;
    }

    static ConsumePosition position(JsonObject r) {
        String word = text(r, "position");
        switch (word == null ? "first" : word) {
            case "first": return ConsumePosition.CONSUMER_FROM_FIRST_OFFSET;
            case "latest": return ConsumePosition.CONSUMER_FROM_LATEST_OFFSET;
            case "max": return ConsumePosition.CONSUMER_FROM_MAX_OFFSET_ALWAYS;
            default: throw new IllegalArgumentException(word);
        }
    }

    int kept() {
        return handles.incrementAndGet();
    }

    // --- clients and producers -----------------------------------------------------------------

    /** Heartbeats are quick in tests; "default" leaves the client as it is. */
    static void tune(TubeClientConfig config, JsonObject r) throws Exception {
        if (has(r, "heartbeat_ms")) {
            config.setHeartbeatPeriodMs(number(r, "heartbeat_ms", 0));
            config.setHeartbeatPeriodAfterFail(number(r, "heartbeat_ms", 0));
        }
        if (has(r, "timeout_ms")) {
            config.setRpcTimeoutMs(number(r, "timeout_ms", 0));
        }
        if (has(r, "user")) {
            config.setAuthenticInfo(true, text(r, "user"), text(r, "password"));
        }
        if (has(r, "truststore")) {
            config.setTLSEnableInfo(text(r, "truststore"), text(r, "truststore_password"));
            // The client opens a key store, whose path no method of its own sets: it ends in a
            // NullPointerException. One without keys changes nothing else.
            java.lang.reflect.Field field = TubeClientConfig.class.getDeclaredField("tlsConfig");
            field.setAccessible(true);
            TLSConfig tls = (TLSConfig) field.get(config);
            tls.setTlsTwoWayAuthEnable(true);
            tls.setTlsKeyStorePath(text(r, "truststore"));
            tls.setTlsKeyStorePassword(text(r, "truststore_password"));
        }
        config.setMaxRegisterRetryTimes((int) number(r, "attempts", 3));
        config.setRegFailWaitPeriodMs(200);
    }

    Object connect(JsonObject r) throws Exception {
        TubeClientConfig config = new TubeClientConfig(text(r, "master"));
        tune(config, r);
        int handle = kept();
        factories.put(handle, new TubeMultiSessionFactory(config));
        words.put(handle, r);
        return handle;
    }

    Object producer(JsonObject r) throws Exception {
        MessageProducer producer = factories.get(of(r)).createProducer();
        int handle = kept();
        producers.put(handle, producer);
        producer.publish(new TreeSet<>(texts(r, "topics")));
        return handle;
    }

    static Message message(JsonObject words) throws Exception {
        Message message = new Message(text(words, "topic"), Base64.getDecoder().decode(text(words, "body")));
        if (has(words, "type") || has(words, "time")) {
            message.putSystemHeader(text(words, "type"), text(words, "time"));
        }
        if (has(words, "attributes")) {
            for (Map.Entry<String, JsonElement> pair : words.getAsJsonObject("attributes").entrySet()) {
                message.setAttrKeyVal(pair.getKey(), pair.getValue().getAsString());
            }
        }
        return message;
    }

    static Map<String, Object> sent(MessageSentResult result) {
        Map<String, Object> said = new HashMap<>();
        said.put("ok", result.isSuccess());
        said.put("code", result.getErrCode());
        said.put("text", result.getErrMsg());
        said.put("id", result.getMessageId());
        said.put("offset", result.getAppendOffset());
        said.put("time", result.getAppendTime());
        said.put("partition", result.getPartition() == null ? null : result.getPartition().getPartitionId());
        return said;
    }

    static Map<String, Object> failed(Throwable error) {
        Map<String, Object> said = new HashMap<>();
        said.put("ok", false);
        said.put("code", -1);
        said.put("text", said(error));
        return said;
    }

    /** One after the other, or all at once ("async"); in the order they were given. */
    Object send(JsonObject r) throws Exception {
        MessageProducer producer = producers.get(of(r));
        List<CompletableFuture<Map<String, Object>>> results = new ArrayList<>();
        for (JsonElement words : r.getAsJsonArray("messages")) {
            CompletableFuture<Map<String, Object>> result = new CompletableFuture<>();
            results.add(result);
            try {
                Message message = message(words.getAsJsonObject());
                if (!is(r, "async")) {
                    result.complete(sent(producer.sendMessage(message)));
                    continue;
                }
                producer.sendMessage(message, new MessageSentCallback() {
                    @Override
                    public void onMessageSent(MessageSentResult done) {
                        result.complete(sent(done));
                    }

                    @Override
                    public void onException(Throwable error) {
                        result.complete(failed(error));
                    }
                });
            } catch (Exception error) {
                result.complete(failed(error));
            }
        }
        List<Map<String, Object>> said = new ArrayList<>();
        for (CompletableFuture<Map<String, Object>> result : results) {
            said.add(result.get(60, TimeUnit.SECONDS));
        }
        return said;
    }

    // --- consumers -----------------------------------------------------------------------------

    ConsumerConfig config(JsonObject r) throws Exception {
        ConsumerConfig config = new ConsumerConfig(text(words.get(of(r)), "master"), text(r, "group"));
        tune(config, words.get(of(r)));
        config.setConsumePosition(position(r));
        config.setShutDownRebalanceWaitPeriodMs(number(r, "closing_ms", 300));
        config.setPullConsumeReadyWaitPeriodMs(number(r, "ready_ms", 20_000));
        config.setPullProtectConfirmTimeoutMs(number(r, "protect_ms", 60_000));
        config.setPullConfirmInLocal(is(r, "local"));
        config.setPushListenerThrowedRollBack(true);
        config.setPushListenerWaitPeriodMs(number(r, "listener_ms", 3000));
        return config;
    }

    MessageConsumer consumer(JsonObject r) {
        PullMessageConsumer pull = pulls.get(of(r));
        return pull != null ? pull : pushes.get(of(r));
    }

    /** Tell the master; "bound" asks for certain offsets, and for how many members to wait. */
    static void complete(MessageConsumer consumer, JsonObject r) throws Exception {
        if (!has(r, "bound")) {
            consumer.completeSubscribe();
            return;
        }
        JsonObject bound = r.getAsJsonObject("bound");
        Map<String, Long> offsets = new HashMap<>();
        if (has(bound, "offsets")) {
            bound.getAsJsonObject("offsets").entrySet()
                    .forEach(e -> offsets.put(e.getKey(), e.getValue().getAsLong()));
        }
        boolean big = !has(bound, "big") || is(bound, "big");
        consumer.completeSubscribe(text(bound, "key"), (int) number(bound, "count", 1), big, offsets);
    }

    Object pull(JsonObject r) throws Exception {
        PullMessageConsumer consumer = factories.get(of(r)).createPullConsumer(config(r));
        int handle = kept();
        pulls.put(handle, consumer);
        for (Map.Entry<String, TreeSet<String>> topic : filters(r).entrySet()) {
            consumer.subscribe(topic.getKey(), topic.getValue());
        }
        complete(consumer, r);
        return handle;
    }

    Object ready(JsonObject r) {
        long wait = number(r, "ms", 1000);
        ClientBalanceConsumer one = balanced.get(of(r));
        return one != null ? one.isPartitionsReady(wait) : pulls.get(of(r)).isPartitionsReady(wait);
    }

    static Map<String, Object> said(Message message) {
        Map<String, Object> said = new HashMap<>();
        said.put("topic", message.getTopic());
        byte[] data = message.getData();
        said.put("body", data == null ? null : Base64.getEncoder().encodeToString(data));
        said.put("attributes", message.getAttribute());
        said.put("type", message.getMsgType());
        said.put("time", message.getMsgTime());
        said.put("id", message.getIndexId());
        return said;
    }

    static List<Map<String, Object>> said(List<Message> messages) {
        List<Map<String, Object>> said = new ArrayList<>();
        if (messages != null) {
            messages.forEach(message -> said.add(said(message)));
        }
        return said;
    }

    static Map<String, Object> said(boolean ok, int code, String text, String context, PeerInfo peer) {
        Map<String, Object> said = new HashMap<>();
        said.put("ok", ok);
        said.put("code", code);
        said.put("text", text);
        said.put("context", context);
        said.put("partition", peer == null ? null : peer.getPartitionKey());
        said.put("offset", peer == null ? null : peer.getCurrOffset());
        said.put("max", peer == null ? null : peer.getMaxOffset());
        return said;
    }

    /** Once: of a pull consumer and of one that balances itself. */
    Object get(JsonObject r) throws Exception {
        ClientBalanceConsumer one = balanced.get(of(r));
        Map<String, Object> said;
        if (one != null) {
            ConsumeResult result = new ConsumeResult();
            one.getMessage(result);
            said = said(result.isSuccess(), result.getErrCode(), result.getErrMsg(),
                    result.getConfirmContext(), result.getPeerInfo());
            said.put("messages", said(result.getMessageList()));
            return said;
        }
        ConsumerResult result = pulls.get(of(r)).getMessage();
        said = said(result.isSuccess(), result.getErrCode(), result.getErrMsg(),
                result.getConfirmContext(), result.getPeerInfo());
        said.put("messages", said(result.getMessageList()));
        return said;
    }

    /** Of a pull consumer and of one that balances itself. */
    Object confirm(JsonObject r) throws Exception {
        String context = text(r, "context");
        ClientBalanceConsumer one = balanced.get(of(r));
        if (one != null) {
            ConfirmResult result = new ConfirmResult();
            one.confirmConsume(context, is(r, "consumed"), result);
            return said(result.isSuccess(), result.getErrCode(), result.getErrMsg(), context,
                    result.getPeerInfo());
        }
        ConsumerResult result = pulls.get(of(r)).confirmConsume(context, is(r, "consumed"));
        return said(result.isSuccess(), result.getErrCode(), result.getErrMsg(), context,
                result.getPeerInfo());
    }

    static Map<String, Object> positions(Map<String, ConsumeOffsetInfo> infos) {
        Map<String, Object> said = new TreeMap<>();
        infos.forEach((key, info) -> said.put(key, List.of(info.getCurrOffset(), info.getMaxOffset())));
        return said;
    }

    /** What comes is queued with its partition; "refuse" makes the listener throw so many times. */
    Object push(JsonObject r) throws Exception {
        PushMessageConsumer consumer = factories.get(of(r)).createPushConsumer(config(r));
        int handle = kept();
        LinkedBlockingQueue<Map<String, Object>> queue = new LinkedBlockingQueue<>();
        AtomicInteger refusals = new AtomicInteger((int) number(r, "refuse", 0));
        pushes.put(handle, consumer);
        pushed.put(handle, queue);
        MessageListener listener = new MessageListener() {
            @Override
            public void receiveMessages(PeerInfo peer, List<Message> messages) {
                boolean refused = refusals.getAndDecrement() > 0;
                for (Message message : messages) {
                    Map<String, Object> said = said(message);
                    said.put("partition", peer.getPartitionKey());
                    said.put("refused", refused);
                    queue.add(said);
                }
                if (refused) {
                    throw new IllegalStateException("refused, as asked");
                }
            }

            @Override
            public Executor getExecutor() {
                return null;
            }

            @Override
            public void stop() {
            }
        };
        for (Map.Entry<String, TreeSet<String>> topic : filters(r).entrySet()) {
            consumer.subscribe(topic.getKey(), topic.getValue(), listener);
        }
        complete(consumer, r);
        return handle;
    }

    Object taken(JsonObject r) throws Exception {
        List<Map<String, Object>> said = new ArrayList<>();
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(number(r, "ms", 1000));
        while (said.size() < number(r, "count", 1)) {
            Map<String, Object> next = pushed.get(of(r)).poll(Math.max(0, end - System.nanoTime()),
                    TimeUnit.NANOSECONDS);
            if (next == null) {
                break;
            }
            said.add(next);
        }
        return said;
    }

    // --- consumers that balance themselves -----------------------------------------------------

    static Map<String, Object> said(boolean ok, ProcessResult result) {
        return said(ok, result.getErrCode(), result.getErrMsg(), null, null);
    }

    Object balance(JsonObject r) throws Exception {
        ClientBalanceConsumer consumer = factories.get(of(r)).createBalanceConsumer(config(r));
        int handle = kept();
        balanced.put(handle, consumer);
        ProcessResult result = new ProcessResult();
        boolean ok = consumer.start(filters(r), (int) number(r, "sources", 1), (int) number(r, "node", 0),
                result);
        Map<String, Object> said = said(ok, result);
        said.put("handle", handle);
        return said;
    }

    Object meta(JsonObject r) throws Exception {
        QueryMetaResult result = new QueryMetaResult();
        boolean ok = balanced.get(of(r)).getPartitionMetaInfo(result);
        if (!ok) {
            throw new IllegalStateException(result.getErrCode() + " " + result.getErrMsg());
        }
        return new TreeMap<>(result.getPartStatusMap());
    }

    Object attach(JsonObject r) throws Exception {
        ProcessResult result = new ProcessResult();
        boolean ok = balanced.get(of(r)).connect2Partition(text(r, "partition"), number(r, "offset", -1), result);
        return said(ok, result);
    }

    Object detach(JsonObject r) throws Exception {
        ProcessResult result = new ProcessResult();
        return said(balanced.get(of(r)).disconnectFromPartition(text(r, "partition"), result), result);
    }

    // --- the end -------------------------------------------------------------------------------

    Object close(JsonObject r) throws Throwable {
        int handle = of(r);
        for (Map<Integer, ? extends Shutdownable> some : List.of(producers, pulls, pushes, balanced, factories)) {
            Shutdownable one = some.remove(handle);
            if (one != null) {
                one.shutdown();
            }
        }
        return null;
    }
}
