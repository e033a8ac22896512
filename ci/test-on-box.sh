#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Runs tests on one box. Each test leases it, and waits while another lease is active.
#
#   LINKEMU_SERVER=box1:8443 sh ci/test-on-box.sh [PYTEST ARGUMENT]…
#
# LINKEMU_SERVER, LINKEMU_CA, LINKEMU_CERT, LINKEMU_KEY   the box, or LINKEMU_SOCKET
# TESTS                  directory of the tests (ci/example)
# RESULTS                directory for JUnit's report, certificates, and captures of failed tests
#                        (results)
# LAB_WAN, LAB_WAN_IP, LAB_CLIENT, LAB_CLIENT_IP   the hosts, see ci/example/conftest.py
# VENV                   virtual environment of ci/install.sh (.venv)

set -eu

ci=$(dirname "$0")
export PATH="${VENV:-$PWD/.venv}/bin:$PATH"
mkdir -p "${RESULTS:=results}"
# Otherwise pytest derives it from the directory of the tests.
RESULTS=$(cd "$RESULTS" && pwd)

# Words are split.
# shellcheck disable=SC2086
python3 -m pytest ${TESTS:-"$ci/example"} --junitxml="$RESULTS/junit.xml" \
    --linkemu-out="$RESULTS" --linkemu-capture=failed "$@"
