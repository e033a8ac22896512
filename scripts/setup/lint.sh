# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
#
# Part of scripts/setup.sh: buf, which checks the protos in `make lint`. Its npm package contains
# the program; npm runs no script of it.

BUF=1.75.0

install_buf() {
    command -v buf >/dev/null && return
    tree=build/tools/buf
    [ "$(cat $tree/version 2>/dev/null)" = "$BUF" ] && return
    left_out="\`make lint\` leaves out the check of the protos."
    if ! command -v npm >/dev/null; then
        echo "setup: there is neither buf nor npm. $left_out"
        return
    fi
    echo "setup: npm install @bufbuild/buf@$BUF into $tree"
    rm -rf $tree
    mkdir -p $tree
    if npm install --prefix $tree --ignore-scripts --no-audit --no-fund "@bufbuild/buf@$BUF" \
        >>"$LOG" 2>&1; then
        echo "$BUF" >$tree/version
    else
        rm -rf $tree
        echo "setup: npm cannot install buf (see $LOG). $left_out"
    fi
}
install_buf
