#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The suite of the web page: types, unit tests, and the tests in a browser against the real programs
# with traffic in network namespaces, if the user and the machine permit a test bed.
#
#   LINKEMU_BIN=DIR control/web/check.sh [--long] [ARGUMENT OF VITEST …]
#
# --long also runs the long forms. WEB_IMAGES=DIR writes the screenshots of the documentation there.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export PATH=$PWD/../../build/tools/node/bin:$PATH

left_out() {
    echo "web: LEFT OUT: $*" >&2
    case "${CI-}" in
    true | 1) exit 1 ;;
    esac
}

if [[ ${1-} == --long ]]; then
    export WEB_LONG=1
    shift
fi
if ! [[ -d node_modules && -d dist ]]; then
    left_out "all of it: the page is not built; run make web"
    exit 0
fi
# The build checks the types of the page.
npx --no-install tsc --noEmit --project test
bed=${LINKEMU_BIN:?the directory of the programs}/bed
status=0
npx --no-install vitest run --project unit --reporter ./test/reporter.ts "$@" || status=1
if ! command -v chromium >/dev/null; then
    left_out "the tests in a browser: there is no chromium; run scripts/setup.sh web"
elif ! "$bed" -- true; then
    left_out "the tests in a browser: there is no test bed, as said above"
else
    # The browser may use all processors but the worker's.
    "$bed" --web --report -- npx --no-install vitest run --project browser --reporter ./test/reporter.ts "$@" || status=1
fi
exit $status
