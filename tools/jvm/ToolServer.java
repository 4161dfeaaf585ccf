import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command-line tools one after the other in one JVM: starting one takes longer than
 * what most of them do.
 *
 * <p>A request is the class of a tool, its input in hex, the seconds that it may take, and its
 * arguments in hex. The reply is its exit status, its output and its errors, both in hex. A tool
 * that takes longer has no status, and ends this program: nobody could stop it.
 */
final class ToolServer {
    private static final ByteArrayOutputStream OUTPUT = new ByteArrayOutputStream();
    private static final ByteArrayOutputStream ERRORS = new ByteArrayOutputStream();
    private static final List<Runnable> HOOKS = new CopyOnWriteArrayList<>();
    private static InputStream input = InputStream.nullInputStream();
    private static Exited exited;

    /** The first call for an exit, and what was printed by then: a process would print no more. */
    private record Exited(int status, int output, int errors) {}

    /** What unwinds a tool that calls for an exit, so that it closes its clients. */
    private static final class Ended extends Error {
        Ended() {
            super("the tool has ended", null, false, false);
        }
    }

    private static void exit(int status) {
        if (exited == null) {
            exited = new Exited(status, OUTPUT.size(), ERRORS.size());
        }
        throw new Ended();
    }

    /** What System.in is, whichever tool runs: Scala keeps the streams that it first saw. */
    private static final class Input extends InputStream {
        @Override
        public int read() throws java.io.IOException {
            return input.read();
        }

        @Override
        public int read(byte[] bytes, int from, int count) throws java.io.IOException {
            return input.read(bytes, from, count);
        }

        @Override
        public int available() throws java.io.IOException {
            return input.available();
        }
    }

    public static void main(String[] args) throws Exception {
        Exit.setExitProcedure((status, message) -> exit(status));
        Exit.setHaltProcedure((status, message) -> exit(status));
        Exit.setShutdownHookAdder((name, hook) -> HOOKS.add(hook));
        var line = new PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out));
        PrintStream errors = printer(ERRORS);
        PrintStream output = printer(OUTPUT);
        var requests = new java.io.BufferedReader(
            new java.io.InputStreamReader(System.in, StandardCharsets.US_ASCII));
        System.setErr(errors);
        System.setOut(output);
        System.setIn(new Input());
        for (String request = requests.readLine(); request != null; request = requests.readLine()) {
            String[] words = request.split("\t", -1);
            exited = null;
            Integer status = run(words);
            line.print((status == null ? "" : status) + "\t" + taken(OUTPUT) + "\t" + taken(ERRORS)
                + "\n");
            line.flush();
            if (status == null) {
                Runtime.getRuntime().halt(1);
            }
        }
    }

    /** The exit status of a tool, null if it did not end in time. */
    private static Integer run(String[] words) throws InterruptedException {
        input = new ByteArrayInputStream(HexFormat.of().parseHex(words[1]));
        String[] arguments = Arrays.stream(words, 3, words.length)
            .map(word -> new String(HexFormat.of().parseHex(word), StandardCharsets.UTF_8))
            .toArray(String[]::new);
        var status = new Integer[1];
        var tool = new Thread(() -> status[0] = end(words[0], arguments), "main");
        tool.start();
        tool.join(1000L * Integer.parseInt(words[2]));
        return tool.isAlive() ? null : status[0];
    }

    private static int end(String name, String[] arguments) {
        int status = status(name, arguments);
        if (exited != null) {
            cut(OUTPUT, exited.output);
            cut(ERRORS, exited.errors);
        }
        for (Runnable hook : HOOKS) {
            hook.run();
        }
        HOOKS.clear();
        return exited == null ? status : exited.status;
    }

    private static int status(String name, String[] arguments) {
        try {
            Class.forName(name).getMethod("main", String[].class)
                .invoke(null, (Object) arguments);
            return 0;
        } catch (InvocationTargetException error) {
            return statusOf(error.getCause());
        } catch (ReflectiveOperationException error) {
            return statusOf(error);
        }
    }

    private static int statusOf(Throwable error) {
        System.err.print("Exception in thread \"main\" ");
        error.printStackTrace();
        return 1;
    }

    private static PrintStream printer(OutputStream stream) {
        return new PrintStream(stream, true, StandardCharsets.UTF_8);
    }

    private static void cut(ByteArrayOutputStream stream, int size) {
        synchronized (stream) {
            byte[] printed = stream.toByteArray();
            stream.reset();
            stream.write(printed, 0, size);
        }
    }

    private static String taken(ByteArrayOutputStream stream) {
        synchronized (stream) {
            String hex = HexFormat.of().formatHex(stream.toByteArray());
            stream.reset();
            return hex;
        }
    }

    private ToolServer() {}
}
