package interop;

import static interop.Cases.same;
import static interop.Client.until;

import com.fasterxml.jackson.databind.JsonNode;
import com.microsoft.azure.eventhubs.EventData;
import com.microsoft.azure.eventprocessorhost.EventProcessorHost;
import com.microsoft.azure.eventprocessorhost.InMemoryCheckpointManager;
import com.microsoft.azure.eventprocessorhost.InMemoryLeaseManager;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;

/** Hosts whose leases and checkpoints are not in blob storage. */
final class HostCases {
    private static final int PARTITIONS = 4;
    private final JsonNode context;
    /** What was handled, in order. */
    private final List<String> handled = new CopyOnWriteArrayList<>();
    /** Which host handled the last event of a partition. */
    private final Map<String, String> readers = new ConcurrentHashMap<>();

    HostCases(JsonNode context) {
        this.context = context;
    }

    private void start(EventProcessorHost host, String name) throws Exception {
        Host.start(host, (partition, event) -> {
            readers.put(partition, name);
            handled.add(Client.body(event));
        });
    }

    private List<String> send(String hub, String word) throws Exception {
        List<String> sent = new ArrayList<>();
        for (int partition = 0; partition < PARTITIONS; partition++) {
            List<EventData> events = Client.numbered(word + "-" + partition, 5);
            Client.send(context, hub, "" + partition, events);
            sent.addAll(Client.bodies(events));
        }
        return sent;
    }

    private void awaitHandled(List<String> sent) throws Exception {
        until(40, () -> handled.containsAll(sent), () -> handled.size() + " handled: " + handled);
    }

    /** Two hosts on the managers that the SDK has for tests: they share the partitions. */
    void inMemory() throws Exception {
        List<EventProcessorHost> hosts = new ArrayList<>();
        for (String name : List.of("first", "second")) {
            InMemoryLeaseManager leases = new InMemoryLeaseManager();
            InMemoryCheckpointManager checkpoints = new InMemoryCheckpointManager();
            EventProcessorHost host = Host.builder(name).useUserCheckpointAndLeaseManagers(checkpoints, leases)
                .useEventHubConnectionString(Client.string(context, "hosts-memory")).build();
            initialize(host, leases, checkpoints);
            start(host, name);
            hosts.add(host);
        }
        Map<String, Integer> shares = new HashMap<>();
        for (int round = 0; round < 20 && !shares.equals(Map.of("first", 2, "second", 2)); round++) {
            awaitHandled(send("hosts-memory", "round-" + round));
            shares.clear();
            readers.values().forEach(name -> shares.merge(name, 1, Integer::sum));
        }
        same(shares, Map.of("first", 2, "second", 2));
        for (EventProcessorHost host : hosts) {
            host.unregisterEventProcessor().get();
        }
    }

    /** The managers in memory ask for a context that only their own package sees, whose jar is signed. */
    private static void initialize(EventProcessorHost host, Object... managers) throws Exception {
        Method contextOf = EventProcessorHost.class.getDeclaredMethod("getHostContext");
        contextOf.setAccessible(true);
        Object hostContext = contextOf.invoke(host);
        for (Object manager : managers) {
            manager.getClass().getMethod("initialize", hostContext.getClass()).invoke(manager, hostContext);
        }
    }

    /** One host alone on managers of a user's own; it stops in order, and the next one goes on exactly where it stopped. */
    void ownManagers() throws Exception {
        Managers.Table table = new Managers.Table();
        List<String> sent = new ArrayList<>();
        for (String name : List.of("one", "next")) {
            Managers managers = new Managers(table, name);
            EventProcessorHost host = Host.builder(name).useUserCheckpointAndLeaseManagers(managers, managers)
                .useEventHubConnectionString(Client.string(context, "hosts-own")).build();
            start(host, name);
            sent.addAll(send("hosts-own", name));
            awaitHandled(sent);
            same(new HashSet<>(readers.values()), Set.of(name));
            host.unregisterEventProcessor().get();
        }
        same(handled.size(), sent.size()); // nothing was handled twice
    }
}
