#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Installs the missing packages for building and testing, on Debian 12 or newer. If nothing is missing, it
# does nothing and does not need root. The output of apt-get goes into build/setup.log.
#
#   scripts/setup.sh [PART ...]
#
# Without a part: a compiler, DPDK, and the tools of the test bed, for `make build` and `make demo`.
# Each part adds what one target needs:
#
#   bench    optional tools of the benchmarks, if available
#   budget   valgrind; the budget of instructions is skipped without it
#   deb      the tools that make Debian packages
#   hw       QEMU, a kernel and the guest's programs below build/tools/hw; the hw suite is skipped
#            without them
#   image    tools that make and run container images without a container engine
#   install  meson and ninja
#   kernel   the same with the kernel of two studies (`make repro`), below build/tools/hw-4.15
#   lint     buf below build/tools/buf, with npm: `make lint` checks the protos with it
#   node     node and npm, which build the web page of linkd
#   package  deb, and a Debian system that the packages are tested on, of this machine's release
#   package-all  the same with the systems of all releases
#   python   a Python with gRPC and pytest below build/tools/python
#   unit     Prometheus and its promtool below build/tools/prometheus
#   web      node, and Chromium and tshark for the tests of the web page

set -eu

# The oldest that can build the workspace: `rust-version` in Cargo.toml.
RUST=1.88
PACKAGES="libdpdk-dev clang libclang-dev pkg-config gcc libc6-dev make \
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
    # apt-get refuses to go on where dpkg was interrupted. A dpkg that still runs is waited for.
    export DEBIAN_FRONTEND=noninteractive
    [ -z "$(ls -A /var/lib/dpkg/updates)" ] || dpkg --configure -a >>"$LOG" 2>&1 || true
    apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "$@" \
        >>"$LOG" 2>&1 || { tail -n 5 "$LOG" >&2; fail "apt-get install failed: see $LOG"; }
}

# Installs the available packages of $2; $1 describes the effect of missing ones.
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

for part in "$@"; do
    [ -f "scripts/setup/$part.sh" ] || fail "unknown part \`$part\`: there are" \
        "$(cd scripts/setup && echo *.sh | sed 's/\.sh//g')"
done

command -v apt-get >/dev/null ||
    fail "this is not Debian: install the likes of these yourself: $PACKAGES, and cargo $RUST"

missing=
for package in $PACKAGES; do
    installed "$package" || missing="$missing $package"
done
# Words are split.
# shellcheck disable=SC2086
[ -z "$missing" ] || apt_install $missing

pkg-config --exists 'libdpdk >= 22.11' ||
    fail "libdpdk here is $(pkg-config --modversion libdpdk 2>/dev/null || echo missing), \
older than 22.11: use Debian 12 or newer"

rust_is_enough || install_rust
rust_is_enough || fail "cargo on PATH is still older than $RUST: $(command -v cargo || echo none)"

# The variable `part` names the part to the sourced file.
for part in "$@"; do
    # shellcheck source=/dev/null
    . "scripts/setup/$part.sh"
done
