# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
#
# Part of scripts/setup.sh: what the suite of the web page needs beside node: a browser, and tshark,
# which reads the captures that it downloads. With WEB_FIREFOX=1 a second browser.

# shellcheck source=/dev/null
. scripts/setup/node.sh
want_packages "The tests of the web page in a browser are left out, or fail where CI=true." \
    "chromium tshark fonts-dejavu-core"
[ -z "${WEB_FIREFOX-}" ] || want_packages "The tests in Firefox are left out." "firefox-esr"
