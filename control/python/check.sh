#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The suite of the Python package: formatting, types, and the tests, with a test bed of network
# namespaces if the user and the machine permit one.
#
#   LINKEMU_BIN=DIR control/python/check.sh [ARGUMENT OF PYTEST …]
#
#   LINKEMU_BIN=DIR control/python/check.sh -m soak     # only the long forms
#
# The last lines report what ran.

set -eu

cd "$(dirname "$0")"
PYTHON=../../build/tools/python/bin/python

# Reports a missing part, which is a failure in CI.
left_out() {
    echo "python: LEFT OUT: $*" >&2
    case "${CI-}" in
    true | 1) exit 1 ;;
    esac
}

if ! [ -x "$PYTHON" ] || ! "$PYTHON" -c 'import grpc, pytest, hatchling' 2>/dev/null; then
    left_out "all of it: there is no build/tools/python; run scripts/setup.sh python"
    exit 0
fi

"$PYTHON" generate.py
"$PYTHON" -m ruff format --quiet --check . ../../ci || {
    echo "python: the formatting is not ruff's: build/tools/python/bin/ruff format control/python ci" >&2
    exit 1
}
"$PYTHON" -m ruff check --quiet . ../../ci
"$PYTHON" -m mypy

# As in ci/test-in-pool.sh: labgrid's session and our client share a process in tests, too. gRPC
# reads it when it is imported.
export GRPC_POLL_STRATEGY="${GRPC_POLL_STRATEGY:-poll}"

bed=${LINKEMU_BIN:?the directory of the programs}/bed
ran="with the real programs"
if "$bed" -- true; then
    # The bed restricts its command to some processors for the sake of measurements, which these
    # tests do not make. Tests with different boxes run in parallel, because they mostly wait.
    cpus=$(taskset -cp $$)
    "$bed" --tls --report -- taskset -c "${cpus##* }" \
        "$PYTHON" -m pytest -rs -n 3 --dist loadscope "$@"
else
    left_out "whatever needs the real programs: there is no test bed, as said above"
    ran="WITHOUT the real programs"
    "$PYTHON" -m pytest -rs "$@"
fi
echo "python: formatting (ruff), types (mypy --strict) and the tests above are fine, $ran"
case " $* " in
*" soak "*) ;;
*) echo "python: long forms were deselected: control/python/check.sh -m soak runs them" ;;
esac
