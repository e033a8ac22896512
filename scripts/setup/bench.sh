# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
#
# Part of scripts/setup.sh: optional tools of the benchmarks.

# DPDK's forwarder, and a counter of instructions.
BENCH_PACKAGES="dpdk dpdk-dev valgrind linux-perf"
want_packages "The benchmarks leave out what needs it." "$BENCH_PACKAGES"
