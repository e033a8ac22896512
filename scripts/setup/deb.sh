# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
#
# Part of scripts/setup.sh: tools that build and check Debian packages.

DEB_PACKAGES="debhelper go-md2man lintian"
want_packages "Nothing is packed without it." "$DEB_PACKAGES"
