// Reads topics with Kafka's own consumer, from their starts to the ends that they have now, for kferry's tests.
//
//   java -cp 'CLASSES:LIBS/*' Reader PROPERTIES TOPIC...
//
// Standard output has one JSON object a record, bytes in base64, null is null:
//   {"topic","partition","offset","timestamp","timestampType","key","value","headers":[{"key","value"}]}

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import java.io.BufferedOutputStream;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class Reader {
    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        try (FileInputStream in = new FileInputStream(args[0])) {
            properties.load(in);
        }
        OutputStream out = new BufferedOutputStream(System.out, 1 << 20);
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
             JsonGenerator json = new JsonFactory().createGenerator(out)) {
            List<TopicPartition> partitions = new ArrayList<>();
            for (int i = 1; i < args.length; i++) {
                List<PartitionInfo> known = consumer.partitionsFor(args[i]);
                if (known == null || known.isEmpty()) {
                    throw new IllegalArgumentException("no topic " + args[i]);
                }
                for (PartitionInfo p : known) {
                    partitions.add(new TopicPartition(p.topic(), p.partition()));
                }
            }
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            List<TopicPartition> open = new ArrayList<>(partitions);
            while (true) {
                // The position passes control records, aborted batches and holes, which no record shows.
                open.removeIf(p -> consumer.position(p) >= ends.get(p));
                if (open.isEmpty()) {
                    break;
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    if (record.offset() < ends.get(new TopicPartition(record.topic(), record.partition()))) {
                        write(json, record);
                    }
                }
            }
        }
    }

    private static void write(JsonGenerator json, ConsumerRecord<byte[], byte[]> record) throws IOException {
        json.writeStartObject();
        json.writeStringField("topic", record.topic());
        json.writeNumberField("partition", record.partition());
        json.writeNumberField("offset", record.offset());
        json.writeNumberField("timestamp", record.timestamp());
        json.writeStringField("timestampType", record.timestampType().toString());
        bytes(json, "key", record.key());
        bytes(json, "value", record.value());
        json.writeArrayFieldStart("headers");
        for (Header h : record.headers()) {
            json.writeStartObject();
            json.writeStringField("key", h.key());
            bytes(json, "value", h.value());
            json.writeEndObject();
        }
        json.writeEndArray();
        json.writeEndObject();
        json.writeRaw('\n');
    }

    private static void bytes(JsonGenerator json, String name, byte[] value) throws IOException {
        if (value == null) {
            json.writeNullField(name);
        } else {
            json.writeBinaryField(name, value);
        }
    }
}
