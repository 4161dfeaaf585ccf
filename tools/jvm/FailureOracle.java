import java.nio.ByteBuffer;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.requests.AbstractRequest;

/**
 * What Kafka's broker answers to a request that failed as a whole.
 *
 * <pre>
 * fail  api key  version  hex of the request  error code  -> hex of the response
 * </pre>
 *
 * <p>The reply is empty if the request gets no response.
 */
final class FailureOracle {
    public static void main(String[] args) throws Exception {
        LineServer.serve(FailureOracle::answer);
    }

    private static String answer(String[] words) {
        ApiKeys api = ApiKeys.forId(Integer.parseInt(words[1]));
        short version = Short.parseShort(words[2]);
        ByteBuffer bytes = LineServer.bytes(words[3]);
        var error = Errors.forCode(Short.parseShort(words[4]));
        var request = AbstractRequest.parseRequest(api, version, new ByteBufferAccessor(bytes));
        var response = request.request.getErrorResponse(0, error.exception());
        return response == null
            ? ""
            : LineServer.hex(MessageUtil.toByteBufferAccessor(response.data(), version).buffer());
    }

    private FailureOracle() {}
}
