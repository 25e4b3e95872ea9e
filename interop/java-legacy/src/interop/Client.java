package interop;

import com.fasterxml.jackson.databind.JsonNode;
import com.microsoft.azure.eventhubs.EventData;
import com.microsoft.azure.eventhubs.EventHubClient;
import com.microsoft.azure.eventhubs.EventPosition;
import com.microsoft.azure.eventhubs.PartitionReceiveHandler;
import com.microsoft.azure.eventhubs.PartitionReceiver;
import com.microsoft.azure.eventhubs.ReceiverOptions;
import com.microsoft.azure.eventhubs.RetryPolicy;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.function.BooleanSupplier;
import java.util.function.Supplier;

/** The few helpers that all roles share. */
final class Client {
    static final ScheduledExecutorService THREADS = Executors.newScheduledThreadPool(32, work -> {
        Thread thread = new Thread(work);
        thread.setDaemon(true);
        return thread;
    });

    private Client() {}

    /** This SDK knows neither ports nor the emulator's flag: it connects to port 5671 with TLS, where the harness's doorway listens. */
    static String string(String connectionString, String hub) {
        return connectionString.replaceAll("localhost:\\d+", "localhost").replace("UseDevelopmentEmulator=true;", "")
            .replaceAll(";$", "") + ";EntityPath=" + hub;
    }

    static String string(JsonNode context, String hub) {
        return string(context.get("connection_string").asText(), hub);
    }

    static EventHubClient client(String connectionString, String hub) throws Exception {
        return EventHubClient.createFromConnectionStringSync(string(connectionString, hub), THREADS);
    }

    static EventHubClient client(JsonNode context, String hub) throws Exception {
        return client(context.get("connection_string").asText(), hub);
    }

    /** One that reports an error instead of trying again for long. */
    static EventHubClient once(String connectionString, String hub) throws Exception {
        String string = string(connectionString, hub) + ";OperationTimeout=PT20S";
        return EventHubClient.createFromConnectionStringSync(string, RetryPolicy.getNoRetry(), THREADS);
    }

    static EventHubClient once(JsonNode context, String hub) throws Exception {
        return once(context.get("connection_string").asText(), hub);
    }

    static EventData event(String body) {
        return EventData.create(body.getBytes(StandardCharsets.UTF_8));
    }

    static String body(EventData event) {
        return new String(event.getBytes(), StandardCharsets.UTF_8);
    }

    static List<String> bodies(List<EventData> events) {
        return events.stream().map(Client::body).toList();
    }

    static List<EventData> numbered(String word, int count) {
        return names(word, 0, count).stream().map(Client::event).toList();
    }

    static List<String> names(String word, int from, int to) {
        List<String> names = new ArrayList<>();
        for (int n = from; n < to; n++) {
            names.add(word + "-" + n);
        }
        return names;
    }

    /** Sends events to a partition as one batch. */
    static void send(JsonNode context, String hub, String partition, List<EventData> events) throws Exception {
        EventHubClient client = client(context, hub);
        try {
            client.createPartitionSenderSync(partition).sendSync(events);
        } finally {
            client.closeSync();
        }
    }

    /** Reads this many events from the beginning of a partition. */
    static List<EventData> read(JsonNode context, String hub, String partition, int count) throws Exception {
        return read(context, hub, partition, count, EventPosition.fromStartOfStream());
    }

    static List<EventData> read(JsonNode context, String hub, String partition, int count, EventPosition from) throws Exception {
        try (Reader reader = new Reader(client(context, hub), partition, from, null)) {
            return reader.take(count);
        }
    }

    static void until(int seconds, BooleanSupplier condition, Supplier<String> what) throws InterruptedException {
        long deadline = System.currentTimeMillis() + seconds * 1000L;
        while (!condition.getAsBoolean()) {
            if (System.currentTimeMillis() > deadline) {
                throw new AssertionError("not within " + seconds + " s: " + what.get());
            }
            Thread.sleep(20);
        }
    }

    /** Reads one partition in the background, with a client of its own, which it closes. */
    static final class Reader implements AutoCloseable, PartitionReceiveHandler {
        final List<EventData> events = new CopyOnWriteArrayList<>();
        final List<Throwable> errors = new CopyOnWriteArrayList<>();
        final PartitionReceiver receiver;
        private final EventHubClient client;

        /** With an owner level where one is given. A reader that is refused throws here. */
        Reader(EventHubClient client, String partition, EventPosition from, Long level) throws Exception {
            this.client = client;
            String group = EventHubClient.DEFAULT_CONSUMER_GROUP_NAME;
            ReceiverOptions options = new ReceiverOptions();
            options.setReceiverRuntimeMetricEnabled(true);
            try {
                receiver = level == null ? client.createReceiverSync(group, partition, from, options)
                    : client.createEpochReceiverSync(group, partition, from, level, options);
            } catch (Exception refused) {
                client.closeSync();
                throw refused;
            }
            receiver.setReceiveHandler(this);
        }

        @Override
        public int getMaxEventCount() {
            return 500;
        }

        @Override
        public void onReceive(Iterable<EventData> found) {
            if (found != null) {
                found.forEach(events::add);
            }
        }

        @Override
        public void onError(Throwable error) {
            errors.add(error);
        }

        List<EventData> take(int count) throws InterruptedException {
            until(20, () -> events.size() >= count, () -> events.size() + " of " + count + " events, errors " + errors);
            return events;
        }

        Throwable error() throws InterruptedException {
            until(30, () -> !errors.isEmpty(), () -> "no error, " + events.size() + " events");
            return errors.get(0);
        }

        @Override
        public void close() throws Exception {
            client.close();
        }
    }
}
