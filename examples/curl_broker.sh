#!/bin/sh
# A broker's requests to a sidecar, with curl:  sh examples/curl_broker.sh http://127.0.0.1:8480 420000 1000 1600
set -eu
sidecar=$1 stream=$2 start=$3 end=$4
files=$(mktemp -d)
trap 'rm -rf "$files"' EXIT
ask() { curl --silent --show-error --fail-with-body --max-time 30 --retry 3 "$@"; }

# Whether the sidecar is ready: 503 until the first image is loaded.
ask "$sidecar/readyz" > /dev/null

# The objects that hold the offsets; the answer has an ETag.
lookup="$sidecar/v1/objects?stream_id=$stream&start=$start&end=$end&limit=100"
ask --dump-header "$files/headers" "$lookup"
echo

# The same request again: 304 if the answer is unchanged.
etag=$(tr -d '\r' < "$files/headers" | sed -n 's/^[Ee][Tt][Aa][Gg]: //p')
ask --output /dev/null --write-out 'again: %{http_code}\n' --header "If-None-Match: $etag" "$lookup"

# Many streams at once.
ask --header 'Content-Type: application/json' "$sidecar/v1/objects:batch" \
    --data "{\"lookups\": [{\"stream_id\": $stream, \"start\": $start, \"end\": $end, \"limit\": 100}]}"
echo

# The records, in their stored form.
ask --output "$files/records" "$sidecar/v1/records?stream_id=$stream&start=$start&end=$end"
echo "records: $(wc -c < "$files/records" | tr -d ' ') bytes"
