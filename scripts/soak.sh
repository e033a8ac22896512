#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The long forms of the tests, in parts of at most two hours. Each part can be run by itself, and
# its outcome is kept in build/soak, so that a later call runs only the rest.
#
#   scripts/soak.sh list       a line per part
#   scripts/soak.sh PART…      these parts, also if they have passed
#   scripts/soak.sh [all]      all parts that have not passed on this commit
#
# build/soak/PART.log is the output of a part's last run, build/soak/PART.result its outcome. The
# mutants parts resume after an interruption; a fuzz part starts from the corpus found so far. The
# exit code is 0 only if all parts that ran have passed. A part that cannot run here is SKIPPED
# with the reason; where CI=true that fails, too.
#
# Variables:
#   SOAK_LIMIT        seconds that a part may take (7200)
#   FUZZ_SECONDS      seconds of fuzzing per target (1800)
#   PROPTEST_CASES    cases per property in the part `unit` (4096; `make test` has 256)
#   MUTANTS_JOBS      mutants tested at a time (1)

set -euo pipefail

cd "$(dirname "$0")/.."
export PATH="$PWD/build/tools/bin:$PATH:$HOME/.cargo/bin"

STATE=build/soak
LIMIT=${SOAK_LIMIT:-7200}
# Exit code of a part that cannot run here.
SKIP=77
CARGO=${CARGO:-cargo}

# Name, longest time in minutes, subject.
PARTS='
unit                   60  ignored tests of all crates but the suites below; properties with 16 times the cases
defects                40  known defects, put back one at a time, which the simulation must find
smoke                 120  long forms of the smoke suite (root, network namespaces)
p4                     60  long forms of the P4 suite (root, software switch)
hw                     90  the whole hw suite: all four NIC models, and netem (root, QEMU)
package                60  the whole package suite: both Debian releases, with upgrades, the container image (root)
python                 60  long forms of the Python suite (root, network namespaces)
web                    60  long forms of the suite of the web page, and Firefox (root, network namespaces)
fuzz-frames            40  libFuzzer: frames through the classifier and an engine
fuzz-profile           40  libFuzzer: profile files
fuzz-clients           40  libFuzzer: files of clients
fuzz-scenario          40  libFuzzer: scenario files
fuzz-trace             40  libFuzzer: rate traces
fuzz-log               40  libFuzzer: measured baselines
fuzz-request           40  libFuzzer: requests on the wire
fuzz-theaterq          40  libFuzzer: traces of TheaterQ
fuzz-orbit             40  libFuzzer: element sets of satellites
fuzz-box               40  libFuzzer: box files
fuzz-group             40  libFuzzer: files of groups
fuzz-pair              40  libFuzzer: pairs of captures for trace import
fuzz-estimate          40  libFuzzer: fits of drawn logs
fuzz-traffic           40  libFuzzer: flows of fit --traffic: iperf3, pcap, figures
fuzz-api               40  libFuzzer: calls of all methods with drawn messages
fuzz-json              40  libFuzzer: bodies of JSON and gRPC-Web
fuzz-state             40  libFuzzer: the state of linkd on disk
fuzz-p4runtime         40  libFuzzer: P4Runtime messages
fuzz-shim              40  libFuzzer: frames with a shim
mutants-shaper         60  mutants of the shaper of emu
mutants-aqm            60  mutants of the queue management of emu: CoDel, PIE, RED
mutants-delay          60  mutants of the delay of emu
mutants-channel        60  mutants of the channel of emu
mutants-pipe           60  mutants of the pipe of emu
mutants-store         120  mutants of the packet store of emu
mutants-wheel          60  mutants of the timer wheel of emu
mutants-classify       60  mutants of the classifier of emu
mutants-roles         120  mutants of the roles of linkd: roles, gate, caller
mutants-leases        120  mutants of the leases of linkd: leases, keeper
deny                   15  licences, sources and advisories of the dependencies
busy                  120  make test beside two builds
'

names() {
    awk 'NF { print $1 }' <<<"$PARTS"
}

fail() {
    echo "soak: $*" >&2
    exit 1
}

skip() {
    echo "SKIPPED: $*"
    exit "$SKIP"
}

# ---- The parts. Each is called in a separate shell, by `--part`. ----

part_unit() {
    local failed=0
    # Another test runs `panics`, in a terminal.
    TEST_ARGS="--skip top::screen::tests::panics" scripts/test.sh --long unit nohuge || failed=1
    PROPTEST_CASES=${PROPTEST_CASES:-4096} scripts/test.sh unit || failed=1
    return "$failed"
}

part_defects() {
    scripts/defects.sh
}

part_suite() {
    scripts/test.sh --long "$1" || return
    ! grep -q "^$1"$'\tskipped\t' build/test/summary.tsv ||
        skip "$(sed -n 's/^SKIPPED: //p' "build/test/$1.log" | head -n 1)"
}

# Installs a program of crates.io into build/tools.
tool() {
    command -v "$1" >/dev/null && return
    echo "soak: installing $1 into build/tools"
    "$CARGO" install --locked --root build/tools --target-dir build/tools/target "$1" ||
        skip "$1 cannot be installed"
}

part_fuzz() {
    local target=$1 folder seeds
    "$CARGO" +nightly --version 2>/dev/null ||
        rustup toolchain install nightly --profile minimal ||
        skip "there is no nightly toolchain, and rustup cannot install it"
    tool cargo-fuzz
    case $target in
    frames) folder=dataplane/emu/fuzz ;;
    *) folder=tests/fuzz/fuzz ;;
    esac
    seeds=$PWD/$folder/corpus/$target
    local corpus=$PWD/$STATE/corpus-$target artifacts=$PWD/$STATE/artifacts-$target
    mkdir -p "$corpus" "$artifacts"
    "$CARGO" +nightly fuzz run --fuzz-dir "$folder" --target-dir "build/fuzz-target" "$target" \
        "$corpus" "$seeds" -- -artifact_prefix="$artifacts/" -print_final_stats=1 \
        -max_total_time="${FUZZ_SECONDS:-1800}" -timeout=60 -rss_limit_mb=4096
}

# Mutants of a package, in these files of a folder. Unit tests run first, because they catch most
# mutants in seconds; integration tests run for the remaining ones. Each run skips mutants that were
# caught before.
part_mutants() {
    local package=$1 folder=$2 file which=() code
    shift 2
    tool cargo-mutants
    for file; do which+=(--file "$folder/$file"); done
    # Results of another commit are discarded.
    [ "$(cat "$out/commit" 2>/dev/null)" = "$(commit)" ] || rm -rf "$out"
    mkdir -p "$out"
    commit >"$out/commit"
    # A failing property is sufficient; shrinking can take minutes.
    local settings=(PROPTEST_MAX_SHRINK_ITERS=0 CARGO_MUTANTS_MINIMUM_TEST_TIMEOUT=10)
    # Tests of linkd mostly wait.
    [ "$package" = emu ] || settings+=(RUST_TEST_THREADS=4)
    local targets cases
    for targets in --lib --test=main; do
        code=0
        # A property of the integration tests takes seconds.
        cases=256
        [ "$targets" = --lib ] || cases=64
        # Without CI, tests that lack tools in the copy of the tree are skipped. Only the required
        # targets are built.
        env -u CI PROPTEST_CASES="${PROPTEST_CASES:-$cases}" "${settings[@]}" \
            "$CARGO" mutants --package "$package" "${which[@]}" --profile mutants --iterate \
            --cargo-arg="$targets" --output "$out" --jobs "${MUTANTS_JOBS:-1}" --no-shuffle \
            --colors never --no-times || code=$?
        # 2: some survived; 3: some were caught by a timeout.
        case $code in
        0 | 2 | 3) ;;
        *) return "$code" ;;
        esac
    done
    # If there are both, the exit code reports the timeouts only.
    ! [ -s "$out/mutants.out/missed.txt" ]
}

part_deny() {
    tool cargo-deny
    if "$CARGO" deny fetch db; then
        "$CARGO" deny --workspace check
    else
        echo "soak: advisories are NOT CHECKED: their database cannot be reached"
        "$CARGO" deny --workspace check bans licenses sources
    fi
}

# Ends the process groups of the concurrent builds.
end_builds() {
    local group
    for group in "${builds[@]}"; do
        kill -TERM -- "-$group" 2>/dev/null || true
        wait "$group" 2>/dev/null || true
    done
    rm -rf "build/busy-1" "build/busy-2"
}

# Builds repeatedly into a folder, on one core.
keep_building() {
    while true; do
        rm -rf "$1"
        "$CARGO" build --workspace -j 1 --target-dir "$1" || sleep 1
    done
}

part_busy() {
    builds=()
    trap end_builds EXIT
    # A separate process group for each, so that its compilers end with it.
    set -m
    keep_building "build/busy-1" >"$STATE/busy-1.log" 2>&1 &
    builds+=($!)
    keep_building "build/busy-2" >"$STATE/busy-2.log" 2>&1 &
    builds+=($!)
    set +m
    make test
}

run_part() {
    part=$1 out=$STATE/$1
    case $part in
    mutants-roles) part_mutants linkd control/linkd/src methods.rs authorisation.rs caller.rs ;;
    mutants-leases) part_mutants linkd control/linkd/src leases.rs keeper.rs ;;
    mutants-*)
        local subject=${part#mutants-}
        part_mutants emu dataplane/emu/src "$subject.rs" "$subject/**"
        ;;
    fuzz-*) part_fuzz "${part#fuzz-}" ;;
    unit | defects | deny | busy) "part_$part" ;;
    *) part_suite "$part" ;;
    esac
}

# ---- State ----

# Hash of the working tree; uncommitted changes change it.
commit() {
    local head
    head=$(git rev-parse HEAD 2>/dev/null) || head=unknown
    git diff --quiet HEAD 2>/dev/null || head+=+$(git diff HEAD 2>/dev/null | sha1sum | cut -c 1-12)
    echo "$head"
}

# $2 of a part's last run: commit, outcome, voids, seconds or counts.
kept() {
    sed -n "s/^$2=//p" "$STATE/$1.result" 2>/dev/null || true
}

# A part's outcome on this commit; empty if it has none.
outcome() {
    [ "$(kept "$1" commit)" != "$(commit)" ] || kept "$1" outcome
}

# Line count of files; missing files are ignored.
lines() {
    cat "$@" 2>/dev/null | wc -l
}

# Counts from a part's log and state.
counts() {
    local log=$STATE/$1.log out=$STATE/$1/mutants.out
    grep '^SKIPPED: ' "$log" && return
    case $1 in
    fuzz-*)
        awk '/stat::number_of_executed_units/ { n = $2 } END { print n + 0, "executions" }' "$log"
        ;;
    mutants-*)
        echo "$(lines "$out"/{caught,unviable,previously_caught}.txt) caught or unviable," \
            "$(lines "$out/missed.txt") missed, $(lines "$out/timeout.txt") timed out"
        ;;
    deny) grep -o 'advisories .*\|advisories are NOT CHECKED' "$log" | tail -n 1 || true ;;
    # The closing lines of scripts/test.sh.
    *) grep -E '^[0-9]+ passed, [0-9]+ failed, ' "$log" | paste -sd '; ' ;;
    esac
}

# ---- Running ----

running=
# Ends the running part; `timeout` passes the signal on to all of its processes.
interrupted() {
    trap - INT TERM
    if [ -n "$running" ]; then
        kill -TERM "$running" 2>/dev/null || true
        wait "$running" 2>/dev/null || true
    fi
    echo "soak: interrupted; run it again to resume" >&2
    exit 130
}
trap interrupted INT TERM

# Runs a part within its limit, and records its outcome.
supervise() {
    local part=$1 log=$STATE/$1.log code=0 began=$SECONDS at seconds result
    at=$(commit)
    # An interrupted part resumes; a passed part starts over.
    [ "$(outcome "$part")" != passed ] || rm -rf "${STATE:?}/$part"
    rm -f "$STATE/$part.result"
    echo "soak: $part: starts; log: $log"
    timeout --kill-after=60 "$LIMIT" scripts/soak.sh --part "$part" >"$log" 2>&1 </dev/null &
    running=$!
    local next=$((SECONDS + 60))
    while kill -0 "$running" 2>/dev/null; do
        sleep 1
        [ "$SECONDS" -lt "$next" ] && continue
        next=$((SECONDS + 60))
        echo "soak: $part: $(((SECONDS - began) / 60)) min: $(tail -c 2000 "$log" | tr '\r' '\n' |
            tr -cd '[:print:]\n' | sed '/^ *$/d' | tail -n 1 | cut -c 1-100)"
    done
    wait "$running" || code=$?
    running=
    seconds=$((SECONDS - began))
    case $code in
    0) result=passed ;;
    "$SKIP") result=skipped ;;
    124 | 137)
        result=unfinished
        echo "soak: not finished in $LIMIT s; run it again to resume" >>"$log"
        ;;
    *) result=failed ;;
    esac
    {
        echo "commit=$at"
        echo "outcome=$result"
        echo "voids=$(sed -nE 's/^[0-9]+ passed, .* ([0-9]+) void, .*/\1/p' "$log" | awk '{ n += $1 } END { print n + 0 }')"
        echo "seconds=$seconds"
        echo "counts=$(counts "$part")"
    } >"$STATE/$part.result"
    echo "soak: $part: $result after $seconds s: $(kept "$part" counts)"
    case $result in
    failed | skipped | unfinished) tail -n 20 "$log" | sed 's/^/    /' ;;
    esac
}

list() {
    local name minutes covers
    printf '%-17s %-9s %-12s %s\n' part 'at most' outcome covers
    while read -r name minutes covers; do
        [ -n "$name" ] || continue
        printf '%-17s %-9s %-12s %s\n' "$name" "$minutes min" "$(outcome "$name")" "$covers"
    done <<<"$PARTS"
}

summary() {
    local part
    echo
    printf '%-17s %-11s %8s %6s  %s\n' part outcome seconds voids counts
    for part; do
        printf '%-17s %-11s %8s %6s  %s\n' "$part" "$(kept "$part" outcome)" \
            "$(kept "$part" seconds)" "$(kept "$part" voids)" "$(kept "$part" counts)"
    done
}

main() {
    local name part chosen=() bad=0
    mkdir -p "$STATE"
    [ $# -gt 0 ] || set -- all
    for name; do
        case $name in
        list)
            list
            return
            ;;
        all)
            for part in $(names); do
                if [ "$(outcome "$part")" = passed ]; then
                    echo "soak: $part: has passed on this commit"
                else
                    chosen+=("$part")
                fi
            done
            ;;
        *)
            names | grep -qxF -e "$name" ||
                fail "there is no part \`$name\`; the parts: $(names | paste -sd ' ')"
            chosen+=("$name")
            ;;
        esac
    done
    if [ ${#chosen[@]} = 0 ]; then
        echo "soak: all parts have passed on this commit"
        return
    fi
    for part in "${chosen[@]}"; do supervise "$part"; done
    summary "${chosen[@]}"
    for part in "${chosen[@]}"; do
        case $(kept "$part" outcome) in
        passed) ;;
        unfinished)
            echo "soak: $part: not finished; run it again to resume" >&2
            bad=1
            ;;
        skipped)
            case ${CI-} in
            true | 1) bad=1 ;;
            esac
            ;;
        *) bad=1 ;;
        esac
    done
    return "$bad"
}

if [ "${1-}" = --part ]; then
    trap - INT TERM
    run_part "$2"
else
    main "$@"
fi
