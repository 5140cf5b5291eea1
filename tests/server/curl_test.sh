#!/usr/bin/env bash
# `mference serve` as curl sees it: status lines, headers, the bytes of an event stream.
#
#   tests/server/curl_test.sh PROGRAM DEMO_SNAPSHOT
#
# Exit status: 0 all passed, 1 failures, 77 curl is not installed.
set -uo pipefail

if [ $# -ne 2 ]; then
  echo "usage: $0 PROGRAM DEMO_SNAPSHOT" >&2
  exit 2
fi
program=$1
snapshot=$2
if ! command -v curl >/dev/null; then
  echo "SKIPPED: curl is not installed"
  exit 77
fi

scratch=$(mktemp -d)
server=
cleanup() {
  if [ -n "$server" ]; then kill "$server" 2>/dev/null; fi
  rm -rf "$scratch"
}
trap cleanup EXIT
export MFERENCE_HOME=$scratch/home

failures=0
fail() {
  echo "FAILED: $1"
  failures=$((failures + 1))
}
# expect WHAT EXPECTED ACTUAL
expect() {
  [ "$2" = "$3" ] || fail "$1: expected '$2', got '$3'"
}
# expect_match WHAT PATTERN FILE: some line matches
expect_match() {
  grep -Eq -- "$2" "$3" || { fail "$1: no line matches '$2' in:"; head -c 2000 "$3"; }
}

"$program" install --from "$snapshot" demo --quiet >/dev/null || exit 1
"$program" serve demo --port 0 --memory 1GiB --context 4096 \
  >"$scratch/ready" 2>"$scratch/log" &
server=$!
for _ in $(seq 1200); do
  grep -q 'ready at' "$scratch/ready" && break
  kill -0 "$server" 2>/dev/null || { cat "$scratch/log"; echo "FAILED: no start"; exit 1; }
  sleep 0.1
done
url=$(sed -n 's/.* ready at \([^ ]*\) .*/\1/p' "$scratch/ready")

# ask NAME PATH BODY [OPTION...]: the body in NAME.body, the head in NAME.head; prints the status
ask() {
  local name=$1 path=$2 body=$3
  shift 3
  curl --silent --show-error --no-buffer --max-time 120 --output "$scratch/$name.body" \
    --dump-header "$scratch/$name.head" --write-out '%{http_code}' \
    --header 'Content-Type: application/json' --data-binary "$body" "$@" "$url$path"
  # Lines as people read them.
  sed -i 's/\r$//' "$scratch/$name.head"
}
chat=/v1/chat/completions
hello='"messages":[{"role":"user","content":"Hello there."}],"temperature":0'

# A whole answer.
expect 'status' 200 "$(ask whole $chat "{\"model\":\"demo\",$hello,\"max_tokens\":6}")"
expect_match 'whole: head' '^HTTP/1\.1 200 OK$' "$scratch/whole.head"
expect_match 'whole: type' '^Content-Type: application/json' "$scratch/whole.head"
expect_match 'whole: id' '^x-request-id: req_' "$scratch/whole.head"
expect 'whole: length' "$(sed -n 's/^Content-Length: //p' "$scratch/whole.head")" \
  "$(stat -c %s "$scratch/whole.body")"
expect_match 'whole: body' '^\{"id":"chatcmpl-[0-9a-f]{32}","object":"chat\.completion"' \
  "$scratch/whole.body"
expect_match 'whole: usage' '"completion_tokens":6' "$scratch/whole.body"

# A stream: nothing but `data: JSON` lines, comments, and empty lines between them.
expect 'status' 200 "$(ask stream $chat \
  "{\"model\":\"demo\",$hello,\"max_tokens\":6,\"stream\":true,
    \"stream_options\":{\"include_usage\":true}}")"
expect_match 'stream: type' '^Content-Type: text/event-stream' "$scratch/stream.head"
expect_match 'stream: cache' '^Cache-Control: no-cache$' "$scratch/stream.head"
expect_match 'stream: proxies' '^X-Accel-Buffering: no$' "$scratch/stream.head"
expect_match 'stream: framing' '^Transfer-Encoding: chunked$' "$scratch/stream.head"
stray=$(awk 'NR % 2 == 1 && !/^data: (\{.*\}|\[DONE\])$/ && !/^: / { print "line " NR ": " $0 }
             NR % 2 == 0 && $0 != "" { print "line " NR ": " $0 }
             END { if (NR % 2) print "no empty line at the end" }' "$scratch/stream.body")
expect 'stream: lines' '' "$stray"
expect 'stream: first' 'assistant' \
  "$(head -n 1 "$scratch/stream.body" | grep -o '"role":"[a-z]*"' | cut -d '"' -f 4)"
expect 'stream: ends' 'data: [DONE]' "$(grep -v '^$' "$scratch/stream.body" | tail -n 1)"
expect 'stream: one end' 1 "$(grep -c '"finish_reason":"' "$scratch/stream.body")"
expect_match 'stream: usage' '"choices":\[\],"usage":\{"prompt_tokens":[0-9]+,"completion_tokens":6' \
  "$scratch/stream.body"
text() {  # the contents, put together
  grep -o '"content":"[^"]*"' "$1" | sed 's/"content":"\(.*\)"/\1/' | tr -d '\n'
}
expect 'stream: text' "$(text "$scratch/whole.body")" "$(text "$scratch/stream.body")"

# A call, whole and streamed.
tools='"tools":[{"type":"function","function":{"name":"look","parameters":{"type":"object",
  "properties":{"left":{"type":"boolean"}},"required":["left"]}}}],
  "tool_choice":"required","parallel_tool_calls":false'
expect 'status' 200 "$(ask call $chat "{\"model\":\"demo\",$hello,\"max_tokens\":60,$tools}")"
expect_match 'call' \
  '"function":\{"name":"look","arguments":"\{\\"left\\":(true|false)\}"\}.*"finish_reason":"tool_calls"' \
  "$scratch/call.body"
expect 'status' 200 "$(ask calls $chat \
  "{\"model\":\"demo\",$hello,\"max_tokens\":60,\"stream\":true,$tools}")"
expect_match 'streamed call: begin' \
  '"tool_calls":\[\{"index":0,"id":"call_[0-9a-f]{24}","type":"function","function":\{"name":"look"' \
  "$scratch/calls.body"
arguments=$(sed -n 's/.*"arguments":"\(.*\)"}}\].*/\1/p' "$scratch/calls.body" | tr -d '\n\\')
[[ $arguments =~ ^\{\"left\":(true|false)\}$ ]] || fail "streamed call: arguments '$arguments'"

# Refusals.
expect 'bad value' 400 "$(ask bad $chat "{\"model\":\"demo\",$hello,\"temperature\":9}")"
expect_match 'bad value' \
  '^\{"error":\{"message":".*","type":"invalid_request_error","param":"temperature","code":"invalid_value"\}\}' \
  "$scratch/bad.body"
expect 'bad JSON' 400 "$(ask bad $chat '{"model":')"
expect 'bad type' 415 "$(curl -s -o /dev/null -w '%{http_code}' --data '{}' "$url$chat")"
expect 'bad model' 404 "$(ask bad $chat "{\"model\":\"other\",$hello}")"
expect 'bad route' 404 "$(ask bad /v1/embeddings '{}')"
expect 'bad method' 405 "$(ask bad $chat '' --request GET)"
expect_match 'bad method' '^Allow: POST$' "$scratch/bad.head"

# Without a body, and two requests on one connection.
expect 'head' 200 "$(curl -s --head -o "$scratch/head" -w '%{http_code}' "$url/health")"
expect 'kept alive' '1 0' \
  "$(curl -s -o /dev/null -o /dev/null -w '%{num_connects} ' "$url/health" "$url/v1/models" |
     sed 's/ $//')"

# A client that gives up in the middle is not computed for, and the next one is answered.
curl --silent --no-buffer --max-time 0.3 --header 'Content-Type: application/json' \
  --data-binary "{\"model\":\"demo\",$hello,\"max_tokens\":3900,\"stream\":true,
    \"logit_bias\":{\"1\":-100,\"50\":-100,\"106\":-100}}" "$url$chat" >"$scratch/cut"
expect 'cut: exit status' 28 $?
if grep -q 'DONE' "$scratch/cut"; then fail 'a stream that was cut has its end'; fi
expect 'status' 200 "$(ask after $chat "{\"model\":\"demo\",$hello,\"max_tokens\":6}")"
expect 'after: text' "$(text "$scratch/whole.body")" "$(text "$scratch/after.body")"
expect_match 'cut: log' ' its client left$' "$scratch/log"
if grep -q 'completion=3900' "$scratch/log"; then fail 'a client that left was computed for'; fi

kill "$server"
wait "$server"
expect 'exit status' 0 $?
server=
if [ "$failures" -gt 0 ]; then
  tail -n 20 "$scratch/log"
  exit 1
fi
echo "curl: all passed"
