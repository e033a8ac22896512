#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Checks rules that the compiler does not check:
#
# - each file in a crate's tests/ is a module of tests/main.rs; otherwise its tests never run;
# - the protos follow buf's STANDARD rules, with the exceptions in proto/buf.yaml; left out where there
#   is no buf (`scripts/setup.sh lint`);
# - modules have no cycles (scripts/cycles.py), and crates depend on lower layers only (scripts/layers.py);
# - builds with and without tests resolve the same features; otherwise dependencies are compiled
#   twice (docs/adr/0040-one-build-for-programs-and-tests.md).

set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
status=0

for main in $(git ls-files '*/tests/main.rs'); do
    for file in "${main%/main.rs}"/*.rs; do
        module=$(basename "$file" .rs)
        # A module, or a separate test target.
        [[ $module == main ]] || grep -q "^mod $module;" "$main" ||
            grep -q "path = \"tests/$module.rs\"" "${main%/tests/main.rs}/Cargo.toml" || {
            echo "lint: $file is not compiled: add \`mod $module;\` to $main"
            status=1
        }
    done
done

scripts/cycles.py || status=1
scripts/layers.py || status=1

buf=$(command -v buf || echo build/tools/buf/node_modules/.bin/buf)
if [[ -x $buf ]]; then
    "$buf" lint proto || status=1
else
    echo "lint: LEFT OUT: buf lint proto: there is no buf; run scripts/setup.sh lint"
fi

scripts/cargo.sh test --workspace --no-run || exit 1
compiled=$("${CARGO:-cargo}" build 2>&1 | grep -E '^ *Compiling ')
if [[ -n $compiled ]]; then
    echo "lint: \`cargo build\` compiles these again after \`cargo test --workspace --no-run\`:"
    echo "$compiled"
    echo "lint: declare the features of their dependencies in the workspace's Cargo.toml only"
    status=1
fi
exit "$status"
