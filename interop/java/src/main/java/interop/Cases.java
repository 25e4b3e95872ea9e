package interop;

import static interop.Client.bodies;
import static interop.Client.builder;
import static interop.Client.names;
import static interop.Client.numbered;
import static interop.Client.once;
import static interop.Client.read;
import static interop.Client.send;
import static interop.Client.to;
import static interop.Client.until;

import com.azure.core.amqp.AmqpTransportType;
import com.azure.core.amqp.exception.AmqpErrorCondition;
import com.azure.core.amqp.exception.AmqpException;
import com.azure.messaging.eventhubs.EventData;
import com.azure.messaging.eventhubs.EventDataBatch;
import com.azure.messaging.eventhubs.EventHubBufferedProducerClient;
import com.azure.messaging.eventhubs.EventHubBufferedProducerClientBuilder;
import com.azure.messaging.eventhubs.EventHubClientBuilder;
import com.azure.messaging.eventhubs.EventHubProducerClient;
import com.azure.messaging.eventhubs.EventHubProperties;
import com.azure.messaging.eventhubs.PartitionProperties;
import com.azure.messaging.eventhubs.models.CreateBatchOptions;
import com.azure.messaging.eventhubs.models.EventPosition;
import com.azure.messaging.eventhubs.models.ReceiveOptions;
import com.azure.messaging.eventhubs.models.SendOptions;
import com.fasterxml.jackson.databind.JsonNode;
import interop.Client.Reader;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.BooleanSupplier;
import java.util.function.Supplier;

/** The cases, each a small program of its own; {@link #named} finds one by its name. */
final class Cases {
    private final JsonNode context;

    Cases(JsonNode context) {
        this.context = context;
    }

    private interface Case {
        void run() throws Exception;
    }

    private static final String READ_ON = "the SDK sends on by itself; its receiver ends with its connection, whoever serves, and was opened again "
        + "after the last event";

    /** Finds a case by its name; it gives a remark for the table, or nothing. */
    Callable<String> named(String name) {
        Case found = switch (name) {
            case "hub_properties" -> this::hubProperties;
            case "partition_properties" -> this::partitionProperties;
            case "send_single" -> this::sendSingle;
            case "send_batch" -> this::sendBatch;
            case "send_by_key" -> this::sendByKey;
            case "send_to_partition" -> this::sendToPartition;
            case "buffered_producer" -> this::bufferedProducer;
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
            case "idempotent_producer" -> () -> {
                throw new Main.NotOffered("");
            };
            case "tls" -> () -> securely("tls", AmqpTransportType.AMQP);
            case "websocket" -> () -> securely("websocket", AmqpTransportType.AMQP_WEB_SOCKETS);
            case "hub_restart" -> this::hubRestart;
            default -> () -> {
                throw new AssertionError("this program has no such case");
            };
        };
        return () -> {
            found.run();
            return name.equals("hub_restart") ? READ_ON : "";
        };
    }

    private static void check(boolean condition, Object... found) {
        if (!condition) {
            throw new AssertionError("not as expected: " + List.of(found));
        }
    }

    private static void same(Object found, Object expected) {
        if (!expected.equals(found)) {
            throw new AssertionError("expected " + expected + ", found " + found);
        }
    }

    /** Runs something that must fail with one of these conditions. */
    private static AmqpException refused(Case action, AmqpErrorCondition... conditions) throws Exception {
        try {
            action.run();
        } catch (Exception error) {
            Throwable cause = error instanceof AmqpException ? error : error.getCause();
            if (cause instanceof AmqpException amqp && List.of(conditions).contains(amqp.getErrorCondition())) {
                return amqp;
            }
            throw new AssertionError("another error than expected: " + error, error);
        }
        throw new AssertionError("it was not refused");
    }

    // ---- properties ------------------------------------------------------------------------------------------------

    private void hubProperties() {
        try (EventHubProducerClient client = builder(context, "properties").buildProducerClient()) {
            EventHubProperties found = client.getEventHubProperties();
            same(found.getName(), "properties");
            same(found.getPartitionIds().stream().toList(), List.of("0", "1", "2", "3"));
            check(Duration.between(found.getCreatedAt(), Instant.now()).abs().toDays() < 1, found.getCreatedAt());
        }
    }

    private void partitionProperties() throws Exception {
        try (EventHubProducerClient client = builder(context, "properties").buildProducerClient()) {
            PartitionProperties empty = client.getPartitionProperties("1");
            check(empty.isEmpty() && empty.getLastEnqueuedSequenceNumber() == -1, empty.getLastEnqueuedSequenceNumber());
            send(context, "properties", numbered("one", 3), to("2"));
            PartitionProperties found = client.getPartitionProperties("2");
            EventData last = read(context, "properties", "2", 3).get(2);
            same(List.of(found.getEventHubName(), found.getId(), found.isEmpty()), List.of("properties", "2", false));
            same(List.of(found.getBeginningSequenceNumber(), found.getLastEnqueuedSequenceNumber()), List.of(0L, 2L));
            same(found.getLastEnqueuedOffset(), last.getOffsetString());
            same(found.getLastEnqueuedTime(), last.getEnqueuedTime());
        }
    }

    // ---- sending ---------------------------------------------------------------------------------------------------

    private void sendSingle() throws Exception {
        try (EventHubProducerClient client = builder(context, "single").buildProducerClient()) {
            for (EventData event : numbered("single", 3)) {
                client.send(List.of(event), to("0"));
            }
        }
        same(bodies(read(context, "single", "0", 3)), names("single", 0, 3));
    }

    private void sendBatch() throws Exception {
        int count;
        try (EventHubProducerClient client = builder(context, "batches").buildProducerClient()) {
            EventDataBatch batch = client.createBatch(new CreateBatchOptions().setPartitionId("0"));
            numbered("batch", 500).forEach(event -> check(batch.tryAdd(event), "the batch is full"));
            client.send(batch);

            EventDataBatch full = client.createBatch(new CreateBatchOptions().setPartitionId("1"));
            while (full.tryAdd(new EventData(new byte[10_000]))) { }
            count = full.getCount();
            check(count >= 90 && count <= 105, count);
            client.send(full);
        }
        same(bodies(read(context, "batches", "0", 500)), names("batch", 0, 500));
        same(read(context, "batches", "1", count).size(), count);
    }

    private void sendByKey() throws Exception {
        for (Map.Entry<String, JsonNode> one : context.get("keys").properties()) {
            String body = "key " + one.getKey();
            send(context, "keys", List.of(new EventData(body)), new SendOptions().setPartitionKey(one.getKey()));
            try (Reader reader = reader("keys", one.getValue().asText())) {
                until(20, () -> bodies(reader.events).contains(body), () -> body + " is not on partition " + one.getValue());
                EventData mine = reader.events.get(bodies(reader.events).indexOf(body));
                same(mine.getPartitionKey(), one.getKey());
            }
        }
    }

    private void sendToPartition() throws Exception {
        for (int n = 0; n < 4; n++) {
            send(context, "partitions", List.of(new EventData("to " + n)), to("" + n));
        }
        for (int n = 0; n < 4; n++) {
            same(bodies(read(context, "partitions", "" + n, 1)), List.of("to " + n));
        }
    }

    private void bufferedProducer() {
        Map<String, String> done = new ConcurrentHashMap<>();
        List<Throwable> failures = new CopyOnWriteArrayList<>();
        try (EventHubBufferedProducerClient client = new EventHubBufferedProducerClientBuilder()
            .connectionString(context.get("connection_string").asText(), "buffered")
            .onSendBatchSucceeded(sent -> sent.getEvents().forEach(event -> done.put(event.getBodyAsString(), sent.getPartitionId())))
            .onSendBatchFailed(unsent -> failures.add(unsent.getThrowable()))
            .maxWaitTime(Duration.ofMillis(200))
            .buildClient()) {
            context.get("keys").fieldNames().forEachRemaining(
                key -> client.enqueueEvent(new EventData(key), new SendOptions().setPartitionKey(key)));
            client.flush();
        }
        check(failures.isEmpty(), failures);
        // The client chose the partition by its own hash; the hub's says the same.
        Map<String, String> expected = new HashMap<>();
        context.get("keys").properties().forEach(one -> expected.put(one.getKey(), one.getValue().asText()));
        same(done, expected);
    }

    // ---- receiving -------------------------------------------------------------------------------------------------

    private Reader reader(String hub, String partition) {
        return new Reader(builder(context, hub), partition, EventPosition.earliest(), new ReceiveOptions());
    }

    private List<EventData> positions;

    /** Five events on a partition, 20 ms apart, sent once; gives them as received. */
    private List<EventData> positions() throws Exception {
        if (positions == null) {
            try (EventHubProducerClient client = builder(context, "positions").buildProducerClient()) {
                for (EventData event : numbered("position", 5)) {
                    client.send(List.of(event), to("0"));
                    Thread.sleep(20);
                }
            }
            positions = read(context, "positions", "0", 5);
        }
        return positions;
    }

    private void from(EventPosition position, int first) throws Exception {
        List<String> expected = names("position", first, 5);
        same(bodies(read(context, "positions", "0", expected.size(), position)), expected);
    }

    private void receiveEarliest() throws Exception {
        same(bodies(positions()), names("position", 0, 5));
        from(EventPosition.earliest(), 0);
    }

    private void receiveLatest() throws Exception {
        send(context, "positions", List.of(new EventData("before")), to("1"));
        try (Reader reader = new Reader(builder(context, "positions"), "1", EventPosition.latest(), new ReceiveOptions());
             EventHubProducerClient client = builder(context, "positions").buildProducerClient()) {
            // The reader is attached some time after it was started: send until one comes through.
            for (int n = 0; n < 100 && reader.events.isEmpty(); n++) {
                client.send(List.of(new EventData("after-" + n)), to("1"));
                Thread.sleep(100);
            }
            List<String> found = bodies(reader.take(1));
            check(found.stream().allMatch(body -> body.startsWith("after")), found);
        }
    }

    private void receiveOffset() throws Exception {
        from(EventPosition.fromOffsetString(positions().get(2).getOffsetString()), 3);
    }

    private void receiveSequence() throws Exception {
        long number = positions().get(2).getSequenceNumber();
        from(EventPosition.fromSequenceNumber(number), 3);
        from(EventPosition.fromSequenceNumber(number, true), 2);
    }

    private void receiveTime() throws Exception {
        Instant time = positions().get(2).getEnqueuedTime();
        from(EventPosition.fromEnqueuedTime(time), 3);
        from(EventPosition.fromEnqueuedTime(time.minusMillis(1)), 2);
    }

    private void contentRoundTrip() throws Exception {
        Map<String, Object> properties = Map.of("text", "na\u00efve \u2603", "yes", true, "int", 42, "long", 1L << 40, "short", (short) -7,
            "double", 0.25, "float", 1.5f, "byte", (byte) -1, "char", 'x', "id", UUID.fromString("6ba7b810-9dad-11d1-80b4-00c04fd430c8"));
        EventData event = new EventData(new byte[] {0, 1, (byte) 255});
        event.getProperties().putAll(properties);
        event.setMessageId("m-1").setCorrelationId("c-1").setContentType("application/octet-stream");
        send(context, "content", List.of(event, new EventData("second")), to("0"));
        List<EventData> found = read(context, "content", "0", 2);
        EventData first = found.get(0);
        same(first.getProperties(), properties);
        same(List.of(first.getBody()[0], first.getBody()[1], first.getBody()[2]), List.of((byte) 0, (byte) 1, (byte) 255));
        same(List.of(first.getMessageId(), first.getCorrelationId(), first.getContentType()),
            List.of("m-1", "c-1", "application/octet-stream"));
        same(List.of(first.getSequenceNumber(), found.get(1).getSequenceNumber()), List.of(0L, 1L));
        check(Long.parseLong(first.getOffsetString()) < Long.parseLong(found.get(1).getOffsetString()), first.getOffsetString());
        check(Duration.between(first.getEnqueuedTime(), Instant.now()).abs().toMinutes() < 5, first.getEnqueuedTime());

        send(context, "content", List.of(new EventData("with a key")), new SendOptions().setPartitionKey("home-42"));
        try (Reader one = reader("content", "0"); Reader other = reader("content", "1")) {
            List<String> keys = new ArrayList<>();
            until(20, () -> {
                for (Reader reader : List.of(one, other)) {
                    reader.events.stream().map(EventData::getPartitionKey).filter(key -> key != null).forEach(keys::add);
                }
                return !keys.isEmpty();
            }, () -> "no event with a key");
            same(keys.get(0), "home-42");
        }
    }

    private void lastEnqueuedInfo() throws Exception {
        send(context, "metrics", numbered("metric", 10), to("0"));
        ReceiveOptions options = new ReceiveOptions().setTrackLastEnqueuedEventProperties(true);
        try (Reader reader = new Reader(builder(context, "metrics"), "0", EventPosition.earliest(), options)) {
            reader.take(10);
            same(reader.info.getSequenceNumber(), 9L);
            check(reader.info.getOffsetString() != null && reader.info.getEnqueuedTime() != null
                && reader.info.getRetrievalTime() != null, reader.info.getSequenceNumber());
        }
    }

    // ---- owners and limits -----------------------------------------------------------------------------------------

    private Reader owner(String hub, Long level, boolean once) {
        ReceiveOptions options = level == null ? new ReceiveOptions() : new ReceiveOptions().setOwnerLevel(level);
        return new Reader(once ? once(builder(context, hub)) : builder(context, hub), "0", EventPosition.earliest(), options);
    }

    private void epochEviction() throws Exception {
        send(context, "epochs", numbered("epoch", 1), to("0"));
        try (Reader low = owner("epochs", 1L, false)) {
            low.take(1);
            try (Reader high = owner("epochs", 2L, false)) {
                high.take(1);
                check(low.error().getMessage().contains("higher epoch"), low.error());
                try (Reader lower = owner("epochs", 1L, true)) {
                    check(lower.error().getMessage().contains("higher epoch"), lower.error());
                }
                try (Reader plain = owner("epochs", null, true)) {
                    check(plain.error().getMessage().contains("non-epoch receiver is not allowed"), plain.error());
                }
                send(context, "epochs", List.of(new EventData("on")), to("0"));
                high.take(2);
            }
        }
    }

    private void sixthReader() throws Exception {
        send(context, "readers", numbered("reader", 1), to("0"));
        List<Reader> five = new ArrayList<>();
        for (int n = 0; n < 5; n++) {
            five.add(owner("readers", null, false));
        }
        for (Reader reader : five) {
            reader.take(1);
        }
        try (Reader sixth = owner("readers", null, true)) {
            check(sixth.error().getMessage().contains("Exceeded the maximum number of allowed receivers"), sixth.error());
            check(sixth.events.isEmpty(), sixth.events);
        }
        five.remove(0).close();
        // It leaves some time after it was closed: try until there is room.
        List<Reader> again = new ArrayList<>(List.of(owner("readers", null, true)));
        until(20, () -> {
            Reader last = again.get(again.size() - 1);
            if (!last.errors.isEmpty()) {
                again.add(owner("readers", null, true));
            }
            return !last.events.isEmpty();
        }, () -> "no reader is taken after one has left: " + again.get(0).errors);
        again.forEach(Reader::close);
        five.forEach(Reader::close);
    }

    // ---- errors ----------------------------------------------------------------------------------------------------

    private void unknownHub() throws Exception {
        try (EventHubProducerClient client = once(builder(context, "no-such-hub")).buildProducerClient()) {
            refused(client::getEventHubProperties, AmqpErrorCondition.NOT_FOUND);
            refused(() -> client.send(numbered("x", 1)), AmqpErrorCondition.NOT_FOUND);
        }
        try (Reader reader = owner("no-such-hub", null, true)) {
            check(reader.error().getMessage().contains("could not be found"), reader.error());
        }
    }

    private void sendWith(String connectionString, String hub) {
        try (EventHubProducerClient client = once(builder(connectionString, hub)).buildProducerClient()) {
            client.send(numbered("x", 1));
        }
    }

    private void badKey() throws Exception {
        refused(() -> sendWith(context.get("bad_key").asText(), "tokens"), AmqpErrorCondition.UNAUTHORIZED_ACCESS);
    }

    private String withToken(int validSeconds) throws Exception {
        Main.say(Main.object().put("ask", "token").put("hub", "tokens").put("valid_seconds", validSeconds));
        return Main.told().get("connection_string").asText();
    }

    private void expiredToken() throws Exception {
        sendWith(withToken(600), "tokens");
        String stale = withToken(-60);
        refused(() -> sendWith(stale, "tokens"), AmqpErrorCondition.UNAUTHORIZED_ACCESS);
    }

    private void tokenExpires() throws Exception {
        send(context, "tokens", numbered("first", 1), to("0"));
        try (Reader reader = new Reader(once(builder(withToken(4), "tokens")), "0", EventPosition.earliest(), new ReceiveOptions())) {
            reader.take(1);
            reader.error();
        }
    }

    private void ownRules() throws Exception {
        String sensors = context.get("rules").get("send").asText();
        String apps = context.get("rules").get("listen").asText();
        sendWith(sensors, "rules");
        try (Reader reader = new Reader(builder(apps, "rules"), "0", EventPosition.earliest(), new ReceiveOptions())) {
            same(bodies(reader.take(1)), names("x", 0, 1));
        }
        refused(() -> sendWith(apps, "rules"), AmqpErrorCondition.UNAUTHORIZED_ACCESS);
        try (Reader reader = new Reader(once(builder(sensors, "rules")), "0", EventPosition.earliest(), new ReceiveOptions())) {
            check(reader.error() instanceof AmqpException error
                && error.getErrorCondition() == AmqpErrorCondition.UNAUTHORIZED_ACCESS, reader.error());
        }
        // The rule is for one hub.
        refused(() -> sendWith(sensors, "single"), AmqpErrorCondition.UNAUTHORIZED_ACCESS);
    }

    private void eventTooLarge() throws Exception {
        try (EventHubProducerClient client = once(builder(context, "large")).buildProducerClient()) {
            EventDataBatch batch = client.createBatch();
            try {
                check(!batch.tryAdd(new EventData(new byte[1_100_000])), "the batch took it");
            } catch (AmqpException tooLarge) {
                same(tooLarge.getErrorCondition(), AmqpErrorCondition.LINK_PAYLOAD_SIZE_EXCEEDED);
            }
            refused(() -> client.send(List.of(new EventData(new byte[1_100_000]))), AmqpErrorCondition.LINK_PAYLOAD_SIZE_EXCEEDED);
            client.send(List.of(new EventData("small")));
        }
        same(bodies(read(context, "large", "0", 1)), List.of("small"));
    }

    // ---- transports ------------------------------------------------------------------------------------------------

    /** Sends and receives over TLS; the certificate authority is in the trust store that the harness names. */
    private void securely(String hub, AmqpTransportType transport) throws Exception {
        Supplier<EventHubClientBuilder> secure = () -> builder(context.get("tls_connection_string").asText(), hub)
            .customEndpointAddress("https://" + context.get("tls_authority").asText())
            .transportType(transport);
        try (EventHubProducerClient client = secure.get().buildProducerClient()) {
            client.send(List.of(new EventData("securely")));
        }
        try (Reader reader = new Reader(secure.get(), "0", EventPosition.earliest(), new ReceiveOptions())) {
            same(bodies(reader.take(1)), List.of("securely"));
        }
    }

    // ---- a restart -------------------------------------------------------------------------------------------------

    private void hubRestart() throws Exception {
        List<String> acknowledged = new ArrayList<>();
        List<CompletableFuture<Void>> restarts = new ArrayList<>();
        List<Reader> readers = new ArrayList<>(List.of(reader("restart", "0")));
        BooleanSupplier readAll = () -> new HashSet<>(bodies(readOn(readers))).containsAll(acknowledged);
        try (EventHubProducerClient client = builder(context, "restart").buildProducerClient()) {
            for (int n = 0; n < 60; n++) {
                for (int attempt = 0; attempt < 5; attempt++) {
                    try {
                        client.send(List.of(new EventData("" + n)), to("0"));
                        acknowledged.add("" + n);
                        break;
                    } catch (AmqpException error) {
                        Thread.sleep(500); // not acknowledged: send it again, as a user would
                    }
                }
                if (n == 20 || n == 40) {
                    Main.say(Main.object().put("ask", "restart").put("how", n == 20 ? "term" : "kill"));
                    restarts.add(CompletableFuture.runAsync(() -> {
                        try {
                            Main.told();
                        } catch (Exception closed) {
                            throw new IllegalStateException(closed);
                        }
                    }));
                }
                readAll.getAsBoolean();
                Thread.sleep(20);
            }
            for (CompletableFuture<Void> restart : restarts) {
                restart.join();
            }
            until(45, readAll, () -> bodies(readOn(readers)) + " were read, by " + readers.size() + " readers");
            same(acknowledged.size(), 60);
            check(readers.size() > 1, "the reader went on by itself: the remark is wrong");
        } finally {
            readers.forEach(Reader::close);
        }
    }

    /** Gives what was read so far; if the last reader has ended, opens another one after its last event. */
    private List<EventData> readOn(List<Reader> readers) {
        boolean ended = !readers.get(readers.size() - 1).errors.isEmpty();
        List<EventData> read = readers.stream().flatMap(reader -> reader.events.stream()).toList();
        if (ended) {
            EventPosition after = read.isEmpty() ? EventPosition.earliest()
                : EventPosition.fromSequenceNumber(read.get(read.size() - 1).getSequenceNumber());
            readers.add(new Reader(builder(context, "restart"), "0", after, new ReceiveOptions()));
        }
        return read;
    }
}
