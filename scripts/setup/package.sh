# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
#
# Part of scripts/setup.sh: tools and Debian systems of the packages' tests. With `package` one
# root, of this machine's own release (the newest one if its own has no packages), as
# `package::machine::own` chooses it; with `package-all` the roots of all releases.

. scripts/setup/deb.sh

# Tools with which the packages' tests boot Debian systems.
PACKAGE_PACKAGES="mmdebstrap systemd-container binutils"
RELEASES="bookworm trixie"

# Debian packages that our packages and their tests need. Roots are booted without a network, so
# their archives are downloaded into the root; a test installs them.
ROOT_ARCHIVES="kmod libbpf1 libbsd0 libibverbs1 ibverbs-providers libnuma1 libxdp1 driverctl \
libpcap0.8 logrotate sensible-utils"
ROOT_INCLUDE="systemd systemd-sysv dbus iproute2 iputils-ping"

# A minimal Debian of suite $1 in build/tools/roots, from the mirror that apt uses here.
make_root() {
    root=build/tools/roots/$1
    [ -f "$root/.complete" ] && grep -qxF "$ROOT_INCLUDE $ROOT_ARCHIVES" "$root/.complete" && return
    left_out="Tests on Debian's $1 are left out, or fail where CI=true."
    if [ "$(id -u)" != 0 ] || ! command -v mmdebstrap >/dev/null; then
        echo "setup: no root of $1 without root and mmdebstrap. $left_out"
        return
    fi
    update
    . scripts/mirror.sh
    if [ -z "$mirror" ]; then
        echo "setup: apt here uses no mirror of Debian. $left_out"
        return
    fi
    echo "setup: a root of $1 in $root"
    rm -rf "$root" "$root.new"
    mkdir -p build/tools/roots
    # In a separate mount namespace: if it is killed, /proc and /sys do not stay mounted in the
    # unfinished root, where a later removal would descend into them.
    # shellcheck disable=SC2016 # the hooks' own
    if unshare --mount mmdebstrap --variant=apt --skip=cleanup/apt,cleanup/reproducible \
        --include="$(echo "$ROOT_INCLUDE" | tr ' ' ',')" \
        ${valid:+--aptopt="Acquire::Check-Valid-Until \"$valid\""} \
        ${proxy:+--aptopt="Acquire::http::Proxy \"$proxy\""} \
        --customize-hook='chroot "$1" apt-get -y --download-only install '"$ROOT_ARCHIVES" \
        --customize-hook='rm -f "$1/etc/machine-id" "$1/etc/hostname"' \
        "$1" "$root.new" "deb $mirror $1 main" >>"$LOG" 2>&1; then
        echo "$ROOT_INCLUDE $ROOT_ARCHIVES" >"$root.new/.complete"
        mv "$root.new" "$root"
    else
        rm -rf "$root.new"
        echo "setup: mmdebstrap could not make it (see $LOG). $left_out"
    fi
}
want_packages "What needs it is left out." "$PACKAGE_PACKAGES"
suites=$RELEASES
if [ "$part" = package ]; then
    suites=${RELEASES##* }
    own=$(. /etc/os-release && echo "${VERSION_CODENAME-}")
    case " $RELEASES " in *" $own "*) suites=$own ;; esac
fi
for suite in $suites; do make_root "$suite"; done
