import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.Executors;

/**
 * Something behind lines of JSON: {"id": 7, "do": "write", ...} on standard input is answered by
 * {"id": 7, "got": ...} or {"id": 7, "error": "..."} on standard output, in any order, each request on a
 * thread of its own.
 */
abstract class Lines {
    static final ObjectMapper JSON = new ObjectMapper();
    static final PrintStream OUT = System.out;
    static final Executor THREADS = Executors.newCachedThreadPool(work -> {
        Thread thread = new Thread(work);
        thread.setDaemon(true);
        return thread;
    });

    abstract Object run(JsonNode request) throws Exception;

    /** Answer lines until there are no more. */
    void serve() throws IOException {
        BufferedReader in =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode request = JSON.readTree(line);
            THREADS.execute(() -> answer(request));
        }
    }

    private void answer(JsonNode request) {
        ObjectNode answer = JSON.createObjectNode().put("id", request.get("id").asInt());
        try {
            answer.set("got", JSON.valueToTree(run(request)));
        } catch (Throwable error) {
            answer.put("error", said(error));
        }
        synchronized (OUT) {
            OUT.println(answer);
            OUT.flush();
        }
    }

    static String said(Throwable error) {
        while ((error instanceof CompletionException || error instanceof ExecutionException)
                && error.getCause() != null) {
            error = error.getCause();
        }
        return error.getClass().getSimpleName() + ": " + error.getMessage();
    }
}
