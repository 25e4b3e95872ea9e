package interop;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** The Java SDK's part: runs the role that the context names and prints JSON lines. */
public final class Main {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final BufferedReader STDIN = new BufferedReader(new InputStreamReader(System.in));
    private static final int CASE_SECONDS_MAX = 60;

    /** The SDK has no such thing. */
    static final class NotOffered extends Exception {
        NotOffered(String why) {
            super(why);
        }
    }

    public static void main(String[] arguments) throws Exception {
        System.setProperty("org.slf4j.simpleLogger.defaultLogLevel", "warn");
        JsonNode context = JSON.readTree(new File(arguments[0]));
        switch (context.get("role").asText()) {
            case "cases" -> runCases(new Cases(context), context);
            case "processor" -> Processor.processor(context);
            case "feeder" -> Processor.feeder(context);
            case "write" -> Rich.write(context);
            case "read" -> Rich.read(context);
            default -> throw new IllegalArgumentException("no such role: " + context.get("role"));
        }
        System.exit(0);
    }

    private static void runCases(Cases cases, JsonNode context) {
        ExecutorService threads = Executors.newCachedThreadPool();
        for (JsonNode name : context.get("cases")) {
            long started = System.currentTimeMillis();
            String result = "pass";
            String detail = "";
            try {
                detail = threads.submit(cases.named(name.asText())).get(CASE_SECONDS_MAX, TimeUnit.SECONDS);
            } catch (ExecutionException failed) {
                result = failed.getCause() instanceof NotOffered ? "n/a" : "fail";
                detail = failed.getCause() instanceof NotOffered ? failed.getCause().getMessage() : failed.getCause().toString();
                failed.getCause().printStackTrace();
            } catch (TimeoutException | InterruptedException late) {
                result = "fail";
                detail = "no end within " + CASE_SECONDS_MAX + " s";
            }
            say(object().put("case", name.asText()).put("result", result).put("detail", detail)
                .put("ms", System.currentTimeMillis() - started));
        }
    }

    static ObjectNode object() {
        return JSON.createObjectNode();
    }

    /** Prints one line for the harness. */
    static synchronized void say(JsonNode line) {
        System.out.println(line);
    }

    /** The harness's next line; null when it has closed the pipe. */
    static JsonNode told() throws IOException {
        String line = STDIN.readLine();
        return line == null ? null : JSON.readTree(line);
    }
}
