#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the web page of linkd into control/web/dist, which linkd embeds. If nothing has changed
# since the last build, it does nothing. Without node it says so, and linkd is built without the page;
# where CI=true that fails. The output of npm goes to build/web.log.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH=$PWD/build/tools/node/bin:$PATH
mkdir -p build
log=$PWD/build/web.log
stamp=$PWD/build/web.stamp

left_out() {
    echo "web: LEFT OUT: linkd is built without its web page: $*" >&2
    case "${CI-}" in
    true | 1) exit 1 ;;
    esac
    exit 0
}

oldest=$(sed -n 's/.*"node": ">=\([0-9.]*\)".*/\1/p' control/web/package.json)
command -v npm >/dev/null || left_out "there is no npm; run scripts/setup.sh node"
version=$(node --version 2>/dev/null | sed 's/^v//')
[[ $(printf '%s\n' "$oldest" "$version" | sort -V | head -n 1) == "$oldest" ]] ||
    left_out "node $version is older than $oldest; run scripts/setup.sh node"

now=$({
    find control/web proto/linkemu \( -path control/web/node_modules -o -path control/web/dist \
        -o -path control/web/src/gen \) -prune -o -type f -print0 |
        grep -zvE '^control/web/(node_modules|dist|src/gen|test)/' | sort -z | xargs -0 sha256sum
    node --version
} | sha256sum)
[[ -f control/web/dist/index.html && $(cat "$stamp" 2>/dev/null) == "$now" ]] && exit 0

begin=$SECONDS
cd control/web
run() {
    "$@" >>"$log" 2>&1 || { tail -n 20 "$log" >&2; echo "web: $* failed: see $log" >&2; exit 1; }
}
: >"$log"
# No package runs a script.
cmp -s package-lock.json node_modules/.linkemu-lock || {
    run npm ci --ignore-scripts --no-audit --no-fund
    cp package-lock.json node_modules/.linkemu-lock
}
run npm run build
echo "$now" >"$stamp"
echo "web: the page is built in $((SECONDS - begin)) s"
