import com.fasterxml.jackson.databind.JavaType;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.Type;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.admin.GetStatsOptions;
import org.apache.pulsar.client.admin.GrantTopicPermissionOptions;
import org.apache.pulsar.client.admin.ListNamespaceTopicsOptions;
import org.apache.pulsar.client.admin.ListTopicsOptions;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.admin.PulsarAdminException;
import org.apache.pulsar.client.admin.RevokeTopicPermissionOptions;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.transaction.TxnID;
import org.apache.pulsar.client.impl.MessageIdImpl;
import org.apache.pulsar.common.policies.data.AuthAction;
import org.apache.pulsar.common.schema.SchemaInfo;
import org.apache.pulsar.common.util.ObjectMapperFactory;

/**
 * Calls of Java's administration client, a line of standard input each ("topics.getStats TOPIC"), with
 * an answer in JSON for each: {"value": …}, {"status": …, "reason": …} or {"unknown": …}. Without
 * arguments it lists the methods, deprecated ones aside; else: URL of the administration, of the broker.
 */
public class Calls {
    static final ObjectMapper JSON = ObjectMapperFactory.getMapper().getObjectMapper();

    static boolean isGroup(Method method) {
        return method.getParameterCount() == 0
            && method.getReturnType().getName().startsWith("org.apache.pulsar.client.admin")
            && !method.getName().equals("builder") && !method.isAnnotationPresent(Deprecated.class);
    }

    static void list() {
        for (Method group : PulsarAdmin.class.getMethods()) {
            if (!isGroup(group)) {
                continue;
            }
            TreeSet<String> names = new TreeSet<>();
            for (Method each : group.getReturnType().getMethods()) {
                boolean skipped = each.getName().endsWith("Async") || Modifier.isStatic(each.getModifiers())
                    || each.isAnnotationPresent(Deprecated.class);
                if (!skipped) {
                    names.add(group.getName() + "." + each.getName() + " " + each.getParameterCount());
                }
            }
            names.forEach(System.out::println);
        }
    }

    static Object parse(String word, Class<?> kind, Type type) throws Exception {
        if (kind == String.class) {
            return word;
        }
        if (kind == MessageId.class) {
            String[] parts = word.split(":");
            return word.equals("earliest") ? MessageId.earliest : word.equals("latest") ? MessageId.latest
                : new MessageIdImpl(Long.parseLong(parts[0]), Long.parseLong(parts[1]), -1);
        }
        if (kind == TxnID.class) {
            String[] parts = word.split(":");
            return new TxnID(Long.parseLong(parts[0]), Long.parseLong(parts[1]));
        }
        if (kind == Optional.class) {
            return Optional.empty();
        }
        if (kind == SchemaInfo.class) {
            return word.equals("STRING") ? Schema.STRING.getSchemaInfo() : Schema.INT64.getSchemaInfo();
        }
        if (kind == GetStatsOptions.class) {
            return GetStatsOptions.builder().build();
        }
        if (kind == ListTopicsOptions.class) {
            return ListTopicsOptions.builder().includeSystemTopic(false).build();
        }
        if (kind == ListNamespaceTopicsOptions.class) {
            return ListNamespaceTopicsOptions.builder().build();
        }
        if (kind == List.class && type.getTypeName().contains("GrantTopicPermissionOptions")) {
            return List.of(GrantTopicPermissionOptions.builder().topic(word).role("reader")
                .actions(Set.of(AuthAction.consume)).build());
        }
        if (kind == List.class && type.getTypeName().contains("RevokeTopicPermissionOptions")) {
            return List.of(RevokeTopicPermissionOptions.builder().topic(word).role("reader").build());
        }
        JavaType java = JSON.getTypeFactory().constructType(type);
        String text = kind.isEnum() ? JSON.writeValueAsString(word) : word;
        return JSON.readValue(text, java);
    }

    static Object[] parseAll(List<String> words, Method method) {
        Object[] values = new Object[words.size()];
        for (int i = 0; i < values.length; i++) {
            try {
                values[i] = parse(words.get(i), method.getParameterTypes()[i],
                    method.getGenericParameterTypes()[i]);
            } catch (Exception problem) {
                return null;
            }
        }
        return values;
    }

    static Object plain(Object value) {
        if (value instanceof Message<?> message) {
            return new String(message.getData(), StandardCharsets.UTF_8);
        }
        if (value instanceof MessageId id) {
            return id.toString();
        }
        if (value instanceof Optional<?> some) {
            return some.map(Calls::plain).orElse(null);
        }
        if (value instanceof List<?> list) {
            return list.stream().map(Calls::plain).toList();
        }
        return value;
    }

    static Object client(PulsarClient client, List<String> words) throws Exception {
        if (words.get(0).equals("produce")) {
            try (Producer<String> producer =
                client.newProducer(Schema.STRING).topic(words.get(1)).enableBatching(false).create()) {
                for (int i = 0; i < Integer.parseInt(words.get(2)); i++) {
                    producer.newMessage().key("k" + i % 2).value("m" + i).send();
                }
            }
        } else {
            client.newConsumer(Schema.STRING).topic(words.get(1)).subscriptionName(words.get(2))
                .subscribe().close();
        }
        return null;
    }

    static void answer(PulsarAdmin admin, PulsarClient client, String line, ObjectNode into) throws Exception {
        List<String> words = new ArrayList<>(Arrays.asList(line.split(" ")));
        String[] name = words.remove(0).split("\\.");
        if (name[0].equals("client")) {
            words.add(0, name[1]);
            client(client, words);
            into.putNull("value");
            return;
        }
        Method group = PulsarAdmin.class.getMethod(name[0]);
        Method[] methods = group.getReturnType().getMethods();
        Arrays.sort(methods, Comparator.comparing(Method::toString));
        for (Method each : methods) {
            boolean fits = each.getName().equals(name[1]) && each.getParameterCount() == words.size();
            Object[] values = fits ? parseAll(words, each) : null;
            if (values != null) {
                Object value = each.invoke(group.invoke(admin), values);
                if (value instanceof CompletableFuture<?> later) {
                    value = later.get(60, TimeUnit.SECONDS);
                }
                into.set("value", JSON.valueToTree(plain(value)));
                return;
            }
        }
        into.put("unknown", line);
    }

    static Throwable cause(Throwable problem) {
        boolean outer = problem instanceof InvocationTargetException || problem instanceof ExecutionException;
        return outer && problem.getCause() != null ? cause(problem.getCause()) : problem;
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments.length == 0) {
            list();
            return;
        }
        PrintStream answers = System.out;
        System.setOut(System.err);
        try (PulsarAdmin admin = PulsarAdmin.builder().serviceHttpUrl(arguments[0])
                .readTimeout(60, TimeUnit.SECONDS).requestTimeout(60, TimeUnit.SECONDS).build();
            PulsarClient client = PulsarClient.builder().serviceUrl(arguments[1]).build()) {
            BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
            for (String line; (line = lines.readLine()) != null;) {
                ObjectNode into = JSON.createObjectNode();
                try {
                    answer(admin, client, line, into);
                } catch (Exception problem) {
                    Throwable cause = cause(problem);
                    boolean told = cause instanceof PulsarAdminException;
                    into.put("status", told ? ((PulsarAdminException) cause).getStatusCode() : -1);
                    into.put("reason", told ? ((PulsarAdminException) cause).getHttpError() : "" + cause);
                }
                answers.println("answer " + into);
                answers.flush();
            }
        }
        System.exit(0);
    }
}
