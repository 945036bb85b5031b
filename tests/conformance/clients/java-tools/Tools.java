import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Kafka's command-line tools one after another in one process: a JVM for each would take seconds.
 *
 * {"id": 1, "do": "run", "main": "org...TopicCommand", "arguments": ["--list"]} is answered by
 * {"id": 1, "got": {"status": 0, "text": "what it printed, on both outputs"}}.
 */
public final class Tools {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int TOLD = 200_000;

    /** Both outputs, of whatever tool is at work: Scala keeps the stream it saw first. */
    private static final class Shared extends OutputStream {
        private final ByteArrayOutputStream text = new ByteArrayOutputStream();
        private boolean closed;

        @Override
        public synchronized void write(int one) {
            if (!closed && text.size() < TOLD) {
                text.write(one);
            }
        }

        /** The tool has ended as far as it knows: what it says of our Ended is not its own. */
        synchronized void close(String last) {
            if (!closed && last != null) {
                text.writeBytes(last.getBytes(StandardCharsets.UTF_8));
            }
            closed = true;
        }

        synchronized String take() {
            closed = false;
            String taken = text.toString(StandardCharsets.UTF_8);
            text.reset();
            return taken;
        }
    }

    private static final class Ended extends Error {
        private static final long serialVersionUID = 1;

        Ended(int status) {
            super("ended with " + status, null, false, false);
        }
    }

    private Tools() {}

    public static void main(String[] none) throws Exception {
        PrintStream answers = System.out;
        Shared printed = new Shared();
        System.setOut(new PrintStream(printed, true, "UTF-8"));
        System.setErr(new PrintStream(printed, true, "UTF-8"));
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode asked = JSON.readTree(line);
            List<String> arguments = new ArrayList<>();
            asked.get("arguments").forEach(each -> arguments.add(each.asText()));
            ObjectNode answer = JSON.createObjectNode();
            answer.put("id", asked.get("id").asInt());
            ObjectNode got = answer.putObject("got");
            got.put("status", run(asked.get("main").asText(), arguments, printed));
            got.put("text", printed.take());
            answers.println(JSON.writeValueAsString(answer));
            answers.flush();
        }
    }

    private static int run(String main, List<String> arguments, Shared printed) {
        int[] status = {0}; // the first exit is the tool's; later ones are those it makes of our Ended
        boolean[] ended = {false};
        Exit.Procedure procedure = (code, message) -> {
            if (!ended[0]) {
                ended[0] = true;
                status[0] = code;
                printed.close(message);
            }
            throw new Ended(code);
        };
        Exit.setExitProcedure(procedure);
        Exit.setHaltProcedure(procedure);
        Exit.setShutdownHookAdder((name, hook) -> { }); // the process goes on
        try {
            Class.forName(main).getMethod("main", String[].class)
                .invoke(null, (Object) arguments.toArray(new String[0]));
        } catch (InvocationTargetException thrown) {
            if (!ended[0]) {
                thrown.getCause().printStackTrace();
                return 1;
            }
        } catch (ReflectiveOperationException missing) {
            missing.printStackTrace();
            return 1;
        }
        return status[0];
    }
}
