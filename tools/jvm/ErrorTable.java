import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.Errors;

/** Prints one line an error code: code, name, whether a client may retry. */
final class ErrorTable {
    public static void main(String[] args) {
        for (Errors error : Errors.values()) {
            System.out.println(error.code() + " " + error.name() + " "
                + (error.exception() instanceof RetriableException));
        }
    }

    private ErrorTable() {}
}
