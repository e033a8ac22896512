#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Makes a Python with linkemu's client, its pytest plugin and labgrid, for the two other
# scripts. In linkemu's own checkout the client is the one that stands there; elsewhere name it, as
# whatever a registry has under that name may be somebody else's:
#
#   LINKEMU_PACKAGE=dist/linkemu-0.1.0-py3-none-any.whl sh ci/install.sh
#
# LINKEMU_PACKAGE: a wheel, or a directory with the sources (./control/python where it is).
# VENV: where to (.venv).

set -eu

VENV=${VENV:-.venv}
if [ -z "${LINKEMU_PACKAGE:-}" ] && [ -f control/python/pyproject.toml ]; then
    LINKEMU_PACKAGE=./control/python
fi
package=${LINKEMU_PACKAGE:?set it to the wheel of the client of linkemu, or to its control/python}

python3 -m venv "$VENV"
"$VENV/bin/pip" install --disable-pip-version-check "${package}[pytest,labgrid]"
