import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Reads what it is told to: "assign A 0 7 A 1 9" (from offset 7 of A-0 on), "pause", "resume", "seek", each
 * answered by "done".
 */
public class Reading {
    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", args[0]);
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        properties.put("metadata.max.age.ms", "500");
        properties.put("fetch.max.wait.ms", "50");
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        StringDeserializer text = new StringDeserializer();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(properties, text, text)) {
            while (true) {
                while (consumer.assignment().isEmpty() || orders.ready()) {
                    String order = orders.readLine();
                    if (order == null || order.equals("end")) {
                        return;
                    }
                    obey(consumer, order.split(" "));
                    System.out.println("done");
                }
                for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofMillis(50))) {
                    System.out.println("read " + each.topic() + " " + each.partition() + " " + each.offset() + " " + each.value());
                }
            }
        }
    }

    private static void obey(KafkaConsumer<String, String> consumer, String[] words) {
        Map<TopicPartition, Long> offsets = new HashMap<>();
        for (int at = 1; at < words.length; at += 3) {
            offsets.put(new TopicPartition(words[at], Integer.parseInt(words[at + 1])), Long.parseLong(words[at + 2]));
        }
        switch (words[0]) {
            case "pause" -> consumer.pause(offsets.keySet());
            case "resume" -> consumer.resume(offsets.keySet());
            case "assign" -> {
                consumer.assign(offsets.keySet());
                offsets.forEach(consumer::seek);
            }
            default -> offsets.forEach(consumer::seek);
        }
    }
}
