#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Puts known defects back into a copy of the sources, one at a time, and expects that the simulation
# finds each of them: a check that cannot fail proves nothing.
#
#   scripts/defects.sh [NAME ...]     all of tests/simulation/defects if none is named
#
# SEEDS is the number of histories in which a defect must be found (1000). The output of each is
# build/defects/NAME.log. The exit code is 0 only if all were found.

set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD
out=$root/build/defects
names=("$@")
if ((!${#names[@]})); then
    for patch in tests/simulation/defects/*.patch; do
        names+=("$(basename "$patch" .patch)")
    done
fi
rm -rf "$out/src"
mkdir -p "$out/src"
git ls-files -z | xargs -0 cp -P --parents -t "$out/src"
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/target}
missed=0
for name in "${names[@]}"; do
    patch=$root/tests/simulation/defects/$name.patch
    world=$(sed -n 's/^World: //p' "$patch")
    log=$out/$name.log
    (cd "$out/src" && patch -s -p1 --no-backup-if-mismatch <"$patch")
    if ! (cd "$out/src" && cargo build -q -p simulation) >"$log" 2>&1; then
        echo "$name: does not compile, see $log"
        missed=1
    elif "$CARGO_TARGET_DIR/debug/simulation" "$world" --seeds "${SEEDS:-1000}" >"$log" 2>&1; then
        echo "$name: not found in ${SEEDS:-1000} histories of $world"
        missed=1
    else
        echo "$name: found by $world, $(head -1 "$log" | tr -d :)"
    fi
    (cd "$out/src" && patch -s -R -p1 --no-backup-if-mismatch <"$patch")
done
exit $missed
