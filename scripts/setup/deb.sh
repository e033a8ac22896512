# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
#
# Part of scripts/setup.sh: what packs Debian packages and checks them.

DEB_PACKAGES="debhelper go-md2man lintian"
want_packages "Nothing is packed without it." "$DEB_PACKAGES"
