#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Runs tests on one box. Each test leases it, and waits for its turn if somebody else does.
#
#   LINKEMU_SERVER=box1:8443 sh ci/test-on-box.sh [PYTEST ARGUMENT]…
#
# LINKEMU_SERVER, LINKEMU_CA, LINKEMU_CERT, LINKEMU_KEY   the box, or LINKEMU_SOCKET
# TESTS                  which tests (ci/example)
# RESULTS                where JUnit's report, certificates, and captures of tests that failed go
#                        (results)
# LAB_WAN, LAB_WAN_IP, LAB_CLIENT, LAB_CLIENT_IP   the hosts, see ci/example/conftest.py
# VENV                   what ci/install.sh made (.venv)

set -eu

ci=$(dirname "$0")
export PATH="${VENV:-$PWD/.venv}/bin:$PATH"
mkdir -p "${RESULTS:=results}"
# Else pytest takes it from where the tests are.
RESULTS=$(cd "$RESULTS" && pwd)

# One word each.
# shellcheck disable=SC2086
python3 -m pytest ${TESTS:-"$ci/example"} --junitxml="$RESULTS/junit.xml" \
    --linkemu-out="$RESULTS" --linkemu-capture=failed "$@"
