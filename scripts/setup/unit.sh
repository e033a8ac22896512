# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
#
# Part of scripts/setup.sh: Prometheus, which checks the files in monitoring/.

# Prometheus and its promtool check the files in monitoring/. The package would start a server
# if it were installed, so it is only unpacked.
unpack_prometheus() {
    command -v prometheus >/dev/null && command -v promtool >/dev/null && return
    [ -x build/tools/prometheus/promtool ] && return
    if [ -z "$(candidate prometheus)" ] && [ "$(id -u)" = 0 ]; then update; fi
    echo "setup: unpacking Debian's prometheus into build/tools"
    rm -rf build/tools/prometheus build/tools/new
    mkdir -p build/tools/new
    # Old lists can name a version that no longer exists.
    for list in old fresh; do
        [ "$list" = old ] || { [ "$(id -u)" = 0 ] && update; } || break
        (
            cd build/tools/new &&
                apt-get -o APT::Sandbox::User=root download prometheus &&
                dpkg-deb --fsys-tarfile prometheus_*.deb >data.tar &&
                tar -xf data.tar --strip-components=3 ./usr/bin/prometheus ./usr/bin/promtool &&
                rm prometheus_*.deb data.tar
        ) >>"$LOG" 2>&1 && mv build/tools/new build/tools/prometheus && return
    done
    rm -rf build/tools/new
    echo "setup: apt-get has no prometheus (see $LOG). Tests that need it are left out, or fail" \
        "where CI=true."
}
unpack_prometheus
