// Reads "Class version hex" lines, lets Kafka's own class parse the bytes, and answers with the
// bytes that it writes. One line in, one line out; an exception is answered by its text.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

public class Rewrite {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String answer;
            try {
                String[] words = line.split(" ", -1);
                answer = rewrite(words[0], Short.parseShort(words[1]), words[2]);
            } catch (Throwable problem) {
                answer = String.valueOf(problem).replace('\n', ' ');
            }
            System.out.println(answer);
        }
    }

    static String rewrite(String name, short version, String hex) throws Exception {
        Class<?> kind = Class.forName("org.apache.kafka.common.message." + name + "Data");
        ApiMessage message = (ApiMessage) kind.getDeclaredConstructor().newInstance();
        ByteBuffer in = ByteBuffer.wrap(HexFormat.of().parseHex(hex));
        message.read(new ByteBufferAccessor(in), version);
        if (in.hasRemaining()) {
            return in.remaining() + " bytes left over";
        }
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer out = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(out), cache, version);
        return HexFormat.of().formatHex(out.array());
    }
}
