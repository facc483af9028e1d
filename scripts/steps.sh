# shellcheck shell=bash
# Sourced by scripts/test.sh: steps, some beside others, with a log, a limit of time and the time of each.
#
# Expects target, and all if it is --all. The first step that fails stops all others and ends the script with 1.
logs=$target/test-logs
rm -rf "$logs"
mkdir -p "$logs"

begin=$SECONDS
number=0
# Of steps by name: process, log and beginning while they run, and both times after.
declare -A pid_of log_of begin_of wall_of processor_of
# What begins when a step has ended, as words of the shell, and the names of what has not begun.
declare -A next_of queued
ended_steps=()
followed=
follower=

minutes() {
    printf '%d:%02d' $(($1 / 60)) $(($1 % 60))
}

# Adds up cargo's lines "test result: ok. 12 passed; 0 failed; ...".
totals() {
    cat "$logs"/*.log | awk '
        /^test result: / {
            for (i = 2; i <= NF; i++) {
                if ($i ~ /^passed/) passed += $(i - 1)
                if ($i ~ /^failed/) failed += $(i - 1)
            }
        }
        END { printf "%d passed, %d failed\n", passed, failed }'
}

# The seconds of the processors that the table of docs/testing.md has for a step. It has those of the gate for steps that
# --all has too, where they take longer.
usual() {
    awk -F ' *[|] *' -v name="$1" -v all="$all" '
        $2 == name && (all == "" || $3 == "all") && split($4, part, ":") == 2 {
            print part[1] * 60 + part[2]
            exit
        }' docs/testing.md
}

# Says which steps took 1.3 times as long as the table says.
slower() {
    local name usual took
    for name in "${ended_steps[@]}"; do
        took=${processor_of[$name]}
        usual=$(usual "$name")
        if [ -n "$usual" ] && [ "$took" -gt 10 ] && [ $((took * 10)) -gt $((usual * 13)) ]; then
            echo "slower: $name took $(minutes "$took") of the processors, and docs/testing.md says $(minutes "$usual")"
        fi
    done
}

close() {
    local name separator=
    printf '\n==== Times: in all, and of the processors\n'
    for name in "${ended_steps[@]}"; do
        printf '%6s %6s  %s\n' "$(minutes "${wall_of[$name]}")" "$(minutes "${processor_of[$name]}")" "$name"
    done
    printf '%6s         in all, seed %s\n' "$(minutes $((SECONDS - begin)))" "$REDRT_SEED"
    {
        printf '{"wall_s": %d, "processors": %d, "steps": [' $((SECONDS - begin)) "$(nproc)"
        for name in "${ended_steps[@]}"; do
            printf '%s\n  {"name": "%s", "wall_s": %d, "processor_s": %d}' "$separator" "$name" "${wall_of[$name]}" \
                "${processor_of[$name]}"
            separator=,
        done
        printf '\n]}\n'
    } >"$logs/times.json"
    slower
    totals
}

stop_all() {
    [ ${#pid_of[@]} = 0 ] || kill "${pid_of[@]}" 2>/dev/null || true
    [ ${#pid_of[@]} = 0 ] || wait "${pid_of[@]}" 2>/dev/null || true
}

interrupted() {
    trap '' INT TERM
    stop_all
    echo "interrupted" >&2
    exit 130
}
trap interrupted INT TERM

# measured LIMIT LOG COMMAND...: runs it, and notes what it took of the processors in LOG.times. To be run in the
# background: it ends this shell.
measured() {
    local child code=0
    # Through a file: what a step leaves behind could keep a pipe open for ever.
    timeout --kill-after=10 "$1" "${@:3}" </dev/null >"$2" 2>&1 &
    child=$!
    trap 'kill "$child" 2>/dev/null' TERM
    wait "$child" || code=$?
    # A signal ends the first wait, not the step.
    ! kill -0 "$child" 2>/dev/null || wait "$child" || code=$?
    times >"$2.times"
    exit $code
}

# begin_step SECONDS NAME COMMAND...: in the background.
begin_step() {
    local limit=$1 name=$2 log
    shift 2
    number=$((number + 1))
    log=$logs/$(printf '%02d' $number)-${name//[^a-z0-9]/-}.log
    : >"$log"
    measured "$limit" "$log" "$@" &
    pid_of[$name]=$!
    log_of[$name]=$log
    begin_of[$name]=$SECONDS
    unset "queued[$name]"
}

# start SECONDS NAME COMMAND...: begins a step, beside those that run.
start() {
    begin_step "$@"
    printf '\n==== %s: begun, beside what follows\n' "$2"
}

# follow NAME SECONDS NEXT COMMAND...: begins NEXT as soon as NAME has ended, beside those that run.
follow() {
    local name=$1
    shift
    printf '\n==== %s: begins when %s has ended, beside what follows\n' "$2" "$name"
    next_of[$name]=$(printf '%q ' "$@")
    queued[$2]=yes
}

# note_end NAME: its times. Those of its children are in the second line of `times`, as 1m2.3s 0m4.5s.
note_end() {
    unset "pid_of[$1]"
    wall_of[$1]=$((SECONDS - begin_of[$1]))
    processor_of[$1]=$(awk -F '[ms ]+' 'NR == 2 { printf "%d", $1 * 60 + $2 + $3 * 60 + $4 + 0.5 }' "${log_of[$1]}.times" || true)
    processor_of[$1]=${processor_of[$1]:-0}
    ended_steps+=("$1")
}

# begin_next NAME: what was to follow it.
begin_next() {
    local next=${next_of[$1]-}
    if [ -n "$next" ]; then
        unset "next_of[$1]"
        eval "begin_step $next"
    fi
}

# fail NAME CODE: shows the end of its log, unless all of it was just shown, and ends with 1.
fail() {
    stop_all
    if [ "$1" != "$followed" ]; then
        printf '\n==== %s: the end of %s\n' "$1" "${log_of[$1]}"
        tail -n 60 "${log_of[$1]}"
    fi
    [ "$2" != 124 ] || echo "$1 took too long and was stopped" >&2
    close
    printf 'FAILED: %s, exit code %s\n' "$1" "$2" >&2
    exit 1
}

# await_one: waits until a step ends. If it has failed, that is the end of all.
await_one() {
    local ended name code=0
    wait -n -p ended "${pid_of[@]}" || code=$?
    for name in "${!pid_of[@]}"; do
        [ "${pid_of[$name]}" = "$ended" ] || continue
        note_end "$name"
        [ "$name" != "$followed" ] || wait "$follower" || true
        [ $code = 0 ] || fail "$name" $code
        begin_next "$name"
    done
}

# finish NAME: waits for a step that was begun, or is to follow another, and shows its log.
finish() {
    local name=$1
    printf '\n==== %s\n' "$name"
    while [ -n "${queued[$name]-}" ]; do
        await_one
    done
    if [ -z "${pid_of[$name]-}" ]; then
        cat "${log_of[$name]}"
    else
        followed=$name
        tail --pid="${pid_of[$name]}" --sleep-interval=0.2 --lines=+1 --follow "${log_of[$name]}" &
        follower=$!
        while [ -n "${pid_of[$name]-}" ]; do
            await_one
        done
        followed=
    fi
    echo "---- $(minutes "${wall_of[$name]}")"
}

# step SECONDS NAME COMMAND...: begins a step and waits for it.
step() {
    begin_step "$@"
    finish "$2"
}
