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

set -eu

# The oldest that can build the workspace: `rust-version` in Cargo.toml.
RUST=1.88
PACKAGES="libdpdk-dev clang libclang-dev pkg-config gcc libc6-dev make meson ninja-build \
iperf3 iproute2 iputils-ping ethtool tcpdump util-linux ca-certificates openssl"
# The driver's own forwarder, and what counts instructions.
BENCH_PACKAGES="dpdk dpdk-dev valgrind linux-perf"
# What packs, and what the packages' tests boot Debian systems with.
PACKAGE_PACKAGES="debhelper lintian mmdebstrap systemd-container binutils"

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

if [ "${1-}" = bench ]; then
    for package in $BENCH_PACKAGES; do
        installed "$package" && continue
        if [ "$(id -u)" != 0 ]; then
            echo "setup: not installed: $package. The benchmarks leave out what needs it."
        elif update && [ -n "$(candidate "$package")" ]; then
            apt_install "$package"
        else
            echo "setup: apt-get has no $package. The benchmarks leave out what needs it."
        fi
    done
fi

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

# The machine of the hw suite: an emulator that has igb (QEMU 8 or newer), a kernel with VFIO,
# netem and Hybla, and what the guest runs. All are unpacked and none is installed, with every
# library that they need, by an apt whose sources and lists are its own.
HW_PACKAGES="qemu-system-x86 bash coreutils dash driverctl ethtool iperf3 iproute2 iputils-ping kmod mawk mount"
HW_KERNEL=linux-image-cloud-amd64

hw_apt() {
    command=$1
    shift
    APT_CONFIG=$PWD/build/hw-apt/apt.conf "$command" "$@"
}

# The newest release of a package in the machine's own suite; empty if there is none.
hw_candidate() {
    hw_apt apt-cache policy "$1" | sed -n 's/^  Candidate: \([^(].*\)/\1/p' | sed 's/^[0-9]*://'
}

# Makes build/tools/new of the packages.
hw_unpack() {
    suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
    site=$(apt-get indextargets --format '$(SITE) $(RELEASE) $(COMPONENT)' \
        'Created-By: Packages' | sed -n "s/ $suite main\$//p" | head -n 1)
    [ -n "$site" ] || { echo "apt has no sources of $suite"; return 1; }
    own=$PWD/build/hw-apt
    rm -rf "$own"
    mkdir -p "$own/parts" "$own/lists/partial" "$own/cache/archives/partial"
    # As if nothing were installed: then everything that is needed is unpacked.
    : >"$own/status"
    cat >"$own/parts/debian.sources" <<END
Types: deb
URIs: $site
Suites: $suite $suite-updates $suite-backports
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
END
    cat >"$own/apt.conf" <<END
Dir::Etc::SourceList "/dev/null";
Dir::Etc::SourceParts "$own/parts";
Dir::State::Lists "$own/lists";
Dir::State::status "$own/status";
Dir::Cache "$own/cache";
APT::Sandbox::User "root";
APT::Get::Assume-Yes "true";
APT::Install-Recommends "false";
Acquire::Languages "none";
Debug::NoLocking "true";
END
    hw_apt apt-get update || return 1
    release=$suite-backports
    not_older "$(hw_candidate qemu-system-x86)" 8 && release=$suite
    # shellcheck disable=SC2086
    hw_apt apt-get install --download-only -t "$release" $HW_PACKAGES || return 1
    kernel=$(hw_apt apt-cache depends "$HW_KERNEL/$release" |
        sed -n 's/^ *Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
    [ -n "$kernel" ] || { echo "$release has no $HW_KERNEL"; return 1; }
    (cd "$own/cache/archives" && APT_CONFIG=$own/apt.conf apt-get download "$kernel") || return 1
    new=build/tools/new
    mkdir -p $new
    for package in "$own"/cache/archives/*.deb; do
        dpkg-deb --fsys-tarfile "$package" | tar -x -C $new --keep-directory-symlink \
            --exclude=./usr/share/doc --exclude=./usr/share/man --exclude=./usr/share/locale ||
            return 1
    done
    version=${kernel#linux-image-}
    libraries=$new/lib/x86_64-linux-gnu:$new/usr/lib/x86_64-linux-gnu
    # With the C library that they came with.
    kmod=$(find $new -path '*bin/kmod' | head -n 1)
    loader=$(find $new -type f -name ld-linux-x86-64.so.2 | head -n 1)
    "$loader" --argv0 depmod --library-path "$libraries" "$kmod" -b $new "$version" || return 1
    rm -rf "$own"
    # Last: it says that all is there.
    echo "$version" >$new/kernel
    echo "$HW_PACKAGES" >$new/packages
}

unpack_hw() {
    [ "$(cat build/tools/hw/packages 2>/dev/null)" = "$HW_PACKAGES" ] && return
    echo "setup: unpacking Debian's QEMU, kernel and what its guest runs into build/tools/hw"
    rm -rf build/tools/hw build/tools/new
    reason="this is no amd64"
    if [ "$(dpkg --print-architecture)" = amd64 ]; then
        hw_unpack >>"$LOG" 2>&1 && mv build/tools/new build/tools/hw && return
        reason="apt-get cannot get them (see $LOG)"
    fi
    rm -rf build/tools/new
    echo "setup: no QEMU or kernel for the hw suite: $reason. The suite is left out, or fails" \
        "where CI=true."
}
[ "${1-}" != hw ] || unpack_hw

pkg-config --exists 'libdpdk >= 22.11' ||
    fail "libdpdk here is $(pkg-config --modversion libdpdk 2>/dev/null || echo missing), \
older than 22.11: use Debian 12 or newer"

rust_is_enough || install_rust
rust_is_enough || fail "cargo on PATH is still older than $RUST: $(command -v cargo || echo none)"

# Tools and roots of the packages' tests.
set_up_package() {
    for package in $PACKAGE_PACKAGES; do
        installed "$package" && continue
        if [ "$(id -u)" != 0 ]; then
            echo "setup: not installed: $package. What needs it is left out."
        elif update && [ -n "$(candidate "$package")" ]; then
            apt_install "$package"
        else
            echo "setup: apt-get has no $package. What needs it is left out."
        fi
    done
    for suite in bookworm trixie; do make_root "$suite"; done
}

# What the packages and their tests need of Debian, unpacked by a package's test itself: roots
# are booted without a network.
ROOT_ARCHIVES="kmod libbpf1 libbsd0 libibverbs1 ibverbs-providers libnuma1 libxdp1 driverctl \
logrotate sensible-utils"
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
    # shellcheck disable=SC2016 # apt's own variables
    mirror=$(apt-get indextargets --format '$(LABEL) $(CODENAME) $(SITE)' 'Created-By: Packages' |
        sed -n "s/^Debian $(. /etc/os-release && echo "$VERSION_CODENAME") //p" | head -n 1)
    if [ -z "$mirror" ]; then
        echo "setup: apt here uses no mirror of Debian. $left_out"
        return
    fi
    echo "setup: a root of $1 in $root"
    rm -rf "$root" "$root.new"
    mkdir -p build/tools/roots
    # As this machine's apt: a mirror may be a snapshot, or behind a proxy.
    valid='' proxy=''
    eval "$(apt-config shell valid Acquire::Check-Valid-Until proxy Acquire::http::Proxy)"
    if mmdebstrap --variant=apt --skip=cleanup/apt,cleanup/reproducible \
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
[ "${1-}" != package ] || set_up_package
