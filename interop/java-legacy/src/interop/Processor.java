package interop;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.microsoft.azure.eventhubs.EventHubClient;
import com.microsoft.azure.eventhubs.PartitionSender;
import com.microsoft.azure.eventprocessorhost.EventProcessorHost;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;

/** The SDK's EventProcessorHost with its leases and checkpoints in blob storage, and what feeds it. */
final class Processor {
    private Processor() {}

    static void processor(JsonNode context) throws Exception {
        EventProcessorHost host = Host.builder(EventProcessorHost.createHostName(context.get("instance").asText()))
            .useAzureStorageCheckpointLeaseManager(context.get("blob").get("connection_string").asText(),
                context.get("blob").get("container").asText(), null)
            .useEventHubConnectionString(Client.string(context, "processors"))
            .build();
        Host.start(host, (partition, event) -> say("event", partition, Integer.parseInt(Client.body(event))));
        if (Main.told() != null) { // asked to stop in order; otherwise the harness has closed the pipe
            host.unregisterEventProcessor().get();
            Main.say(Main.object().put("stopped", true));
        }
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
        EventHubClient client = Client.client(context, "processors");
        List<PartitionSender> senders = new ArrayList<>();
        for (int partition = 0; partition < context.get("hubs").get("processors").asInt(); partition++) {
            senders.add(client.createPartitionSenderSync("" + partition));
        }
        for (int number = 0; !stop.get(); number++) {
            for (PartitionSender sender : senders) {
                sender.sendSync(Client.event("" + number));
                say("sent", sender.getPartitionId(), number);
            }
            Thread.sleep(200);
        }
        client.closeSync();
    }

    private static void say(String what, String partition, int number) {
        ObjectNode line = Main.object();
        line.putArray(what).add(partition).add(number);
        Main.say(line);
    }
}
