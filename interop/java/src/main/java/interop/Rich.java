package interop;

import com.azure.messaging.eventhubs.EventData;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Instant;
import java.time.OffsetDateTime;
import java.util.Date;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.qpid.proton.amqp.Binary;

/** Writes one rich event, and reads those of all SDKs. The SDK writes and reads bodies of data only. */
final class Rich {
    private Rich() {}

    static void write(JsonNode context) {
        EventData event = new EventData(HexFormat.of().parseHex(context.get("bodies").get("data").asText()));
        event.setMessageId(context.get("writer").asText() + "-data").setCorrelationId("correlated").setContentType("application/json");
        ObjectNode line = Main.object();
        ArrayNode without = line.putArray("without");
        for (Map.Entry<String, JsonNode> one : context.get("properties").properties()) {
            if (one.getValue().get(0).asText().equals("binary")) {
                without.add(one.getKey()); // the SDK cannot write an array of bytes
                continue;
            }
            event.getProperties().put(one.getKey(), value(one.getValue().get(0).asText(), one.getValue().get(1)));
        }
        Client.send(context, "rich", List.of(event), Client.to(context.get("partition").asText()));
        line.putArray("bodies").add("data");
        Main.say(line);
    }

    private static Object value(String kind, JsonNode value) {
        return switch (kind) {
            case "bool" -> value.asBoolean();
            case "int" -> value.asInt();
            case "long" -> value.asLong();
            case "double" -> value.asDouble();
            case "float" -> (float) value.asDouble();
            case "timestamp" -> new Date(value.asLong());
            case "uuid" -> UUID.fromString(value.asText());
            default -> value.asText();
        };
    }

    static void read(JsonNode context) throws Exception {
        ObjectNode line = Main.object();
        ObjectNode events = line.putObject("events");
        for (Map.Entry<String, JsonNode> one : context.get("expected").properties()) {
            ArrayNode found = events.putArray(one.getKey());
            for (EventData event : Client.read(context, "rich", one.getKey(), one.getValue().asInt())) {
                found.add(plain(event));
            }
        }
        line.putArray("cannot").add("value body").add("sequence body");
        line.put("detail", "the SDK gives bodies of data only");
        Main.say(line);
    }

    private static ObjectNode plain(EventData event) {
        ObjectNode plain = Main.object();
        String id = event.getMessageId();
        plain.put("kind", id.substring(id.lastIndexOf('-') + 1));
        plain.put("message_id", id);
        plain.put("correlation_id", event.getCorrelationId());
        plain.put("content_type", event.getContentType());
        ObjectNode properties = plain.putObject("properties");
        event.getProperties().forEach((name, value) -> put(properties, name, value));
        byte[] body = event.getBody();
        plain.put("body", body == null ? null : HexFormat.of().formatHex(body));
        return plain;
    }

    private static void put(ObjectNode into, String name, Object value) {
        if (value instanceof Boolean one) {
            into.put(name, one);
        } else if (value instanceof Float || value instanceof Double) {
            into.put(name, ((Number) value).doubleValue());
        } else if (value instanceof Number one) {
            into.put(name, one.longValue());
        } else if (value instanceof Date one) {
            into.put(name, one.getTime());
        } else if (value instanceof Instant one) {
            into.put(name, one.toEpochMilli());
        } else if (value instanceof OffsetDateTime one) {
            into.put(name, one.toInstant().toEpochMilli());
        } else if (value instanceof Binary one) {
            into.put(name, HexFormat.of().formatHex(one.getArray(), one.getArrayOffset(), one.getArrayOffset() + one.getLength()));
        } else if (value instanceof byte[] one) {
            into.put(name, HexFormat.of().formatHex(one));
        } else {
            into.put(name, String.valueOf(value));
        }
    }
}
