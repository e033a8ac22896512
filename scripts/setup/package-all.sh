# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
#
# Part of scripts/setup.sh: like package.sh, with the roots of all releases.

. scripts/setup/package.sh
