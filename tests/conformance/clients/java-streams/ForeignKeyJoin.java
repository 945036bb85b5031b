import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.KTable;

/**
 * Joins a table whose values are "key:text" with the table of these keys (a foreign-key join, with two
 * repartition topics and a changelog), and writes "text/value" to another topic.
 *
 * ForeignKeyJoin LEFT,RIGHT OUTPUT name=value... ; prints "state X" and "failed X" as it happens; closes when
 * its input ends.
 */
public final class ForeignKeyJoin {
    private ForeignKeyJoin() {}

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        Properties settings = new Properties();
        settings.put("default.key.serde", Serdes.StringSerde.class);
        settings.put("default.value.serde", Serdes.StringSerde.class);
        for (String each : Arrays.asList(arguments).subList(2, arguments.length)) {
            int at = each.indexOf('=');
            settings.put(each.substring(0, at), each.substring(at + 1));
        }
        String[] topics = arguments[0].split(",");
        StreamsBuilder builder = new StreamsBuilder();
        KTable<String, String> left = builder.table(topics[0]);
        KTable<String, String> right = builder.table(topics[1]);
        left.join(right, value -> value.split(":")[0], (one, other) -> one.split(":")[1] + "/" + other)
            .toStream()
            .to(arguments[1]);
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setStateListener((now, before) -> out.println("state " + now));
        streams.setUncaughtExceptionHandler(failure -> {
            out.println("failed " + failure.toString().replace('\n', ' '));
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        while (in.readLine() != null) { }
        streams.close(Duration.ofSeconds(20));
        out.println("closed");
    }
}
