#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs a cargo command that compiles, and shows one progress line instead of a line per crate:
#
#   scripts/cargo.sh build --workspace
#
# On a terminal the line is redrawn in place; elsewhere it is printed every 20 seconds. Warnings
# and errors are shown as cargo prints them; everything goes to build/cargo.log.

set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
mkdir -p build
log=build/cargo.log
: >"$log"
cargo=${CARGO:-cargo}
bar='========================================'

# Draws the progress: units done, all units, and the current unit.
draw() {
    local done=$1 all=$2 now=$3 filled
    filled=$((done * ${#bar} / (all > 0 ? all : 1)))
    if [[ -t 1 ]]; then
        printf '\r\033[Kbuild [%-*s] %d/%d, %d s  %.40s' \
            "${#bar}" "${bar:0:filled}" "$done" "$all" "$SECONDS" "$now"
    elif ((SECONDS - drawn >= 20)); then
        printf 'build [%-*s] %d/%d, %d s\n' "${#bar}" "${bar:0:filled}" "$done" "$all" "$SECONDS"
        drawn=$SECONDS
    fi
}

clear_line() {
    [[ ! -t 1 ]] || printf '\r\033[K'
}

# cargo's stderr. Progress lines end with a carriage return.
show() {
    local line drawn=0
    local progress='Building \[.*\] ([0-9]+)/([0-9]+):? ?(.*)'
    local routine='^ *(Compiling|Checking|Building|Downloading|Downloaded|Updating|Locking|Adding'
    routine+='|Blocking|Finished|Fresh|Executable) '
    while IFS= read -r line; do
        if [[ $line =~ $progress ]]; then
            draw "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}" "${BASH_REMATCH[3]}"
            continue
        fi
        # An empty line, or the progress of downloads.
        [[ -n $line && ! $line =~ ^\ +Fetch\ \[ ]] || continue
        printf '%s\n' "$line" >>"$log"
        [[ $line =~ $routine ]] || { clear_line; printf '%s\n' "$line"; }
    done
    clear_line
}

export CARGO_TERM_PROGRESS_WHEN=always CARGO_TERM_PROGRESS_WIDTH=120 CARGO_TERM_COLOR=never
{
    "$cargo" "$@" 2>&1 >&3 3>&- | stdbuf -oL tr '\r' '\n' | show
    status=${PIPESTATUS[0]}
} 3>&1
((status == 0)) && echo "build: done in $SECONDS s"
exit "$status"
