# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
#
# Part of scripts/setup.sh: the guest of the hw suite with the kernel of SAT20's and PAM21's hosts, in
# build/tools/hw-4.15. It is Ubuntu's, from the archive at UBUNTU_ARCHIVE: the packages are verified with
# Ubuntu's keyring, and the keyring by its hash.

OLD_KERNEL=4.15.0-112-generic
KEYRING=pool/main/u/ubuntu-keyring/ubuntu-keyring_2021.03.26_all.deb
KEYRING_SHA256=0d0e7ed6b112f5d03eabf3c7eb01ebdacf9c57714b279e90495cfc58c8c4520f

kernel_unpack() {
    own=$PWD/build/kernel-apt
    rm -rf "$own"
    mkdir -p "$own/parts" "$own/lists/partial" "$own/cache/archives/partial"
    : >"$own/status"
    /usr/lib/apt/apt-helper download-file "$UBUNTU_ARCHIVE/$KEYRING" "$own/keyring.deb" \
        "SHA256:$KEYRING_SHA256" || return 1
    dpkg-deb -x "$own/keyring.deb" "$own/keyring" || return 1
    cat >"$own/parts/ubuntu.sources" <<END
Types: deb
URIs: $UBUNTU_ARCHIVE
Suites: bionic-updates
Components: main
Signed-By: $own/keyring/usr/share/keyrings/ubuntu-archive-keyring.gpg
END
    cat >"$own/apt.conf" <<END
Dir::Etc::SourceList "/dev/null";
Dir::Etc::SourceParts "$own/parts";
Dir::State::Lists "$own/lists";
Dir::State::status "$own/status";
Dir::Cache "$own/cache";
APT::Sandbox::User "root";
Acquire::Languages "none";
Debug::NoLocking "true";
END
    APT_CONFIG=$own/apt.conf apt-get update || return 1
    (cd "$own" && APT_CONFIG=$own/apt.conf apt-get download \
        "linux-image-unsigned-$OLD_KERNEL" "linux-modules-$OLD_KERNEL") || return 1
    new=build/tools/new-4.15
    rm -rf $new
    cp -al build/tools/hw $new || return 1
    for package in "$own"/linux-*.deb; do
        dpkg-deb --fsys-tarfile "$package" | tar -x -C $new --keep-directory-symlink || return 1
    done
    libraries=$new/lib/x86_64-linux-gnu:$new/usr/lib/x86_64-linux-gnu
    kmod=$(find $new -path '*bin/kmod' | head -n 1)
    loader=$(find $new -type f -name ld-linux-x86-64.so.2 | head -n 1)
    "$loader" --argv0 depmod --library-path "$libraries" "$kmod" -b $new "$OLD_KERNEL" || return 1
    rm -rf "$own"
    # A new file: the old one is a hard link to the other guest's. Last: it marks a complete tree.
    rm $new/kernel
    echo "$OLD_KERNEL" >$new/kernel
}

unpack_kernel() {
    [ "$(cat build/tools/hw-4.15/kernel 2>/dev/null)" = "$OLD_KERNEL" ] && return
    [ -e build/tools/hw/kernel ] || fail "the part kernel needs the part hw: scripts/setup.sh hw kernel"
    [ -n "${UBUNTU_ARCHIVE:-}" ] ||
        fail "the part kernel needs the URL of an Ubuntu archive: set UBUNTU_ARCHIVE, such as that of a mirror"
    echo "setup: unpacking Ubuntu's $OLD_KERNEL into build/tools/hw-4.15"
    rm -rf build/tools/hw-4.15
    kernel_unpack >>"$LOG" 2>&1 && mv build/tools/new-4.15 build/tools/hw-4.15 && return
    rm -rf build/tools/new-4.15
    fail "apt-get cannot get Ubuntu's $OLD_KERNEL (see $LOG)"
}
unpack_kernel
