package interop;

import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.messaging.eventhubs.EventData;
import com.azure.messaging.eventhubs.EventHubProducerClient;
import com.azure.messaging.eventhubs.EventProcessorClient;
import com.azure.messaging.eventhubs.EventProcessorClientBuilder;
import com.azure.messaging.eventhubs.LoadBalancingStrategy;
import com.azure.messaging.eventhubs.checkpointstore.blob.BlobCheckpointStore;
import com.azure.messaging.eventhubs.models.EventPosition;
import com.azure.storage.blob.BlobContainerAsyncClient;
import com.azure.storage.blob.BlobContainerClientBuilder;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;

/** The SDK's own event processor with its blob checkpoint store, and what feeds it. */
final class Processor {
    private Processor() {}

    static void processor(JsonNode context) throws Exception {
        BlobContainerAsyncClient container = new BlobContainerClientBuilder()
            .connectionString(context.get("blob").get("connection_string").asText())
            .containerName(context.get("blob").get("container").asText())
            .buildAsyncClient();
        Map<String, EventPosition> earliest = new HashMap<>();
        for (int partition = 0; partition < context.get("hubs").get("processors").asInt(); partition++) {
            earliest.put("" + partition, EventPosition.earliest());
        }
        EventProcessorClient client = new EventProcessorClientBuilder()
            .connectionString(context.get("connection_string").asText(), "processors")
            .consumerGroup("$Default")
            .checkpointStore(new BlobCheckpointStore(container))
            .initialPartitionEventPosition(earliest)
            .loadBalancingStrategy(LoadBalancingStrategy.GREEDY)
            .loadBalancingUpdateInterval(Duration.ofMillis(context.get("interval_ms").asLong()))
            .partitionOwnershipExpirationInterval(Duration.ofMillis(context.get("expiry_ms").asLong()))
            .retryOptions(new AmqpRetryOptions().setTryTimeout(Duration.ofSeconds(15)))
            .processEvent(event -> {
                int number = Integer.parseInt(event.getEventData().getBodyAsString());
                say("event", event.getPartitionContext().getPartitionId(), number);
                if (number % 10 == 0) {
                    event.updateCheckpoint();
                }
            })
            .processError(error -> System.err.println(error.getPartitionContext().getPartitionId() + ": " + error.getThrowable()))
            .buildEventProcessorClient();
        client.start();
        Main.told(); // until the harness closes the pipe
    }

    static void feeder(JsonNode context) throws Exception {
        AtomicBoolean stop = new AtomicBoolean();
        Thread listener = new Thread(() -> {
            try {
                Main.told();
            } catch (Exception closed) {
                // the same to us
            }
            stop.set(true);
        });
        listener.setDaemon(true);
        listener.start();
        try (EventHubProducerClient client = Client.builder(context, "processors").buildProducerClient()) {
            for (int number = 0; !stop.get(); number++) {
                for (int partition = 0; partition < context.get("hubs").get("processors").asInt(); partition++) {
                    client.send(List.of(new EventData("" + number)), Client.to("" + partition));
                    say("sent", "" + partition, number);
                }
                Thread.sleep(200);
            }
        }
    }

    private static void say(String what, String partition, int number) {
        ObjectNode line = Main.object();
        line.putArray(what).add(partition).add(number);
        Main.say(line);
    }
}
