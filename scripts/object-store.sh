#!/bin/bash
# Checkpoints in a real S3 server: scripts/object-store.sh
#
# The server is moto's, from PyPI, installed in target/object-store; it speaks S3's protocol, and keeps objects in its
# memory. A job takes checkpoints there, large enough to go in pieces, goes back to them, and is resumed from the URL
# alone, with its working directory gone. A proxy before the server takes a piece in and does not pass it on, and hangs:
# the checkpoint is given up, the job goes on. redrt-tests/cases/objects.rs has the rest, with directories.
#
#   REDRT_PREFIX         the installation that is tested; built and installed in target/test-prefix otherwise
#   CARGO_TARGET_DIR     where to build, if not in target/
set -euo pipefail

cd "$(dirname -- "$0")/.."
. scripts/prefix.sh
work=$target/object-store
mkdir -p "$work"
python=$work/venv/bin/python
[ -x "$python" ] || python3 -m venv "$work/venv"
"$python" -c 'import moto.server, flask_cors' 2>/dev/null ||
    "$python" -m pip --disable-pip-version-check --quiet install --no-cache-dir --only-binary :all: 'moto[s3]' flask flask-cors
"$REDRT_PREFIX/bin/mpicc" -w -o "$work/until" redrt-tests/programs/until.c
run=$(mktemp -d "$work/run.XXXXXX")
passed=0
failed=0
started=()

finish() {
    for id in "${started[@]}"; do
        kill "$id" 2>/dev/null || true
    done
    rm -rf "$run"
}
trap finish EXIT

# Both print the port that they have got.
cat >"$run/server.py" <<'END'
import sys
from werkzeug.serving import make_server
from moto.server import DomainDispatcherApplication, create_backend_app
server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=True)
print(server.server_port, flush=True)
server.serve_forever()
END
cat >"$run/proxy.py" <<'END'
"""Passes on what goes to the server until the file `hold` is there: then no more than a MiB, and no answer."""
import os, socket, sys, threading
server, hold = int(sys.argv[1]), sys.argv[2]
def held():
    return os.path.exists(hold)
def move(source, target, is_request):
    left = 1 << 20
    try:
        while data := source.recv(65536):
            if held():
                left -= len(data)
                if not is_request or left < 0:
                    threading.Event().wait()
            target.sendall(data)
    except OSError:
        pass
    for end in (source, target):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    client, _ = listener.accept()
    upstream = socket.create_connection(("127.0.0.1", server))
    threading.Thread(target=move, args=(client, upstream, True), daemon=True).start()
    threading.Thread(target=move, args=(upstream, client, False), daemon=True).start()
END

# begin FILE COMMAND...: starts it and waits for the port.
begin() {
    local file=$1
    shift
    "$@" >"$run/$file" 2>"$run/$file.log" &
    started+=($!)
    until [ -s "$run/$file" ]; do
        kill -0 $! 2>/dev/null || { cat "$run/$file.log" && exit 1; }
        sleep 0.1
    done
}

begin server "$python" "$run/server.py"
begin proxy "$python" "$run/proxy.py" "$(cat "$run/server")" "$run/hold"
export AWS_ENDPOINT_URL=http://127.0.0.1:$(cat "$run/proxy") AWS_ALLOW_HTTP=true AWS_REGION=us-east-1
export AWS_ACCESS_KEY_ID=key AWS_SECRET_ACCESS_KEY=a-secret-that-nobody-prints REDRT_STORE_PATIENCE=10
"$python" -c 'import boto3; boto3.client("s3").create_bucket(Bucket="bucket")'

url=s3://bucket/some/prefix
redctl=$REDRT_PREFIX/bin/redctl

check() {
    local what=$1
    shift
    if "$@"; then
        passed=$((passed + 1))
        echo "ok: $what"
    else
        failed=$((failed + 1))
        echo "FAILED: $what"
        tail -n 20 "$run/err"
    fi
}

# start RANKS_DEGREE WORDS...: redrun in the background, in $job; computing when this returns.
start() {
    "$REDRT_PREFIX/bin/redrun" --oversubscribe --timeout 300 --audit "$run/audit" "$@" </dev/null >"$run/out" 2>"$run/err" &
    job=$!
    started+=("$job")
}

# ask WORDS...: redctl about this job, where others run too.
ask() {
    local number
    number=$(grep -o -m 1 '"job":"[0-9a-f]*"' "$run/audit" | cut -d '"' -f 4)
    "$redctl" --job "$number" "$@"
}

# await COUNT TEXT FILE: until the file has as many lines with the text.
await() {
    for _ in $(seq 600); do
        [ "$(grep -c -- "$2" "$3" 2>/dev/null || true)" -ge "$1" ] && return 0
        kill -0 "$job" 2>/dev/null || return 1
        sleep 0.1
    done
    return 1
}

for degree in 1 2; do
    rm -f "$run"/{audit,stop,hold}
    export UNTIL_MIB=24
    start -r $degree -n 3 --checkpoint asked --checkpoint-dir "$url" --checkpoint-scratch "$run/scratch" "$work/until" "$run/stop"
    check "r = $degree: it computes" await 1 computing "$run/out"
    check "a checkpoint is taken" ask checkpoint
    for index in $(seq 0 $((degree - 1))); do
        ask kill 1.$index || true
    done
    check "the job goes back to it" await 1 '"event":"went-back"' "$run/audit"
    check "all are there" await $((6 * degree)) '"event":"started"' "$run/audit"
    check "a second one is taken" ask checkpoint
    touch "$run/hold"
    check "a store that stops in the midst of a file costs the checkpoint" eval '! ask checkpoint 2>"$run/told" && grep -q "does not answer" "$run/told"'
    rm "$run/hold"
    check "the next one is taken" ask checkpoint
    kill -9 "$job"
    wait "$job" 2>/dev/null || true
    rm -rf "$run/scratch"
    check "redctl lists it" eval '[ $("$redctl" checkpoints --checkpoint-dir "$url" | wc -l) -ge 2 ]'
    check "and verifies it" "$redctl" checkpoint verify "$url"
    touch "$run/stop"
    start --resume "$url" --checkpoint-scratch "$run/elsewhere"
    code=0
    wait "$job" || code=$?
    check "it is resumed elsewhere" eval '[ $code = 0 ] && [ "$(grep -c ": right" "$run/out")" = 3 ]'
    check "no secret is told" eval '! grep -q a-secret "$run/err" "$run/audit" "$run/told"'
    check "redctl deletes it" "$redctl" checkpoint delete "$url"
    check "nothing is left" eval '[ -z "$("$redctl" checkpoints "$url" 2>/dev/null)" ]'
    rm -rf "$run/elsewhere"
done
AWS_ENDPOINT_URL=http://127.0.0.1:9 start -n 1 --checkpoint 1h --checkpoint-dir "$url" --checkpoint-scratch "$run/scratch" "$work/until" "$run/stop"
code=0
wait "$job" || code=$?
check "a store that is not there is told before the start" eval '[ $code != 0 ] && grep -q "cannot be reached" "$run/err"'

echo "test result: object stores. $passed passed; $failed failed;"
[ $failed = 0 ]
