#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs test suites, with the set-up and the build that they need:
#
#   scripts/test.sh [--long] [SUITE ...]      all suites if none is named
#
# Shows progress per suite and the output of failed tests; the whole output of each suite goes to
# build/test/SUITE.log. The last lines are a table with the time and the counts of each suite, which
# build/test/summary.tsv has for machines (suite, outcome, passed, failed, void, skipped, seconds),
# and the names of failed tests with the first lines of their reasons, which build/test/failed.txt has.
#
# --long runs the long forms, which are ignored otherwise: see scripts/soak.sh.
# TEST_ARGS is passed on to the test programs, for example a filter by name.
#
# A void test is a real-time test that had no result because the machine was starved of processor
# time. It is neither passed nor failed.

set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit

ALL=(unit nohuge budget python web smoke p4 hw package)
# Time limit of a suite, in seconds.
LIMIT=1200
LONG_LIMIT=7000

fail() {
    echo "test: $*" >&2
    exit 2
}

long=
suites=()
for argument in "$@"; do
    case "$argument" in
    --long) long=yes LIMIT=$LONG_LIMIT ;;
    -*) fail "unknown option $argument; usage: scripts/test.sh [--long] [SUITE ...]" ;;
    *)
        [[ " ${ALL[*]} " == *" $argument "* ]] ||
            fail "unknown suite $argument; the suites are: ${ALL[*]}"
        suites+=("$argument")
        ;;
    esac
done
((${#suites[@]})) || suites=("${ALL[@]}")

out=build/test
mkdir -p "$out"
rm -f "$out"/summary.tsv "$out"/failed.txt
target=${CARGO_TARGET_DIR:-target}
LINKEMU_BIN=$(realpath -m "$target/debug")
export LINKEMU_BIN CARGO_TERM_COLOR=never
start=$SECONDS
status=0
read -ra given <<<"${TEST_ARGS-}"

# One selection of packages for all suites, so that features are resolved once and nothing is
# compiled twice. Suites run different targets.
cargo_test() {
    "${CARGO:-cargo}" test --workspace --no-fail-fast "$@"
}

unit_tests() {
    local code=0
    # Many tests wait for programs and streams: with as many threads as processors, processors stand idle.
    export RUST_TEST_THREADS=$((2 * $(nproc)))
    cargo_test --lib --bins --test main -- "$@" || code=1
    cargo_test --doc -- "$@" || code=1
    return $code
}
# Figures are of the release build; the profile is that of its part that a packet passes.
counted=("${CARGO:-cargo}" test --profile budget -p perf --test budget)
export -f cargo_test unit_tests

# The command of suite $1, as the array `run`. The long form of a suite on the whole system includes
# its short form.
command_of() {
    case "$1" in
    unit) run=(unit_tests ${long:+--ignored} "${given[@]}") ;;
    nohuge) run=(cargo_test --test nohuge --test cleanup -- ${long:+--ignored} "${given[@]}") ;;
    budget) run=("${counted[@]}" -- "${given[@]}") ;;
    web) run=(control/web/check.sh ${long:+--long} "${given[@]}") ;;
    python) run=(control/python/check.sh -v ${long:+-m soak} "${given[@]}") ;;
    *) run=(cargo_test --test "$1" -- ${long:+--include-ignored} "${given[@]}") ;;
    esac
}

# Number of completed tests, by the log of a suite.
ended() {
    grep -cE '^test .* \.\.\. |^\[gw[0-9]+\] \[ *[0-9]+%\] |(PASSED|FAILED|SKIPPED|ERROR) +\[ *[0-9]+%\]' "$1"
}

# Sums a count over the closing lines of all test programs in log $1, cargo's and pytest's.
count() {
    grep -E '^test result: |^=+ .* in [0-9.]+s.*=+$' "$1" | grep -oE "[0-9]+ $2" |
        awk '{ n += $1 } END { print n + 0 }'
}

# Output of failed tests in log $1: libtest's and pytest's sections, or the end of the log.
failures() {
    local found
    found=$(awk '/^failures:$/ || /^=+ (FAILURES|ERRORS) =+$/ { on = 1 }
        /^test result: FAILED/ || /^=+ short test summary/ { on = 0 } on' "$1" | head -n 400)
    if [[ -n $found ]]; then echo "$found"; else tail -n 40 "$1"; fi
}

# Names of failed tests in log $1, or why its program ended.
names() {
    grep -hE '^test .* FAILED$|^(FAILED|ERROR) |^not ok |(^fatal|: fatal) |overflowed its stack|\(signal: ' "$1" |
        sort -u | head -n 20
}

# First lines of the reasons of failed tests in log $1. They are repeated at the end, which is read first.
reasons() {
    awk '/^---- .* ----$/ { name = $2; left = 2; next }
        left && NF { print "    " name ": " substr($0, 1, 300); --left }' "$1" | head -n 40
}

# Shows the progress of suite $1 while process $2 runs.
follow() {
    local log=$out/$1.log shown=$SECONDS
    while kill -0 "$2" 2>/dev/null; do
        sleep 1
        if [[ -t 1 ]]; then
            printf '\r\033[K%-8s %d tests, %d s' "$1" "$(ended "$log")" $((SECONDS - begin))
        elif ((SECONDS - shown >= 30)); then
            shown=$SECONDS
            printf '%-8s %d tests, %d s\n' "$1" "$(ended "$log")" $((SECONDS - begin))
        fi
    done
    [[ ! -t 1 ]] || printf '\r\033[K'
}

# A line of the table.
row() {
    printf '%-8s %-7s %6s %6s %6s %7s %6s s\n' "$@"
}

# What runs in the background: process ids by name. The output is in build/test/NAME.log.
declare -A running=()

# Starts $1 with a time limit of $2 seconds; 0: without one.
launch() {
    local name=$1 limit=$2
    shift 2
    # A process group, so that what is over its limit ends with all of its processes.
    timeout --kill-after=30 "$limit" "$@" >"$out/$name.log" 2>&1 </dev/null &
    running[$name]=$!
}

await() {
    wait "${running[$1]}"
    local code=$?
    unset "running[$1]"
    return "$code"
}

# Ends a step in the background. Shows its output if it failed.
finish() {
    await "$1" || { cat "$out/$1.log"; false; }
}

run_suite() {
    local suite=$1 log=$out/$1.log begin=$SECONDS outcome=passed code
    local passed failed void skipped
    command_of "$suite"
    launch "$suite" "$LIMIT" bash -c '"$@"' test "${run[@]}"
    follow "$suite" "${running[$suite]}"
    await "$suite"
    code=$?
    passed=$(count "$log" passed)
    failed=$(count "$log" '(failed|errors?)')
    void=$(grep -cE '^VOID: |^SKIPPED .*: VOID: ' "$log")
    # Harnesses report a void test as ignored.
    skipped=$(($(count "$log" '(ignored|skipped|deselected)') - void))
    if ((code != 0)); then
        outcome=FAILED status=1
        ((code == 124)) && echo "$suite: ended after its limit of $LIMIT s"
        ((failed > 0)) || failed=1
        failures "$log"
        { names "$log"; reasons "$log"; } | sed "s/^/$suite: /" >>"$out/failed.txt"
    elif ((passed == 0 && void == 0)); then
        outcome=skipped
    fi
    row "$suite" "$outcome" "$passed" "$failed" "$void" "$skipped" $((SECONDS - begin))
    printf '%s\t' "$suite" "$outcome" "$passed" "$failed" "$void" "$skipped" >>"$out/summary.tsv"
    printf '%s\n' $((SECONDS - begin)) >>"$out/summary.tsv"
}

# Runs a set-up step, with a line in the table. If it fails, no suite can run.
step() {
    local name=$1 begin=$SECONDS
    shift
    if ! "$@"; then
        row "$name" FAILED - - - - $((SECONDS - begin))
        printf '%s\tFAILED\t0\t1\t0\t0\t%s\n' "$name" $((SECONDS - begin)) >>"$out/summary.tsv"
        exit 1
    fi
    row "$name" done - - - - $((SECONDS - begin))
    printf '%s\tdone\t0\t0\t0\t0\t%s\n' "$name" $((SECONDS - begin)) >>"$out/summary.tsv"
}

parts=()
for suite in "${suites[@]}"; do
    part=$suite
    [[ $suite != package || -z $long ]] || { part=package-all && parts+=(image); }
    [[ ! -f scripts/setup/$part.sh ]] || parts+=("$part")
done

trap 'for it in "${running[@]}"; do kill "$it" 2>/dev/null; done' EXIT
trap 'exit 130' INT TERM
row suite outcome passed failed void skipped time
step set-up scripts/setup.sh node
# linkd embeds it.
step page scripts/web.sh
# Tools are mostly downloaded, so cargo compiles meanwhile.
launch set-up 0 scripts/setup.sh ${parts+"${parts[@]}"}
# Near its end, the build of the tests compiles one crate at a time: this one uses the other core.
[[ " ${suites[*]} " != *" budget "* ]] || launch counted 0 "${counted[@]}" --no-run
[[ ${suites[*]} == budget ]] || step build scripts/cargo.sh test --workspace --no-run
[[ " ${suites[*]} " != *" budget "* ]] || step counted finish counted
step parts finish set-up
cat "$out/set-up.log"
for suite in "${suites[@]}"; do
    run_suite "$suite"
done
awk -F'\t' -v seconds=$((SECONDS - start)) '
    { passed += $3; failed += $4; void += $5; skipped += $6 }
    END { printf "%d passed, %d failed, %d void, %d skipped in %d s\n", passed, failed, void, skipped, seconds }
' "$out/summary.tsv"
[[ ! -f $out/failed.txt ]] || cat "$out/failed.txt"
exit "$status"
