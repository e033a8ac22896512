#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Packs the programs in LINKEMU_BIN as Debian packages, into OUT. The same
# programs and the same commit give the same packages.
#
#   LINKEMU_BIN=target/release scripts/deb.sh [OUT [VERSION]]
#
# OUT is build/deb if not given; VERSION replaces the one of debian/changelog, for tests of
# upgrades.

set -eu

fail() {
    echo "deb: $*" >&2
    exit 1
}

out=${1:-build/deb}
mkdir -p "$out"
out=$(realpath "$out")
LINKEMU_BIN=$(realpath "${LINKEMU_BIN:-target/release}")
export LINKEMU_BIN
cd "$(dirname "$0")/.."
for name in linkctl linkd linkd-dataplane linkd-p4switch linkd-group; do
    [ -x "$LINKEMU_BIN/$name" ] || fail "there is no $LINKEMU_BIN/$name: build it first (make build)"
done
for tool in dh go-md2man; do
    command -v "$tool" >/dev/null || fail "there is no $tool: run scripts/setup.sh deb"
done

# A copy of the sources, so that nothing is written into the checkout.
stage=$out/stage
rm -rf "$stage" "$out"/*.deb "$out"/*.changes "$out"/*.buildinfo
mkdir -p "$stage/linkemu"
cp -r --parents debian packaging docs monitoring hw-configs CHANGELOG.md LICENSE p4src/compiled \
    proto/profile/profiles proto/scenario/scenarios proto/linkemu \
    control/fit/baselines control/python/pyproject.toml control/python/README.md \
    control/python/generate.py control/python/src/linkemu/*.py control/python/src/linkemu/aio/*.py \
    control/python/src/linkemu/py.typed "$stage/linkemu"
[ -z "${2-}" ] || sed -i "1s/([^)]*)/($2)/" "$stage/linkemu/debian/changelog"

SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || true)}
# Without a commit dpkg uses the date of the changelog.
[ -z "$SOURCE_DATE_EPOCH" ] && unset SOURCE_DATE_EPOCH || export SOURCE_DATE_EPOCH
umask 022
# The build dependencies cover packing only: see debian/control.
if ! (cd "$stage/linkemu" && dpkg-buildpackage -b -uc -us -ui --no-pre-clean) >"$out/log" 2>&1; then
    tail -n 20 "$out/log" >&2
    fail "dpkg-buildpackage failed: see $out/log"
fi
mv "$stage"/*.deb "$stage"/*.changes "$stage"/*.buildinfo "$out"
rm -rf "$stage"
ls "$out"/*.deb
