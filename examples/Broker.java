import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;

/**
 * A broker's read path over a sidecar, which needs only the JDK:
 *
 *     java examples/Broker.java http://127.0.0.1:8480 420000 1000 1600
 *
 * All threads of a broker share one client, which keeps connections open. Record batches are received in their stored
 * form (docs/reference/objects.md, "Record batch"): 33 bytes of header, then the payload.
 */
public final class Broker {
    private static final int PAYLOAD_BYTES_MAX = 64 << 20;
    private static final int TRIES = 5;

    private final HttpClient client = HttpClient.newBuilder().connectTimeout(Duration.ofSeconds(5)).build();
    private final String sidecar;

    Broker(String sidecar) {
        this.sidecar = sidecar;
    }

    /** Processes a record batch. */
    interface Consumer {
        void take(long streamId, long baseOffset, int count, byte[] payload);
    }

    /** The objects that hold offsets [start, end) of a stream, as JSON. */
    String objects(long streamId, long start, long end) throws IOException, InterruptedException {
        try (InputStream body = ask("/v1/objects?limit=100&stream_id=" + streamId + "&start=" + start + "&end=" + end)) {
            return new String(body.readAllBytes(), StandardCharsets.UTF_8);
        }
    }

    /** Passes each record batch that holds offsets [start, end) to a consumer. */
    void read(long streamId, long start, long end, Consumer consumer) throws IOException, InterruptedException {
        String path = "/v1/records?stream_id=" + streamId + "&start=" + start + "&end=" + end;
        try (DataInputStream in = new DataInputStream(new BufferedInputStream(ask(path)))) {
            for (int magic = in.read(); magic != -1; magic = in.read()) {
                long stream = in.readLong();
                in.readLong(); // the epoch of the producer
                long baseOffset = in.readLong();
                int count = in.readInt();
                int size = in.readInt();
                if (size < 0 || size > PAYLOAD_BYTES_MAX) {
                    throw new IOException("expected a payload of at most " + PAYLOAD_BYTES_MAX + " bytes, found " + size);
                }
                byte[] payload = in.readNBytes(size);
                if (payload.length < size) {
                    throw new EOFException("expected " + size + " bytes, found " + payload.length);
                }
                consumer.take(stream, baseOffset, count, payload);
            }
        }
    }

    /** The body of an answer; after 429 and 503 the request is repeated, after the time in Retry-After. */
    private InputStream ask(String path) throws IOException, InterruptedException {
        HttpRequest request = HttpRequest.newBuilder(URI.create(sidecar + path)).timeout(Duration.ofSeconds(30)).build();
        for (int tried = 1; ; tried++) {
            HttpResponse<InputStream> reply = client.send(request, HttpResponse.BodyHandlers.ofInputStream());
            int status = reply.statusCode();
            if (status == 200) {
                return reply.body();
            }
            String problem;
            try (InputStream body = reply.body()) {
                problem = new String(body.readNBytes(4096), StandardCharsets.UTF_8);
            }
            if ((status != 429 && status != 503) || tried == TRIES) {
                throw new IOException(status + ": " + problem);
            }
            Thread.sleep(1000 * reply.headers().firstValueAsLong("Retry-After").orElse(1));
        }
    }

    public static void main(String[] words) throws Exception {
        Broker broker = new Broker(words[0]);
        long streamId = Long.parseLong(words[1]);
        long start = Long.parseLong(words[2]);
        long end = Long.parseLong(words[3]);
        System.out.println(broker.objects(streamId, start, end));
        broker.read(streamId, start, end, (stream, offset, count, payload) ->
            System.out.println("[" + offset + ", " + (offset + count) + ") " + payload.length + " bytes"));
    }
}
