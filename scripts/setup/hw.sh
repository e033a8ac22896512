# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
#
# Part of scripts/setup.sh: the machine of the hw suite. An emulator with igb (QEMU 8 or newer), a
# kernel with VFIO, netem and Hybla, and the programs of the guest. They are unpacked with all
# libraries and not installed, by an apt with separate sources and lists.

HW_PACKAGES="qemu-system-x86 bash coreutils dash driverctl ethtool iperf3 iproute2 iputils-ping \
kmod mawk mount"
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
    # shellcheck disable=SC2016 # apt's own variables
    site=$(apt-get indextargets --format '$(SITE) $(RELEASE) $(COMPONENT)' \
        'Created-By: Packages' | sed -n "s/ $suite main\$//p" | head -n 1)
    [ -n "$site" ] || { echo "apt has no sources of $suite"; return 1; }
    own=$PWD/build/hw-apt
    rm -rf "$own"
    mkdir -p "$own/parts" "$own/lists/partial" "$own/cache/archives/partial"
    # With an empty status, so that all dependencies are unpacked.
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
    # With the C library from the same packages.
    kmod=$(find $new -path '*bin/kmod' | head -n 1)
    loader=$(find $new -type f -name ld-linux-x86-64.so.2 | head -n 1)
    "$loader" --argv0 depmod --library-path "$libraries" "$kmod" -b $new "$version" || return 1
    rm -rf "$own"
    # Last: it marks a complete tree.
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
unpack_hw
