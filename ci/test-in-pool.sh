#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Runs tests on a box of a pool that labgrid shares: waits for a free box with the required tags,
# holds it during the tests, and releases it.
#
#   LG_COORDINATOR=labgrid:20408 sh ci/test-in-pool.sh [PYTEST ARGUMENT]…
#
# LG_COORDINATOR         labgrid's coordinator, HOST:PORT
# LINKEMU_TAGS           required tags of a box (box=linkemu)
# LG_HOSTNAME, LG_USERNAME   holder of the place: a unique name per job, without a slash
# LG_ENV                 labgrid's environment (ci/labgrid/environment.yaml)
# and the variables of ci/test-on-box.sh.

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

# The reserved place. LG_ENV must be unset, because it names other places.
place() {
    env -u LG_ENV labgrid-client -p "+$LG_TOKEN" "$@"
}

give_back() {
    place release || true
    # Otherwise it stays reserved for another minute.
    env -u LG_ENV labgrid-client cancel-reservation "$LG_TOKEN" || true
}

# Reservations are polled once a second. The reservation of a job that ends while it waits
# expires after two and a half minutes at most.
# Words are split.
# shellcheck disable=SC2086
reservation=$(env -u LG_ENV labgrid-client reserve --wait --shell ${LINKEMU_TAGS:-box=linkemu})
eval "$reservation"
trap give_back EXIT
trap 'exit 143' HUP INT TERM
place acquire

sh "$ci/test-on-box.sh" --lg-env "$LG_ENV" "$@"
