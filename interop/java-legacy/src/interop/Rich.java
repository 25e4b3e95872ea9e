package interop;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.microsoft.azure.eventhubs.EventData;
import java.util.Date;
import java.util.HexFormat;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.qpid.proton.amqp.Binary;

/** Reads the rich events of all SDKs. This one cannot write them: it sets no message id and no content type. */
final class Rich {
    private Rich() {}

    static void write(JsonNode context) {
        ObjectNode line = Main.object();
        line.putArray("bodies");
        Main.say(line);
    }

    static void read(JsonNode context) throws Exception {
        ObjectNode line = Main.object();
        ObjectNode events = line.putObject("events");
        for (Iterator<Map.Entry<String, JsonNode>> partitions = context.get("expected").fields(); partitions.hasNext();) {
            Map.Entry<String, JsonNode> one = partitions.next();
            ArrayNode found = events.putArray(one.getKey());
            for (EventData event : Client.read(context, "rich", one.getKey(), one.getValue().asInt())) {
                found.add(plain(event));
            }
        }
        line.put("detail", "reads them; the SDK cannot write message ids and content types");
        Main.say(line);
    }

    private static ObjectNode plain(EventData event) {
        ObjectNode plain = Main.object();
        EventData.SystemProperties system = event.getSystemProperties();
        String id = String.valueOf(system.get("message-id"));
        plain.put("kind", id.substring(id.lastIndexOf('-') + 1));
        plain.put("message_id", id);
        plain.put("correlation_id", text(system.get("correlation-id")));
        plain.put("content_type", text(system.get("content-type")));
        ObjectNode properties = plain.putObject("properties");
        event.getProperties().forEach((name, value) -> put(properties, name, value));
        body(plain, event);
        return plain;
    }

    private static void body(ObjectNode plain, EventData event) {
        if (event.getObject() instanceof List<?> sequence) {
            ArrayNode items = plain.putArray("body");
            for (Object item : sequence) {
                if (item instanceof Number number) {
                    items.add(number.longValue());
                } else {
                    items.add(String.valueOf(item));
                }
            }
        } else if (event.getBytes() != null) {
            plain.put("body", HexFormat.of().formatHex(event.getBytes()));
        } else {
            plain.put("body", String.valueOf(event.getObject()));
        }
    }

    private static String text(Object value) {
        return value == null ? null : value.toString();
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
        } else if (value instanceof Binary one) {
            into.put(name, HexFormat.of().formatHex(one.getArray(), one.getArrayOffset(), one.getArrayOffset() + one.getLength()));
        } else {
            into.put(name, String.valueOf(value));
        }
    }
}
