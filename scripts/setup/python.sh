# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
#
# Part of scripts/setup.sh: the Python of the Python client's suite.

# A virtual environment with the requirements and with the package of control/python, installed
# from the source tree in editable mode.
install_python() {
    wanted=control/python/requirements.txt
    tree=build/tools/python
    if ! cmp -s "$wanted" $tree/requirements.txt; then
        echo "setup: a Python with gRPC and pytest in $tree"
        rm -rf $tree
        if ! python3 -c 'import ensurepip' 2>/dev/null && [ "$(id -u)" = 0 ]; then
            apt_install python3-venv
        fi
        mkdir -p build/tools
        if ! python3 -m venv $tree >>"$LOG" 2>&1 ||
            ! $tree/bin/pip install --disable-pip-version-check --only-binary :all: \
                -r "$wanted" >>"$LOG" 2>&1; then
            rm -rf $tree
            echo "setup: pip cannot install $wanted (see $LOG). Tests that need it are left out," \
                "or fail where CI=true."
            return
        fi
        cp "$wanted" $tree/
    fi
    # Entry points and options. Each `make python` regenerates the generated modules.
    cmp -s control/python/pyproject.toml $tree/pyproject.toml && return
    if ! $tree/bin/pip install --disable-pip-version-check --no-deps --no-build-isolation \
        --no-index -e control/python >>"$LOG" 2>&1; then
        echo "setup: pip cannot install control/python (see $LOG). Tests that need it are left" \
            "out, or fail where CI=true."
        return
    fi
    cp control/python/pyproject.toml $tree/
}
install_python
