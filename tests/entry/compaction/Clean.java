// Reads lines "batch-in-hex kept-offsets now delete-retention empty-transaction", lets Kafka's own
// cleaner filter the batch, and answers with the bytes that it keeps. One line in, one line out; an
// exception is answered by its text. Kept offsets are joined by commas; "-" stands for none.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.Set;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.utils.BufferSupplier;

public class Clean {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String answer;
            try {
                answer = clean(line.split(" ", -1));
            } catch (Throwable problem) {
                answer = String.valueOf(problem).replace('\n', ' ');
            }
            System.out.println(answer);
        }
    }

    static String clean(String[] words) throws Exception {
        ByteBuffer in = ByteBuffer.wrap(HexFormat.of().parseHex(words[0]));
        Set<Long> kept = new HashSet<>();
        if (!words[1].equals("-")) {
            for (String offset : words[1].split(",")) {
                kept.add(Long.parseLong(offset));
            }
        }
        boolean emptyTransaction = Boolean.parseBoolean(words[4]);
        MemoryRecords.RecordFilter filter =
            new MemoryRecords.RecordFilter(Long.parseLong(words[2]), Long.parseLong(words[3])) {
                @Override
                protected BatchRetentionResult checkBatchRetention(RecordBatch batch) {
                    return new BatchRetentionResult(BatchRetention.RETAIN_EMPTY, emptyTransaction);
                }

                @Override
                protected boolean shouldRetainRecord(RecordBatch batch, Record record) {
                    return kept.contains(record.offset());
                }
            };
        ByteBuffer out = ByteBuffer.allocate(1 << 20);
        MemoryRecords.readableRecords(in).filterTo(
            new TopicPartition("t", 0), filter, out, Integer.MAX_VALUE, BufferSupplier.NO_CACHING);
        out.flip();
        byte[] bytes = new byte[out.remaining()];
        out.get(bytes);
        return HexFormat.of().formatHex(bytes);
    }
}
