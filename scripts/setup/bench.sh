# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
#
# Part of scripts/setup.sh: what only the benchmarks use.

# The driver's own forwarder, and what counts instructions.
BENCH_PACKAGES="dpdk dpdk-dev valgrind linux-perf"
want_packages "The benchmarks leave out what needs it." "$BENCH_PACKAGES"
