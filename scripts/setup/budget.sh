# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
#
# Part of scripts/setup.sh: the counter of instructions.

want_packages "The budget of instructions is not checked." valgrind
