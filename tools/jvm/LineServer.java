import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.StreamReadConstraints;
import com.fasterxml.jackson.core.json.JsonReadFeature;
import com.fasterxml.jackson.core.json.JsonWriteFeature;
import com.fasterxml.jackson.databind.json.JsonMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;

/**
 * A program of one line in, one line out, which ends with its input.
 *
 * <p>A request is words parted by tabs. The reply to one that fails is {@code !}, the exception's
 * class and its text; the next request is answered as ever. Lines are ASCII, of any length.
 */
final class LineServer {
    /** JSON as Python's json module writes and reads it: ASCII, NaN and Infinity as bare words. */
    static final JsonMapper JSON = JsonMapper.builder(
            JsonFactory.builder()
                .streamReadConstraints(
                    StreamReadConstraints.builder().maxStringLength(Integer.MAX_VALUE).build())
                .build())
        .enable(JsonReadFeature.ALLOW_NON_NUMERIC_NUMBERS)
        .enable(JsonWriteFeature.ESCAPE_NON_ASCII)
        .disable(JsonWriteFeature.WRITE_NAN_AS_STRINGS)
        .build();

    interface Command {
        String answer(String[] words) throws Exception;
    }

    static void serve(Command command) throws IOException {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        var out = new PrintStream(System.out, false, StandardCharsets.US_ASCII);
        System.setOut(System.err); // whatever a library prints must not pass for a reply
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.print(answer(command, line.split("\t", -1)) + "\n");
            out.flush();
        }
    }

    private static String answer(Command command, String[] words) {
        try {
            return command.answer(words);
        } catch (InvocationTargetException error) {
            return failure(error.getCause());
        } catch (Exception | LinkageError | StackOverflowError | OutOfMemoryError error) {
            return failure(error);
        }
    }

    private static String failure(Throwable error) {
        return ("!" + error.getClass().getName() + ": " + error.getMessage())
            .replaceAll("\\R", " ");
    }

    static String hex(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return HexFormat.of().formatHex(bytes);
    }

    static ByteBuffer bytes(String hex) {
        return ByteBuffer.wrap(HexFormat.of().parseHex(hex));
    }

    private LineServer() {}
}
