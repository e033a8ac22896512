#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Installs what building and testing need and what is missing, on Debian 12 or newer.
# Does nothing, and needs no root, where nothing is missing. What apt-get says goes
# into build/setup.log.
#
#   scripts/setup.sh [bench | hw | package | python]
#
# With `bench` also what only the benchmarks use, as far as it can be had: they do without.
# With `hw` also the machine of the hw suite, which is skipped without it: QEMU, a kernel and
# what its guest runs, below build/tools/hw.
# With `package` what makes Debian packages, and the Debian systems that they are tested on.
# With `python` no more than a build has.

set -eu

# The oldest that can build the workspace: `rust-version` in Cargo.toml.
RUST=1.88
PACKAGES="libdpdk-dev clang libclang-dev pkg-config gcc libc6-dev make meson ninja-build \
iperf3 iproute2 iputils-ping ethtool tcpdump util-linux ca-certificates openssl"

cd "$(dirname "$0")/.."
mkdir -p build
LOG=build/setup.log
: >"$LOG"

fail() {
    echo "setup: $*" >&2
    exit 1
}

# Succeeds if version $1 is not older than $2.
not_older() {
    [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

installed() {
    dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null | grep -qx installed
}

rust_is_enough() {
    command -v cargo >/dev/null && command -v rustc >/dev/null &&
        not_older "$(rustc --version 2>/dev/null | cut -d' ' -f2)" "$RUST"
}

# apt-get's candidate version of a package; empty if there is none.
candidate() {
    apt-cache policy "$1" 2>/dev/null | sed -n 's/^  Candidate: \([^(].*\)/\1/p'
}

UPDATED=
update() {
    [ -n "$UPDATED" ] && return
    echo "setup: apt-get update"
    apt-get update >>"$LOG" 2>&1 || fail "apt-get update failed: see $LOG"
    UPDATED=yes
}

apt_install() {
    [ "$(id -u)" = 0 ] || fail "not installed: $*. Run scripts/setup.sh as root."
    update
    echo "setup: apt-get install $*"
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" \
        >>"$LOG" 2>&1 || { tail -n 5 "$LOG" >&2; fail "apt-get install failed: see $LOG"; }
}

# Installs what of the packages $2 can be had; $1 says what is done without the others.
want_packages() {
    for package in $2; do
        installed "$package" && continue
        if [ "$(id -u)" != 0 ]; then
            echo "setup: not installed: $package. $1"
        elif update && [ -n "$(candidate "$package")" ]; then
            apt_install "$package"
        else
            echo "setup: apt-get has no $package. $1"
        fi
    done
}

install_rust() {
    remedy="install Rust $RUST or newer with rustup, and put ~/.cargo/bin on PATH"
    [ "$(id -u)" = 0 ] || fail "there is no cargo $RUST or newer on PATH: $remedy"
    update
    if not_older "$(candidate cargo)" "$RUST"; then
        apt_install cargo rustc rust-clippy rustfmt
    elif [ -n "$(candidate rustup)" ]; then
        # Debian 13 has an older compiler and an installer for newer ones.
        apt_install rustup
        echo "setup: rustup toolchain install stable"
        rustup toolchain install stable --profile minimal --component clippy,rustfmt \
            >>"$LOG" 2>&1 || fail "rustup failed: see $LOG; else $remedy"
        rustup default stable >>"$LOG" 2>&1 || fail "rustup failed: see $LOG"
    else
        fail "Debian's cargo here is $(candidate cargo), older than $RUST: $remedy"
    fi
}

case "${1-}" in
'' | bench | hw | package | python) ;;
*) fail "unknown argument \`$1\`: there are \`bench\`, \`hw\`, \`package\` and \`python\`" ;;
esac

command -v apt-get >/dev/null ||
    fail "this is not Debian: install the likes of these yourself: $PACKAGES, and cargo $RUST"

missing=
for package in $PACKAGES; do
    installed "$package" || missing="$missing $package"
done
# One word each.
# shellcheck disable=SC2086
[ -z "$missing" ] || apt_install $missing

# Prometheus and its promtool check what is in monitoring/. Installed, the package would
# start a server; so it is only unpacked.
unpack_prometheus() {
    command -v prometheus >/dev/null && command -v promtool >/dev/null && return
    [ -x build/tools/prometheus/promtool ] && return
    if [ -z "$(candidate prometheus)" ] && [ "$(id -u)" = 0 ]; then update; fi
    echo "setup: unpacking Debian's prometheus into build/tools"
    rm -rf build/tools/prometheus build/tools/new
    mkdir -p build/tools/new
    # Lists that are old name a version that is gone.
    for list in old fresh; do
        [ "$list" = old ] || { [ "$(id -u)" = 0 ] && update; } || break
        (
            cd build/tools/new &&
                apt-get -o APT::Sandbox::User=root download prometheus &&
                dpkg-deb --fsys-tarfile prometheus_*.deb >data.tar &&
                tar -xf data.tar --strip-components=3 ./usr/bin/prometheus ./usr/bin/promtool &&
                rm prometheus_*.deb data.tar
        ) >>"$LOG" 2>&1 && mv build/tools/new build/tools/prometheus && return
    done
    rm -rf build/tools/new
    echo "setup: apt-get has no prometheus (see $LOG). Tests that need it are left out, or fail" \
        "where CI=true."
}
unpack_prometheus

# A Python apart from the system's own, with what its requirements name and with the package of
# control/python as it is in the source tree.
install_python() {
    wanted=control/python/requirements.txt
    tree=build/tools/python
    if ! cmp -s "$wanted" $tree/requirements.txt; then
        echo "setup: a Python with gRPC and pytest in $tree"
        rm -rf $tree
        if ! python3 -c 'import ensurepip' 2>/dev/null && [ "$(id -u)" = 0 ]; then
            apt_install python3-venv
        fi
        mkdir -p build/tools
        if ! python3 -m venv $tree >>"$LOG" 2>&1 ||
            ! $tree/bin/pip install --disable-pip-version-check --only-binary :all: \
                -r "$wanted" >>"$LOG" 2>&1; then
            rm -rf $tree
            echo "setup: pip cannot install $wanted (see $LOG). Tests that need it are left out," \
                "or fail where CI=true."
            return
        fi
        cp "$wanted" $tree/
    fi
    # Entry points and options; the stubs are made anew by each `make python`.
    cmp -s control/python/pyproject.toml $tree/pyproject.toml && return
    if ! $tree/bin/pip install --disable-pip-version-check --no-deps --no-build-isolation \
        --no-index -e control/python >>"$LOG" 2>&1; then
        echo "setup: pip cannot install control/python (see $LOG). Tests that need it are left" \
            "out, or fail where CI=true."
        return
    fi
    cp control/python/pyproject.toml $tree/
}
install_python

pkg-config --exists 'libdpdk >= 22.11' ||
    fail "libdpdk here is $(pkg-config --modversion libdpdk 2>/dev/null || echo missing), \
older than 22.11: use Debian 12 or newer"

rust_is_enough || install_rust
rust_is_enough || fail "cargo on PATH is still older than $RUST: $(command -v cargo || echo none)"

# What one suite needs beside that.
case "${1-}" in
bench) . scripts/setup/bench.sh ;;
hw) . scripts/setup/hw.sh ;;
package) . scripts/setup/package.sh ;;
esac
