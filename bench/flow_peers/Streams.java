// Kafka Streams, exactly_once_v2, two threads, every update written (no record cache); all else as it comes.
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

public class Streams {
    public static void main(String[] arguments) throws Exception {
        var given = System.getenv();
        var set = new Properties();
        set.put(StreamsConfig.APPLICATION_ID_CONFIG, given.get("FLOW_APP"));
        set.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, given.get("FLOW_SERVERS"));
        set.put(StreamsConfig.STATE_DIR_CONFIG, given.get("FLOW_STATE"));
        set.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
        set.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        set.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        set.put("auto.offset.reset", "earliest");
        var text = Serdes.String();
        set.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, text.getClass());
        set.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, text.getClass());

        var builder = new StreamsBuilder();
        var views = builder.stream(given.get("FLOW_IN"), Consumed.with(text, text));
        if (arguments[0].equals("regroup")) {
            views.selectKey((key, value) -> value.substring(0, 8)).to(given.get("FLOW_BETWEEN"), Produced.with(text, text));
            views = builder.stream(given.get("FLOW_BETWEEN"), Consumed.with(text, text));
        }
        views.groupByKey().count(Materialized.as("counts")).toStream().mapValues(seen -> seen.toString())
            .to(given.get("FLOW_OUT"), Produced.with(text, text));

        var streams = new KafkaStreams(builder.build(), set);
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
        Thread.currentThread().join();
    }
}
