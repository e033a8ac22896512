# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
#
# Part of scripts/setup.sh: tools of `make install`.

INSTALL_PACKAGES="meson ninja-build"
for package in $INSTALL_PACKAGES; do
    installed "$package" || apt_install "$package"
done
