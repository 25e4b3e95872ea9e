package interop;

import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.messaging.eventhubs.EventData;
import com.azure.messaging.eventhubs.EventHubClientBuilder;
import com.azure.messaging.eventhubs.EventHubConsumerAsyncClient;
import com.azure.messaging.eventhubs.EventHubProducerClient;
import com.azure.messaging.eventhubs.models.EventPosition;
import com.azure.messaging.eventhubs.models.LastEnqueuedEventProperties;
import com.azure.messaging.eventhubs.models.ReceiveOptions;
import com.azure.messaging.eventhubs.models.SendOptions;
import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.BooleanSupplier;
import java.util.function.Supplier;
import reactor.core.Disposable;

/** The few helpers that all roles share. */
final class Client {
    private Client() {}

    static EventHubClientBuilder builder(String connectionString, String hub) {
        return new EventHubClientBuilder()
            .connectionString(connectionString, hub)
            .consumerGroup(EventHubClientBuilder.DEFAULT_CONSUMER_GROUP_NAME)
            .retryOptions(new AmqpRetryOptions().setTryTimeout(Duration.ofSeconds(15)));
    }

    static EventHubClientBuilder builder(JsonNode context, String hub) {
        return builder(context.get("connection_string").asText(), hub);
    }

    /** One that reports an error instead of trying again for long. */
    static EventHubClientBuilder once(EventHubClientBuilder builder) {
        return builder.retryOptions(new AmqpRetryOptions().setMaxRetries(0).setTryTimeout(Duration.ofSeconds(20)));
    }

    static SendOptions to(String partition) {
        return new SendOptions().setPartitionId(partition);
    }

    /** Sends events as one batch. */
    static void send(JsonNode context, String hub, List<EventData> events, SendOptions target) {
        try (EventHubProducerClient producer = builder(context, hub).buildProducerClient()) {
            producer.send(events, target);
        }
    }

    static List<EventData> numbered(String word, int count) {
        List<EventData> events = new ArrayList<>();
        for (int n = 0; n < count; n++) {
            events.add(new EventData(word + "-" + n));
        }
        return events;
    }

    static List<String> names(String word, int from, int to) {
        List<String> names = new ArrayList<>();
        for (int n = from; n < to; n++) {
            names.add(word + "-" + n);
        }
        return names;
    }

    static List<String> bodies(List<EventData> events) {
        return events.stream().map(EventData::getBodyAsString).toList();
    }

    /** Reads this many events from the beginning of a partition. */
    static List<EventData> read(JsonNode context, String hub, String partition, int count) throws Exception {
        return read(context, hub, partition, count, EventPosition.earliest());
    }

    static List<EventData> read(JsonNode context, String hub, String partition, int count, EventPosition from) throws Exception {
        try (Reader reader = new Reader(builder(context, hub), partition, from, new ReceiveOptions())) {
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

    /** Reads one partition in the background. */
    static final class Reader implements AutoCloseable {
        final List<EventData> events = new CopyOnWriteArrayList<>();
        final List<Throwable> errors = new CopyOnWriteArrayList<>();
        volatile LastEnqueuedEventProperties info;
        private final EventHubConsumerAsyncClient client;
        private final Disposable subscription;

        Reader(EventHubClientBuilder builder, String partition, EventPosition from, ReceiveOptions options) {
            client = builder.buildAsyncConsumerClient();
            subscription = client.receiveFromPartition(partition, from, options).subscribe(
                event -> {
                    info = event.getLastEnqueuedEventProperties();
                    events.add(event.getData());
                },
                errors::add,
                () -> errors.add(new IllegalStateException("the stream ended")));
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
        public void close() {
            subscription.dispose();
            client.close();
        }
    }
}
