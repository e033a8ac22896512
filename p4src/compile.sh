#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Compiles the program for bmv2 and records the hashes of its sources.
#
#   p4src/compile.sh P4C OUT [ARGUMENT]...
#
# P4C is p4c-bm2-ss, or a wrapper. OUT gets linkemu.json, linkemu.p4info.bin,
# linkemu.p4info.txtpb and SOURCES: sha256sum's lines, with paths from p4src/, of the program's
# sources and of the files made. The compiler gets the other arguments.

set -eu

p4c=$1
mkdir -p "$2"
out=$(cd "$2" && pwd)
shift 2
cd "$(dirname "$0")"

# Relative paths: the compiler writes them into its output.
"$p4c" --std p4-16 "$@" -o "$out/linkemu.json" \
  --p4runtime-files "$out/linkemu.p4info.bin,$out/linkemu.p4info.txtpb" v1model/linkemu.p4

version=$("$p4c" --version 2>&1 | sed -n 's/.*Version \([0-9.]*\).*/\1/p')
{
  echo "# SPDX-License-Identifier: Apache-2.0"
  echo "# p4c-bm2-ss $version"
  sha256sum shared/*.p4 v1model/*.p4
  cd "$out"
  sha256sum linkemu.json linkemu.p4info.bin linkemu.p4info.txtpb |
    sed 's|  |  compiled/bmv2/|'
} >"$out/SOURCES.new"
mv "$out/SOURCES.new" "$out/SOURCES"
