package interop;

import static interop.Client.bodies;
import static interop.Client.body;
import static interop.Client.client;
import static interop.Client.event;
import static interop.Client.names;
import static interop.Client.numbered;
import static interop.Client.once;
import static interop.Client.read;
import static interop.Client.send;
import static interop.Client.string;
import static interop.Client.until;

import com.fasterxml.jackson.databind.JsonNode;
import com.microsoft.azure.eventhubs.AuthorizationFailedException;
import com.microsoft.azure.eventhubs.EventData;
import com.microsoft.azure.eventhubs.EventDataBatch;
import com.microsoft.azure.eventhubs.EventHubClient;
import com.microsoft.azure.eventhubs.EventHubRuntimeInformation;
import com.microsoft.azure.eventhubs.EventPosition;
import com.microsoft.azure.eventhubs.IllegalEntityException;
import com.microsoft.azure.eventhubs.PartitionReceiver;
import com.microsoft.azure.eventhubs.PartitionRuntimeInformation;
import com.microsoft.azure.eventhubs.PartitionSender;
import com.microsoft.azure.eventhubs.PayloadSizeExceededException;
import com.microsoft.azure.eventhubs.QuotaExceededException;
import com.microsoft.azure.eventhubs.ReceiverDisconnectedException;
import com.microsoft.azure.eventhubs.ReceiverRuntimeInformation;
import interop.Client.Reader;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.Proxy;
import java.net.ProxySelector;
import java.net.SocketAddress;
import java.net.URI;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;

/** The cases, each a small program of its own; {@link #named} finds one by its name. Those of hosts are in {@link HostCases}. */
final class Cases {
    private static final String OLDER_TOO = "with version 2.3.2, too";
    private final JsonNode context;

    Cases(JsonNode context) {
        this.context = context;
    }

    private interface Case {
        void run() throws Exception;
    }

    /** Finds a case by its name; it gives a remark for the table, or nothing. */
    Callable<String> named(String name) {
        Case found = switch (name) {
            case "hub_properties" -> this::hubProperties;
            case "partition_properties" -> this::partitionProperties;
            case "send_single" -> this::sendSingle;
            case "send_batch" -> this::sendBatch;
            case "send_by_key" -> this::sendByKey;
            case "send_to_partition" -> this::sendToPartition;
            case "receive_earliest" -> this::receiveEarliest;
            case "receive_latest" -> this::receiveLatest;
            case "receive_offset" -> this::receiveOffset;
            case "receive_sequence" -> this::receiveSequence;
            case "receive_time" -> this::receiveTime;
            case "content_round_trip" -> this::contentRoundTrip;
            case "last_enqueued_info" -> this::lastEnqueuedInfo;
            case "epoch_eviction" -> this::epochEviction;
            case "sixth_reader" -> this::sixthReader;
            case "unknown_hub" -> this::unknownHub;
            case "bad_key" -> this::badKey;
            case "expired_token" -> this::expiredToken;
            case "token_expires" -> this::tokenExpires;
            case "own_rules" -> this::ownRules;
            case "event_too_large" -> this::eventTooLarge;
            case "tls" -> this::tls;
            case "websocket" -> this::websocket;
            case "hub_restart" -> this::hubRestart;
            case "host_in_memory" -> () -> new HostCases(context).inMemory();
            case "host_own_managers" -> () -> new HostCases(context).ownManagers();
            case "buffered_producer", "idempotent_producer" -> () -> {
                throw new Main.NotOffered("");
            };
            default -> () -> {
                throw new AssertionError("this program has no such case");
            };
        };
        return () -> {
            found.run();
            return switch (name) {
                case "send_single" -> OLDER_TOO;
                case "websocket" -> "through an HTTP proxy, because the SDK knows port 443 only; the program leaves the connection open, because the "
                    + "SDK's WebSocket layer may loop for ever over the bytes of a close";
                default -> "";
            };
        };
    }

    static void check(boolean condition, Object... found) {
        if (!condition) {
            throw new AssertionError("not as expected: " + List.of(found));
        }
    }

    static void same(Object found, Object expected) {
        if (!expected.equals(found)) {
            throw new AssertionError("expected " + expected + ", found " + found);
        }
    }

    /** Runs something that must fail with this kind of error; gives it. */
    private static <T extends Throwable> T refused(Case action, Class<T> kind) throws Exception {
        try {
            action.run();
        } catch (Exception error) {
            for (Throwable cause = error; cause != null; cause = cause.getCause()) {
                if (kind.isInstance(cause)) {
                    return kind.cast(cause);
                }
            }
            throw new AssertionError("another error than expected: " + error, error);
        }
        throw new AssertionError("it was not refused");
    }

    // ---- properties ------------------------------------------------------------------------------------------------

    private void hubProperties() throws Exception {
        EventHubClient client = client(context, "properties");
        EventHubRuntimeInformation found = client.getRuntimeInformation().get();
        same(found.getPath(), "properties");
        same(List.of(found.getPartitionIds()), List.of("0", "1", "2", "3"));
        check(Duration.between(found.getCreatedAt(), Instant.now()).abs().toDays() < 1, found.getCreatedAt());
        client.closeSync();
    }

    private void partitionProperties() throws Exception {
        EventHubClient client = client(context, "properties");
        PartitionRuntimeInformation empty = client.getPartitionRuntimeInformation("1").get();
        check(empty.getIsEmpty() && empty.getLastEnqueuedSequenceNumber() == -1, empty.getLastEnqueuedSequenceNumber());
        send(context, "properties", "2", numbered("one", 3));
        PartitionRuntimeInformation found = client.getPartitionRuntimeInformation("2").get();
        EventData.SystemProperties last = read(context, "properties", "2", 3).get(2).getSystemProperties();
        same(List.of(found.getEventHubPath(), found.getPartitionId(), found.getIsEmpty()), List.of("properties", "2", false));
        same(List.of(found.getBeginSequenceNumber(), found.getLastEnqueuedSequenceNumber()), List.of(0L, 2L));
        same(found.getLastEnqueuedOffset(), last.getOffset());
        same(found.getLastEnqueuedTimeUtc(), last.getEnqueuedTime());
        client.closeSync();
    }

    // ---- sending ---------------------------------------------------------------------------------------------------

    private void sendSingle() throws Exception {
        EventHubClient client = client(context, "single");
        PartitionSender sender = client.createPartitionSenderSync("0");
        for (EventData event : numbered("single", 3)) {
            sender.sendSync(event);
        }
        client.closeSync();
        same(bodies(read(context, "single", "0", 3)), names("single", 0, 3));

        List<String> command = new ArrayList<>(List.of(context.get("older_command").asText().split("\n")));
        command.addAll(List.of(string(context, "single"), "1", "older"));
        Process older = new ProcessBuilder(command).redirectErrorStream(true).redirectOutput(ProcessBuilder.Redirect.PIPE).start();
        String said = new String(older.getInputStream().readAllBytes());
        check(older.waitFor() == 0, said);
    }

    private void sendBatch() throws Exception {
        EventHubClient client = client(context, "batches");
        PartitionSender first = client.createPartitionSenderSync("0");
        EventDataBatch batch = first.createBatch();
        for (EventData event : numbered("batch", 500)) {
            check(batch.tryAdd(event), "the batch is full");
        }
        first.sendSync(batch);
        PartitionSender second = client.createPartitionSenderSync("1");
        EventDataBatch full = second.createBatch();
        while (full.tryAdd(EventData.create(new byte[10_000]))) { }
        int count = full.getSize();
        check(count >= 20 && count <= 105, count);
        second.sendSync(full);
        client.closeSync();
        same(bodies(read(context, "batches", "0", 500)), names("batch", 0, 500));
        same(read(context, "batches", "1", count).size(), count);
    }

    private void sendByKey() throws Exception {
        EventHubClient client = client(context, "keys");
        for (Iterator<Map.Entry<String, JsonNode>> keys = context.get("keys").fields(); keys.hasNext();) {
            Map.Entry<String, JsonNode> one = keys.next();
            String body = "key " + one.getKey();
            client.sendSync(event(body), one.getKey());
            try (Reader reader = reader("keys", one.getValue().asText())) {
                until(20, () -> bodies(reader.events).contains(body), () -> body + " is not on partition " + one.getValue());
                EventData mine = reader.events.get(bodies(reader.events).indexOf(body));
                same(mine.getSystemProperties().getPartitionKey(), one.getKey());
            }
        }
        client.closeSync();
    }

    private void sendToPartition() throws Exception {
        for (int n = 0; n < 4; n++) {
            send(context, "partitions", "" + n, List.of(event("to " + n)));
        }
        for (int n = 0; n < 4; n++) {
            same(bodies(read(context, "partitions", "" + n, 1)), List.of("to " + n));
        }
    }

    // ---- receiving -------------------------------------------------------------------------------------------------

    private Reader reader(String hub, String partition) throws Exception {
        return new Reader(client(context, hub), partition, EventPosition.fromStartOfStream(), null);
    }

    private List<EventData> positions;

    /** Five events on a partition, 20 ms apart, sent once; gives them as received. */
    private List<EventData> positions() throws Exception {
        if (positions == null) {
            EventHubClient client = client(context, "positions");
            PartitionSender sender = client.createPartitionSenderSync("0");
            for (EventData event : numbered("position", 5)) {
                sender.sendSync(event);
                Thread.sleep(20);
            }
            client.closeSync();
            positions = read(context, "positions", "0", 5);
        }
        return positions;
    }

    private EventData.SystemProperties third() throws Exception {
        return positions().get(2).getSystemProperties();
    }

    private void from(EventPosition position, int first) throws Exception {
        List<String> expected = names("position", first, 5);
        same(bodies(read(context, "positions", "0", expected.size(), position)), expected);
    }

    private void receiveEarliest() throws Exception {
        same(bodies(positions()), names("position", 0, 5));
        from(EventPosition.fromStartOfStream(), 0);
    }

    private void receiveLatest() throws Exception {
        send(context, "positions", "1", List.of(event("before")));
        try (Reader reader = new Reader(client(context, "positions"), "1", EventPosition.fromEndOfStream(), null)) {
            send(context, "positions", "1", List.of(event("after")));
            same(bodies(reader.take(1)), List.of("after"));
        }
    }

    private void receiveOffset() throws Exception {
        from(EventPosition.fromOffset(third().getOffset()), 3);
        from(EventPosition.fromOffset(third().getOffset(), true), 2);
    }

    private void receiveSequence() throws Exception {
        from(EventPosition.fromSequenceNumber(third().getSequenceNumber()), 3);
        from(EventPosition.fromSequenceNumber(third().getSequenceNumber(), true), 2);
    }

    private void receiveTime() throws Exception {
        from(EventPosition.fromEnqueuedTime(third().getEnqueuedTime()), 3);
        from(EventPosition.fromEnqueuedTime(third().getEnqueuedTime().minusMillis(1)), 2);
    }

    private void contentRoundTrip() throws Exception {
        Map<String, Object> properties = Map.of("text", "na\u00efve \u2603", "int", 42, "long", 1L << 40, "short", (short) -7,
            "double", 0.25, "float", 1.5f, "char", 'x');
        EventData event = EventData.create(new byte[] {0, 1, (byte) 255});
        event.getProperties().putAll(properties);
        send(context, "content", "0", List.of(event, event("second")));
        List<EventData> found = read(context, "content", "0", 2);
        EventData first = found.get(0);
        same(first.getProperties(), properties);
        same(List.of(first.getBytes()[0], first.getBytes()[1], first.getBytes()[2]), List.of((byte) 0, (byte) 1, (byte) 255));
        EventData.SystemProperties system = first.getSystemProperties();
        EventData.SystemProperties second = found.get(1).getSystemProperties();
        same(List.of(system.getSequenceNumber(), second.getSequenceNumber()), List.of(0L, 1L));
        check(Long.parseLong(system.getOffset()) < Long.parseLong(second.getOffset()), system.getOffset());
        check(Duration.between(system.getEnqueuedTime(), Instant.now()).abs().toMinutes() < 5, system.getEnqueuedTime());
    }

    private void lastEnqueuedInfo() throws Exception {
        send(context, "metrics", "0", numbered("metric", 10));
        try (Reader reader = reader("metrics", "0")) {
            reader.take(10);
            ReceiverRuntimeInformation info = reader.receiver.getRuntimeInformation();
            same(info.getLastEnqueuedSequenceNumber(), 9L);
            check(info.getLastEnqueuedOffset() != null && info.getLastEnqueuedTime() != null && info.getRetrievalTime() != null, info);
        }
    }

    // ---- owners and limits -----------------------------------------------------------------------------------------

    private Reader owner(String hub, Long level) throws Exception {
        return new Reader(once(context, hub), "0", EventPosition.fromStartOfStream(), level);
    }

    private void epochEviction() throws Exception {
        send(context, "epochs", "0", numbered("epoch", 1));
        try (Reader low = owner("epochs", 1L)) {
            low.take(1);
            try (Reader high = owner("epochs", 2L)) {
                high.take(1);
                Throwable evicted = low.error() instanceof CompletionException wrapped ? wrapped.getCause() : low.error();
                check(evicted instanceof ReceiverDisconnectedException && evicted.getMessage().contains("higher epoch"), evicted);
                refused(() -> owner("epochs", 1L).close(), ReceiverDisconnectedException.class);
                Exception plain = refused(() -> owner("epochs", null).close(), ReceiverDisconnectedException.class);
                check(plain.getMessage().contains("non-epoch receiver is not allowed"), plain);
                send(context, "epochs", "0", List.of(event("on")));
                high.take(2);
            }
        }
    }

    private void sixthReader() throws Exception {
        send(context, "readers", "0", numbered("reader", 1));
        List<Reader> five = new ArrayList<>();
        for (int n = 0; n < 5; n++) {
            five.add(owner("readers", null));
        }
        for (Reader reader : five) {
            reader.take(1);
        }
        Exception sixth = refused(() -> owner("readers", null).close(), QuotaExceededException.class);
        check(sixth.getMessage().contains("Exceeded the maximum number of allowed receivers"), sixth);
        five.remove(0).close();
        List<Reader> again = new ArrayList<>();
        until(20, () -> {
            try {
                again.add(owner("readers", null));
            } catch (Exception refused) {
                return false; // the closed one leaves some time later
            }
            return true;
        }, () -> "no reader is taken after one has left");
        again.get(0).take(1);
        for (Reader reader : five) {
            reader.close();
        }
        again.get(0).close();
    }

    // ---- errors ----------------------------------------------------------------------------------------------------

    private void unknownHub() throws Exception {
        EventHubClient client = once(context, "no-such-hub");
        refused(() -> client.getRuntimeInformation().get(), IllegalEntityException.class);
        refused(() -> client.sendSync(event("x")), IllegalEntityException.class);
        client.closeSync();
        refused(() -> owner("no-such-hub", null).close(), IllegalEntityException.class);
    }

    private void sendWith(String connectionString, String hub) throws Exception {
        EventHubClient client = once(connectionString, hub);
        try {
            client.sendSync(event("x"));
        } finally {
            client.closeSync();
        }
    }

    private void badKey() throws Exception {
        refused(() -> sendWith(context.get("bad_key").asText(), "tokens"), AuthorizationFailedException.class);
    }

    private String withToken(int validSeconds) throws Exception {
        Main.say(Main.object().put("ask", "token").put("hub", "tokens").put("valid_seconds", validSeconds));
        return Main.told().get("connection_string").asText();
    }

    private void expiredToken() throws Exception {
        sendWith(withToken(600), "tokens");
        String stale = withToken(-60);
        refused(() -> sendWith(stale, "tokens"), AuthorizationFailedException.class);
    }

    private void tokenExpires() throws Exception {
        send(context, "tokens", "0", numbered("first", 1));
        try (Reader reader = new Reader(once(withToken(4), "tokens"), "0", EventPosition.fromStartOfStream(), null)) {
            reader.take(1);
            reader.error();
        }
    }

    private void ownRules() throws Exception {
        String sensors = context.get("rules").get("send").asText();
        String apps = context.get("rules").get("listen").asText();
        sendWith(sensors, "rules");
        try (Reader reader = new Reader(once(apps, "rules"), "0", EventPosition.fromStartOfStream(), null)) {
            same(bodies(reader.take(1)), List.of("x"));
        }
        refused(() -> sendWith(apps, "rules"), AuthorizationFailedException.class);
        refused(() -> new Reader(once(sensors, "rules"), "0", EventPosition.fromStartOfStream(), null).close(),
            AuthorizationFailedException.class);
        // The rule is for one hub.
        refused(() -> sendWith(sensors, "single"), AuthorizationFailedException.class);
    }

    private void eventTooLarge() throws Exception {
        EventHubClient client = once(context, "large");
        refused(() -> client.sendSync(EventData.create(new byte[1_100_000])), PayloadSizeExceededException.class);
        client.sendSync(event("small"));
        client.closeSync();
        same(bodies(read(context, "large", "0", 1)), List.of("small"));
    }

    // ---- transports ------------------------------------------------------------------------------------------------

    private static void sendAndRead(EventHubClient client) throws Exception {
        client.sendSync(event("securely"));
        PartitionReceiver reader = client.createReceiverSync(
            EventHubClient.DEFAULT_CONSUMER_GROUP_NAME, "0", EventPosition.fromStartOfStream());
        reader.setReceiveTimeout(Duration.ofSeconds(20));
        same(body(reader.receiveSync(1).iterator().next()), "securely");
    }

    private void tls() throws Exception {
        EventHubClient client = client(context, "tls");
        sendAndRead(client);
        client.closeSync();
    }

    private void websocket() throws Exception {
        ProxySelector before = ProxySelector.getDefault();
        ProxySelector.setDefault(new ProxySelector() {
            @Override
            public List<Proxy> select(URI uri) {
                return List.of(new Proxy(Proxy.Type.HTTP, new InetSocketAddress("localhost", 5671)));
            }

            @Override
            public void connectFailed(URI uri, SocketAddress address, IOException error) {
                System.err.println("the proxy " + address + " failed: " + error);
            }
        });
        try {
            sendAndRead(client(context.get("connection_string").asText() + "TransportType=AmqpWebSockets", "websocket"));
        } finally {
            ProxySelector.setDefault(before);
        }
    }

    // ---- a restart -------------------------------------------------------------------------------------------------

    private void hubRestart() throws Exception {
        List<String> acknowledged = new ArrayList<>();
        List<CompletableFuture<Void>> restarts = new ArrayList<>();
        EventHubClient client = client(context, "restart");
        PartitionSender sender = client.createPartitionSenderSync("0");
        try (Reader reader = reader("restart", "0")) {
            for (int n = 0; n < 60; n++) {
                for (int attempt = 0; attempt < 5; attempt++) {
                    try {
                        sender.sendSync(event("" + n));
                        acknowledged.add("" + n);
                        break;
                    } catch (Exception error) {
                        Thread.sleep(500); // not acknowledged: send it again, as a user would
                    }
                }
                if (n == 15 || n == 35) {
                    String how = n == 15 ? "term" : "kill";
                    restarts.add(CompletableFuture.runAsync(() -> {
                        Main.say(Main.object().put("ask", "restart").put("how", how));
                        try {
                            Main.told();
                        } catch (IOException error) {
                            throw new IllegalStateException(error);
                        }
                    }));
                }
                Thread.sleep(50);
            }
            CompletableFuture.allOf(restarts.toArray(CompletableFuture[]::new)).get();
            check(acknowledged.size() >= 55, acknowledged.size());
            until(40, () -> new HashSet<>(bodies(reader.events)).containsAll(acknowledged),
                () -> bodies(reader.events).size() + " events read, " + acknowledged.size() + " acknowledged, errors " + reader.errors);
        }
        client.closeSync();
    }
}
