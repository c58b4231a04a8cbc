// Writes records with Kafka's own producer, for kferry's tests.
//
//   java -cp 'CLASSES:LIBS/*' Writer PROPERTIES
//
// Standard input has one JSON object a line: a record
//   {"topic","partition","key","value","headers":[{"key","value"}],"timestamp"}   (bytes in base64, null is null)
// or an order, answered by the line "done" on standard output once it is carried out:
//   {"order":"flush"|"begin"|"commit"|"abort"}   {"order":"codec","codec":"zstd"}
// "codec" flushes and goes on with a producer of that compression.type. At the end of the input all is flushed. Any
// record that is not acknowledged ends the program with exit code 1 and the reason on standard error.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.MappingIterator;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.FileInputStream;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Writer {
    private final Properties properties = new Properties();
    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>(); // by codec
    private final AtomicReference<Exception> failure = new AtomicReference<>();
    private KafkaProducer<byte[], byte[]> producer;

    public static void main(String[] args) throws Exception {
        Writer writer = new Writer();
        try (FileInputStream in = new FileInputStream(args[0])) {
            writer.properties.load(in);
        }
        writer.use(writer.properties.getProperty("compression.type", "none"));
        try (MappingIterator<JsonNode> lines = new ObjectMapper().readerFor(JsonNode.class).readValues(System.in)) {
            while (lines.hasNextValue()) {
                writer.take(lines.nextValue());
            }
        }
        writer.flush();
        writer.producers.values().forEach(KafkaProducer::close);
    }

    private void take(JsonNode line) throws Exception {
        JsonNode order = line.get("order");
        if (order == null) {
            send(line);
            return;
        }
        switch (order.asText()) {
            case "flush" -> flush();
            case "begin" -> producer.beginTransaction();
            case "commit" -> producer.commitTransaction();
            case "abort" -> {
                flush(); // or the records of the aborted transaction never reach the log
                producer.abortTransaction();
            }
            case "codec" -> use(line.get("codec").asText());
            default -> throw new IllegalArgumentException("unknown order " + order);
        }
        System.out.println("done");
        System.out.flush();
    }

    private void send(JsonNode line) throws Exception {
        List<Header> headers = new ArrayList<>();
        if (line.hasNonNull("headers")) {
            for (JsonNode h : line.get("headers")) {
                headers.add(new RecordHeader(h.get("key").asText(), bytes(h.get("value"))));
            }
        }
        producer.send(new ProducerRecord<>(line.get("topic").asText(), line.get("partition").asInt(), line.get("timestamp").asLong(),
                bytes(line.get("key")), bytes(line.get("value")), headers),
            (metadata, e) -> {
                if (e != null) {
                    failure.compareAndSet(null, e);
                }
            });
    }

    private static byte[] bytes(JsonNode node) throws Exception {
        return node == null || node.isNull() ? null : node.binaryValue();
    }

    private void flush() throws Exception {
        producer.flush();
        if (failure.get() != null) {
            throw failure.get();
        }
    }

    private void use(String codec) throws Exception {
        if (producer != null) {
            flush();
        }
        producer = producers.get(codec);
        if (producer == null) {
            properties.setProperty("compression.type", codec);
            producer = new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
            if (properties.containsKey("transactional.id")) {
                producer.initTransactions();
            }
            producers.put(codec, producer);
        }
    }
}
