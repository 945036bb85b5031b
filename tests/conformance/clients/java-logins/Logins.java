import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.File;
import java.io.FileOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.InvalidKeySpecException;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import javax.security.auth.callback.Callback;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.errors.SaslAuthenticationException;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerTokenCallback;

/** Logs in once for each line of JSON, writes a record, and answers with a line. */
public class Logins {
    static final String SECRET = "of the stores";
    static volatile String token = "";

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        ObjectMapper mapper = new ObjectMapper();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(attempt(mapper.readTree(line)));
        }
    }

    static String attempt(JsonNode given) {
        token = given.get("token").asText();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings(given))) {
            producer.send(new ProducerRecord<>(given.get("topic").asText(), new byte[] {1}))
                    .get(30, TimeUnit.SECONDS);
            return "ok";
        } catch (Throwable problem) {
            for (Throwable each = problem; each != null; each = each.getCause()) {
                if (each instanceof SaslAuthenticationException) {
                    return "refused";
                }
            }
            return problem.toString().replace('\n', ' ');
        }
    }

    static Properties settings(JsonNode given) throws Exception {
        Properties settings = new Properties();
        String mechanism = given.get("mechanism").asText();
        String authority = given.get("authority").asText();
        String ends = authority.isEmpty() ? "PLAINTEXT" : "SSL";
        String serializer = "org.apache.kafka.common.serialization.ByteArraySerializer";
        settings.put("bootstrap.servers", given.get("address").asText());
        settings.put("security.protocol", mechanism.isEmpty() ? ends : "SASL_" + ends);
        settings.put("key.serializer", serializer);
        settings.put("value.serializer", serializer);
        settings.put("max.block.ms", 30_000); // a refusal ends it at once
        if (!mechanism.isEmpty()) {
            settings.put("sasl.mechanism", mechanism);
            settings.put("sasl.jaas.config", module(given, mechanism));
        }
        if (mechanism.equals("OAUTHBEARER")) {
            settings.put("sasl.login.callback.handler.class", GivenToken.class.getName());
        }
        if (!authority.isEmpty()) {
            settings.put("ssl.endpoint.identification.algorithm", "https");
            KeyStore trusted = store();
            trusted.setCertificateEntry("authority", certificate(authority));
            settings.put("ssl.truststore.type", "PKCS12");
            settings.put("ssl.truststore.location", save(trusted));
            settings.put("ssl.truststore.password", SECRET);
        }
        if (!given.get("certificate").asText().isEmpty()) {
            KeyStore mine = store();
            Certificate[] chain = {certificate(given.get("certificate").asText())};
            PrivateKey key = key(given.get("key").asText());
            mine.setKeyEntry("client", key, SECRET.toCharArray(), chain);
            settings.put("ssl.keystore.type", "PKCS12");
            settings.put("ssl.keystore.location", save(mine));
            settings.put("ssl.keystore.password", SECRET);
            settings.put("ssl.key.password", SECRET);
        }
        return settings;
    }

    static String module(JsonNode given, String mechanism) {
        String package_ = "org.apache.kafka.common.security.";
        if (mechanism.equals("OAUTHBEARER")) {
            return package_ + "oauthbearer.OAuthBearerLoginModule required;";
        }
        String name = mechanism.equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
        return String.format(
                "%s%s required username=\"%s\" password=\"%s\";",
                package_, name, given.get("user").asText(), given.get("password").asText());
    }

    static KeyStore store() throws Exception {
        KeyStore made = KeyStore.getInstance("PKCS12");
        made.load(null, null);
        return made;
    }

    static String save(KeyStore store) throws Exception {
        File file = File.createTempFile("logins", ".p12");
        file.deleteOnExit();
        try (FileOutputStream output = new FileOutputStream(file)) {
            store.store(output, SECRET.toCharArray());
        }
        return file.getPath();
    }

    static Certificate certificate(String path) throws Exception {
        try (InputStream input = Files.newInputStream(Paths.get(path))) {
            return CertificateFactory.getInstance("X.509").generateCertificate(input);
        }
    }

    static PrivateKey key(String path) throws Exception {
        String text = new String(Files.readAllBytes(Paths.get(path)));
        byte[] encoded = Base64.getMimeDecoder().decode(text.replaceAll("-----[A-Z ]+-----", ""));
        PKCS8EncodedKeySpec spec = new PKCS8EncodedKeySpec(encoded);
        try {
            return KeyFactory.getInstance("EC").generatePrivate(spec);
        } catch (InvalidKeySpecException another) {
            return KeyFactory.getInstance("RSA").generatePrivate(spec);
        }
    }

    /** Gives the client the token of the attempt. */
    public static class GivenToken implements AuthenticateCallbackHandler {
        @Override
        public void configure(
                Map<String, ?> settings, String mechanism, List<AppConfigurationEntry> entries) {}

        @Override
        public void handle(Callback[] callbacks) {
            for (Callback each : callbacks) {
                if (each instanceof OAuthBearerTokenCallback) {
                    ((OAuthBearerTokenCallback) each).token(new Token());
                }
            }
        }

        @Override
        public void close() {}
    }

    static class Token implements OAuthBearerToken {
        @Override
        public String value() {
            return token;
        }

        @Override
        public Set<String> scope() {
            return Collections.emptySet();
        }

        @Override
        public long lifetimeMs() {
            return System.currentTimeMillis() + 600_000;
        }

        @Override
        public String principalName() {
            return "alice";
        }

        @Override
        public Long startTimeMs() {
            return System.currentTimeMillis();
        }
    }
}
