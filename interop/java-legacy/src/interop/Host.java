package interop;

import com.microsoft.azure.eventhubs.EventData;
import com.microsoft.azure.eventhubs.EventHubClient;
import com.microsoft.azure.eventhubs.EventPosition;
import com.microsoft.azure.eventprocessorhost.CloseReason;
import com.microsoft.azure.eventprocessorhost.EventProcessorHost;
import com.microsoft.azure.eventprocessorhost.EventProcessorOptions;
import com.microsoft.azure.eventprocessorhost.IEventProcessor;
import com.microsoft.azure.eventprocessorhost.PartitionContext;
import com.microsoft.azure.eventprocessorhost.PartitionManagerOptions;
import java.time.Duration;
import java.util.function.BiConsumer;

/** An EventProcessorHost, set up as its documentation does, with the shortest times that it allows. */
final class Host {
    private Host() {}

    static EventProcessorHost.EventProcessorHostBuilder.ManagerStep builder(String name) {
        return EventProcessorHost.EventProcessorHostBuilder.newBuilder(name, EventHubClient.DEFAULT_CONSUMER_GROUP_NAME);
    }

    /** Starts a host that tells of each event, and checkpoints the last of each call. */
    static void start(EventProcessorHost host, BiConsumer<String, EventData> onEvent) throws Exception {
        PartitionManagerOptions times = host.getPartitionManagerOptions();
        times.setLeaseDurationInSeconds(15);
        times.setLeaseRenewIntervalInSeconds(5);
        times.setStartupScanDelayInSeconds(1);
        times.setFastScanIntervalInSeconds(1);
        times.setSlowScanIntervalInSeconds(2);
        EventProcessorOptions options = new EventProcessorOptions();
        options.setExceptionNotification(error -> System.err.println(error.getPartitionId() + ", " + error.getAction() + ": "
            + error.getException()));
        options.setInitialPositionProvider(partition -> EventPosition.fromStartOfStream());
        options.setReceiveTimeOut(Duration.ofSeconds(2)); // a stop waits for it
        host.registerEventProcessorFactory(context -> new Processor(onEvent), options).get();
    }

    private record Processor(BiConsumer<String, EventData> onEvent) implements IEventProcessor {
        @Override
        public void onOpen(PartitionContext context) {
            System.err.println(context.getPartitionId() + " opened");
        }

        @Override
        public void onClose(PartitionContext context, CloseReason reason) {
            System.err.println(context.getPartitionId() + " closed: " + reason);
        }

        @Override
        public void onError(PartitionContext context, Throwable error) {
            System.err.println(context.getPartitionId() + ": " + error);
        }

        @Override
        public void onEvents(PartitionContext context, Iterable<EventData> events) throws Exception {
            EventData last = null;
            for (EventData event : events) {
                onEvent.accept(context.getPartitionId(), event);
                last = event;
            }
            if (last != null) {
                context.checkpoint(last).get();
            }
        }
    }
}
