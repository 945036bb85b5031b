import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** A broker for tests: `trilogue serve --test`, which ends when its standard input is closed. */
final class TrilogueServer implements AutoCloseable {
    private static final Pattern ADDRESS = Pattern.compile("\"(\\w+)\":\"([^\"]*)\"");

    private final Process process;
    private final Map<String, String> addresses = new HashMap<>();
    private final HttpClient http = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();

    TrilogueServer() throws IOException {
        String program = System.getenv().getOrDefault("TRILOGUE", "trilogue");
        process = new ProcessBuilder(program, "serve", "--test")
                .redirectError(ProcessBuilder.Redirect.INHERIT)
                .start();
        BufferedReader output = new BufferedReader(
                new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
        String line = output.readLine();
        if (line == null) {
            throw new IOException(program + " serve --test did not start");
        }
        Matcher found = ADDRESS.matcher(line);
        while (found.find()) {
            addresses.put(found.group(1), found.group(2));
        }
    }

    /** "kafka", "pulsar", "tubemq" (the master), "http". */
    String address(String name) {
        return addresses.get(name);
    }

    /** Sends a request below /test and returns the body of the reply; IOException for an error. */
    String call(String method, String path, String body) throws IOException, InterruptedException {
        HttpResponse<String> reply = http.send(
                HttpRequest.newBuilder(URI.create(addresses.get("test") + path))
                        .method(method, HttpRequest.BodyPublishers.ofString(body))
                        .build(),
                HttpResponse.BodyHandlers.ofString());
        if (reply.statusCode() >= 300) {
            throw new IOException(method + " " + path + ": " + reply.body());
        }
        return reply.body();
    }

    @Override
    public void close() throws IOException, InterruptedException {
        process.getOutputStream().close();
        if (!process.waitFor(60, TimeUnit.SECONDS)) {
            process.destroyForcibly();
        }
    }
}
