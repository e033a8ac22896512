#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Makes a container image of the Debian packages in DEBS, as an OCI layout OUT/linkemu with the tag `latest`
# and as the archive OUT/linkemu.tar. The same packages, the same state of Debian's archive and the same
# commit give the same image. It needs no container engine.
#
#   scripts/image.sh [DEBS [OUT]]        as root; build/deb and build/image if not given

set -eu

fail() {
    echo "image: $*" >&2
    exit 1
}

cd "$(dirname "$0")/.."
debs=$(realpath "${1:-build/deb}")
out=${2:-build/image}
mkdir -p "$out"
out=$(realpath "$out")
for tool in mmdebstrap umoci; do
    command -v "$tool" >/dev/null || fail "there is no $tool: run scripts/setup.sh image"
done
[ "$(id -u)" = 0 ] || fail "needs root, to give files to their owners: run it with sudo"
linkemu=$(echo "$debs"/linkemu_*.deb)
linkctl=$(echo "$debs"/linkctl_*.deb)
[ -f "$linkemu" ] && [ -f "$linkctl" ] || fail "there are no packages in $debs: make deb"
version=$(dpkg-deb --field "$linkemu" Version)
arch=$(dpkg-deb --field "$linkemu" Architecture)
release=$(. /etc/os-release && echo "$VERSION_CODENAME")

SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y "$linkemu")}
export SOURCE_DATE_EPOCH
created=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)

. scripts/mirror.sh
[ -n "$mirror" ] || fail "apt uses no mirror of Debian here"

rm -rf "$out/linkemu" "$out/linkemu.tar" "$out/rootfs.tar"
echo "image: a root of Debian $release with linkemu $version"
# The mirror of this machine is not the user's: its name does not go into the image. The package's daemon files are for
# systemd, which is not in a container.
# shellcheck disable=SC2016 # the hooks' own
unshare --mount mmdebstrap --variant=apt --architectures="$arch" --quiet \
    --include=iproute2,systemd-standalone-sysusers \
    ${valid:+--aptopt="Acquire::Check-Valid-Until \"$valid\""} \
    ${proxy:+--aptopt="Acquire::http::Proxy \"$proxy\""} \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    --dpkgopt='path-include=/usr/share/doc/linkemu/*' \
    --customize-hook="mkdir -p \"\$1/tmp/debs\" && cp '$linkctl' '$linkemu' \"\$1/tmp/debs\"" \
    --customize-hook='chroot "$1" sh -c "apt-get -qq -y --no-install-recommends install /tmp/debs/*.deb"' \
    --customize-hook='rm -rf "$1/tmp/debs"' \
    --customize-hook="install -m 755 packaging/container/linkemu-box \"\$1/usr/sbin/linkemu-box\"" \
    --customize-hook='rm -f "$1"/etc/apt/sources.list "$1"/etc/apt/apt.conf.d/99mmdebstrap "$1/etc/hostname" "$1/etc/resolv.conf"' \
    --customize-hook='rm -rf "$1"/var/log/* "$1"/var/cache/*/* "$1"/var/lib/apt/lists/* "$1"/run/*' \
    --customize-hook='rm -f "$1"/etc/*- "$1"/var/lib/dpkg/*-old' \
    "$release" "$out/rootfs.tar" "deb $mirror $release main" >"$out/log" 2>&1 || {
    tail -n 20 "$out/log" >&2
    fail "mmdebstrap failed: see $out/log"
}

umoci init --layout "$out/linkemu"
umoci new --image "$out/linkemu:latest"
umoci raw add-layer --image "$out/linkemu:latest" --history.created "$created" \
    --history.created_by scripts/image.sh "$out/rootfs.tar"
# umoci's own architecture is that of this machine.
umoci config --image "$out/linkemu:latest" --no-history --created "$created" --architecture "$arch" --os linux \
    --config.entrypoint /usr/sbin/linkemu-box --config.stopsignal SIGTERM \
    --config.env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    --config.label "org.opencontainers.image.title=linkemu" \
    --config.label "org.opencontainers.image.version=$version" \
    --config.label "org.opencontainers.image.licenses=Apache-2.0"
umoci gc --layout "$out/linkemu"
rm "$out/rootfs.tar"
tar -C "$out/linkemu" --sort=name --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
    --mtime="@$SOURCE_DATE_EPOCH" -cf "$out/linkemu.tar" .
echo "$out/linkemu.tar"
