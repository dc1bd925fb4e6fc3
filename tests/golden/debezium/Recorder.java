import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Properties;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/** Writes what Debezium's engine sends, a line for each record: topic, key and value, the last two in base64 or "-" for none. */
public final class Recorder {
    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        try (FileInputStream in = new FileInputStream(args[0])) {
            properties.load(in);
        }
        PrintStream out = new PrintStream(new FileOutputStream(args[1], true), true, StandardCharsets.UTF_8);
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class)
            .using(properties)
            .notifying(event -> out.println(event.destination() + " " + encoded(event.key()) + " " + encoded(event.value())))
            .using((success, message, error) -> {
                if (!success) {
                    System.err.println(message);
                    if (error != null) {
                        error.printStackTrace();
                    }
                }
            })
            .build();
        ExecutorService executor = Executors.newSingleThreadExecutor();
        executor.execute(engine);
        while (System.in.read() >= 0) {
            // until the recorder is told to end, by the end of its input
        }
        engine.close();
        executor.shutdown();
    }

    private static String encoded(String text) {
        return text == null ? "-" : Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }
}
