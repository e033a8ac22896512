#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Makes a virtual environment with linkemu's client, its pytest plugin and labgrid, for the two
# other scripts. In linkemu's own checkout it installs the client from there. Elsewhere name the
# package, because a registry can have another project under that name:
#
#   LINKEMU_PACKAGE=dist/linkemu-0.1.0-py3-none-any.whl sh ci/install.sh
#
# LINKEMU_PACKAGE: a wheel, or a directory with the sources (./control/python if it exists).
# VENV: directory of the virtual environment (.venv).

set -eu

VENV=${VENV:-.venv}
if [ -z "${LINKEMU_PACKAGE:-}" ] && [ -f control/python/pyproject.toml ]; then
    LINKEMU_PACKAGE=./control/python
fi
package=${LINKEMU_PACKAGE:?set it to the wheel of the client of linkemu, or to its control/python}

python3 -m venv "$VENV"
"$VENV/bin/pip" install --disable-pip-version-check "${package}[pytest,labgrid]"
