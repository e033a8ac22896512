#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Runs tests on a box of a pool that labgrid shares: waits for a free one with the wanted tags,
# holds it while the tests run, and gives it back.
#
#   LG_COORDINATOR=labgrid:20408 sh ci/test-in-pool.sh [PYTEST ARGUMENT]…
#
# LG_COORDINATOR         labgrid's coordinator, HOST:PORT
# LINKEMU_TAGS           which boxes will do (box=linkemu)
# LG_HOSTNAME, LG_USERNAME   who holds the place: each job its own name, without a slash
# LG_ENV                 labgrid's environment (ci/labgrid/environment.yaml)
# and those of ci/test-on-box.sh.

set -eu

ci=$(dirname "$0")
: "${LG_COORDINATOR:?set it to HOST:PORT of the coordinator of labgrid}"
export LG_COORDINATOR
export LG_ENV="${LG_ENV:-$ci/labgrid/environment.yaml}"
export LG_USERNAME="${LG_USERNAME:-job-$$}"
# labgrid's session and the client of linkemu are two users of gRPC in one process. Its epoll1
# has aborted such a process: ev_epoll1_linux.cc, "next_worker->state == KICKED".
export GRPC_POLL_STRATEGY="${GRPC_POLL_STRATEGY:-poll}"
export PATH="${VENV:-$PWD/.venv}/bin:$PATH"

# The place that is ours, or will be. Not by LG_ENV, which names places of its own.
place() {
    env -u LG_ENV labgrid-client -p "+$LG_TOKEN" "$@"
}

give_back() {
    place release || true
    # Else it is kept for us for another minute.
    env -u LG_ENV labgrid-client cancel-reservation "$LG_TOKEN" || true
}

# Who waits is asked for once a second; a job that ends while it waits is forgotten after
# two minutes and a half at the most.
# One word each.
# shellcheck disable=SC2086
reservation=$(env -u LG_ENV labgrid-client reserve --wait --shell ${LINKEMU_TAGS:-box=linkemu})
eval "$reservation"
trap give_back EXIT
trap 'exit 143' HUP INT TERM
place acquire

sh "$ci/test-on-box.sh" --lg-env "$LG_ENV" "$@"
