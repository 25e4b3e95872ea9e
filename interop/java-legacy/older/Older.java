import com.microsoft.azure.eventhubs.EventData;
import com.microsoft.azure.eventhubs.EventHubClient;
import com.microsoft.azure.eventhubs.EventPosition;
import com.microsoft.azure.eventhubs.PartitionReceiver;
import java.time.Duration;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;

/** Sends one event to a partition with version 2 of the SDK and reads it back: `Older CONNECTION_STRING PARTITION BODY`. */
public final class Older {
    public static void main(String[] arguments) throws Exception {
        ScheduledExecutorService threads = Executors.newScheduledThreadPool(2);
        EventHubClient client = EventHubClient.createSync(arguments[0], threads);
        PartitionReceiver reader = client.createReceiverSync(
            EventHubClient.DEFAULT_CONSUMER_GROUP_NAME, arguments[1], EventPosition.fromEndOfStream());
        reader.setReceiveTimeout(Duration.ofSeconds(20));
        client.createPartitionSenderSync(arguments[1]).sendSync(EventData.create(arguments[2].getBytes()));
        Iterable<EventData> found = reader.receiveSync(1);
        String body = found == null ? null : new String(found.iterator().next().getBytes());
        client.closeSync();
        System.out.println(body);
        System.exit(arguments[2].equals(body) ? 0 : 1);
    }
}
