# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
#
# Part of scripts/setup.sh: node and npm, which build the web page of linkd (scripts/web.sh). If
# Debian's node is too old, the programs are in build/tools/node, from the npm package that contains
# them; npm runs no script of it.

# The oldest that vite runs on: `engines` in control/web/package.json.
NODE=20.19.0
# The release that is installed where Debian's is older.
NODE_PACKAGE=22.23.3

node_is_enough() {
    command -v "$1" >/dev/null && not_older "$("$1" --version 2>/dev/null | sed 's/^v//')" "$NODE"
}

install_node() {
    node_is_enough node && command -v npm >/dev/null && return
    tree=build/tools/node
    node_is_enough $tree/bin/node && command -v npm >/dev/null && return
    left_out="linkd is built without its web page."
    want_packages "$left_out" "nodejs npm"
    command -v npm >/dev/null || return 0
    node_is_enough node && return
    case "$(uname -m)" in
    x86_64) machine=x64 ;;
    aarch64) machine=arm64 ;;
    *)
        echo "setup: node is older than $NODE, and there is no package of it for $(uname -m). $left_out"
        return
        ;;
    esac
    echo "setup: npm install node $NODE_PACKAGE into $tree"
    rm -rf $tree
    mkdir -p $tree
    package=node-linux-$machine
    if npm install --prefix $tree --ignore-scripts --no-audit --no-fund \
        "$package@$NODE_PACKAGE" >>"$LOG" 2>&1; then
        ln -s "node_modules/$package/bin" $tree/bin
    else
        rm -rf $tree
        echo "setup: npm cannot install node (see $LOG). $left_out"
    fi
}
install_node
