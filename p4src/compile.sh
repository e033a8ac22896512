#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Compiles the program for bmv2 or for SWX, and records the hashes of its sources.
#
#   p4src/compile.sh P4C OUT [ARGUMENT]...
#
# P4C is p4c-bm2-ss or p4c-dpdk, or a wrapper with such a name. OUT gets linkemu.json (bmv2) or
# linkemu.spec (SWX), linkemu.p4info.bin, linkemu.p4info.txtpb and SOURCES: sha256sum's lines, with paths
# from p4src/, of the program's sources and of the files made. The compiler gets the other arguments.

set -eu

p4c=$1
mkdir -p "$2"
out=$(cd "$2" && pwd)
shift 2
cd "$(dirname "$0")"

case ${p4c##*/} in
*dpdk*)
  target=dpdk architecture=pna made=linkemu.spec
  here=$(pwd)
  work=$(mktemp -d)
  trap 'rm -r "$work"' EXIT
  # The compiler writes the program's own entries into the working directory.
  (
    cd "$work"
    "$p4c" --arch pna --std p4-16 --Wdisable=unused --Wdisable=mismatch "$@" -o program.spec \
      --p4runtime-files "$out/linkemu.p4info.bin,$out/linkemu.p4info.txtpb" "$here/pna/linkemu.p4"
    {
      echo "; SPDX-License-Identifier: Apache-2.0"
      for entries in *.txtpb; do
        sed "s/^/;@ entry ${entries%.txtpb} /; s/ *\$//" "$entries"
      done
      sed 's/[ \t]*$//' program.spec
    } >"$out/linkemu.spec"
  )
  ;;
*)
  target=bmv2 architecture=v1model made=linkemu.json
  # Relative paths: the compiler writes them into its output.
  "$p4c" --std p4-16 "$@" -o "$out/linkemu.json" \
    --p4runtime-files "$out/linkemu.p4info.bin,$out/linkemu.p4info.txtpb" v1model/linkemu.p4
  ;;
esac

version=$("$p4c" --version 2>&1 | sed -n 's/.*Version \([0-9.]*\).*/\1/p')
{
  echo "# SPDX-License-Identifier: Apache-2.0"
  echo "# ${p4c##*/} $version"
  sha256sum shared/*.p4 "$architecture"/*.p4
  cd "$out"
  sha256sum "$made" linkemu.p4info.bin linkemu.p4info.txtpb |
    sed "s|  |  compiled/$target/|"
} >"$out/SOURCES.new"
mv "$out/SOURCES.new" "$out/SOURCES"
