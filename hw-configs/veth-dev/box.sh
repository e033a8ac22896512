#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Starts a box between two hosts on this machine, and stops it again (as root).
#
#   box.sh start     make the hosts, start the dataplane and linkd, wait until they answer
#   box.sh status    say whether it runs
#   box.sh stop      end the programs, remove the hosts
#
# The hosts are network namespaces: lke-wan (10.77.0.1) and lke-client (10.77.0.2). The programs
# are those of LINKEMU_BIN, of PATH, or of the checkout that this file is in. They serve at the
# default sockets, below /run/linkemu, so linkctl finds them without an option. What they write is
# in /run/linkemu-veth-dev.

set -eu

HERE=$(cd "$(dirname "$0")" && pwd)
STATE=/run/linkemu-veth-dev
WAN=10.77.0.1
CLIENT=10.77.0.2
# Seconds that a program may take to answer, or to end.
START=60
END=20

fail() {
    echo "box.sh: $*" >&2
    exit 1
}

usage() {
    sed -n '4,13s/^# \{0,1\}//p' "$0"
}

# The path of a program of linkemu.
program() {
    for path in ${LINKEMU_BIN:+"$LINKEMU_BIN/$1"} "$(command -v "$1" || true)" \
        "/usr/sbin/$1" "$HERE/../../target/debug/$1"; do
        [ -n "$path" ] && [ -x "$path" ] && echo "$path" && return
    done
    fail "there is no $1 in PATH: run \`make build\` and \`export PATH=\$PWD/target/debug:\$PATH\`, or" \
        "set LINKEMU_BIN to its directory"
}

# Whether the process that a pid file names is still the one that wrote it: a number alone may be
# another process by now.
runs() {
    [ -r "$STATE/$1.pid" ] || return 1
    read -r pid since <"$STATE/$1.pid" || return 1
    [ -n "$since" ] && [ "$(started "$pid")" = "$since" ]
}

# Start time of a process, in ticks since the boot; empty if it has ended, zombies (state Z) included.
# Its name may have spaces.
started() {
    sed -n 's/.*) \([^Z].*\)/\1/p' "/proc/$1/stat" 2>/dev/null | cut -d ' ' -f 20
}

# Starts a program in a new session, so that it survives the end of this terminal.
launch() {
    name=$1
    shift
    setsid "$@" </dev/null >"$STATE/$name.log" 2>&1 &
    echo "$! $(started $!)" >"$STATE/$name.pid"
}

# Waits until a command succeeds, as long as the program runs.
answers() {
    name=$1
    shift
    waited=0
    until "$@" >/dev/null 2>&1; do
        if ! runs "$name" || [ "$waited" -ge "$((START * 10))" ]; then
            tail -n 5 "$STATE/$name.log" >&2
            fail "$name has not started: its last words are above"
        fi
        sleep 0.1
        waited=$((waited + 1))
    done
}

# A veth pair: its one end is a port of the box, its other end a host in a namespace. Without
# offloads, as frames above the MTU and open checksums are on no cable; and without IPv6 at the
# box's end, where this machine itself must not send.
host() {
    side=lke-$1
    ip netns add "$side"
    ip link add "$side" type veth peer name eth0 netns "$side"
    echo 1 >"/proc/sys/net/ipv6/conf/$side/disable_ipv6" 2>/dev/null || true
    ethtool -K "$side" tx off gso off gro off >/dev/null
    ip netns exec "$side" ethtool -K eth0 tx off tso off gso off gro off >/dev/null
    # One processor receives all frames of the host, which keeps their order.
    ip netns exec "$side" sh -c 'echo 1 >/sys/class/net/eth0/queues/rx-0/rps_cpus' 2>/dev/null || true
    ip link set "$side" up
    ip -n "$side" link set lo up
    ip -n "$side" link set eth0 up
    ip -n "$side" address add "$2/24" dev eth0
}

start() {
    [ "$(id -u)" = 0 ] || fail "network namespaces need root"
    for tool in ip ethtool setsid; do
        command -v "$tool" >/dev/null || fail "there is no $tool: apt-get install iproute2 ethtool util-linux"
    done
    dataplane=$(program linkd-dataplane)
    linkd=$(program linkd)
    linkctl=$(program linkctl)
    [ ! -e "$STATE" ] || fail "$STATE is there already: \`$0 stop\` first"
    for side in lke-wan lke-client; do
        [ ! -e "/run/netns/$side" ] && [ ! -e "/sys/class/net/$side" ] ||
            fail "there is a namespace or an interface $side already, which this has not made"
    done
    unset LINKEMU_SOCKET LINKEMU_DATAPLANE LINKEMU_SERVER LINKEMU_STATE

    mkdir -m 700 "$STATE"
    # A failed start is rolled back.
    trap 'stop >/dev/null' EXIT
    trap 'exit 1' HUP INT TERM
    host wan "$WAN"
    host client "$CLIENT"
    mkdir -p /run/linkemu
    # On a machine that has other work: without a priority above that.
    launch linkd-dataplane "$dataplane" --box "$HERE/box.toml" --nice 0
    answers linkd-dataplane test -S /run/linkemu/dataplane.sock
    launch linkd "$linkd"
    answers linkd "$linkctl" show
    trap - EXIT HUP INT TERM
    cat <<END
The box runs between two hosts on this machine: lke-wan ($WAN) and lke-client ($CLIENT).

  linkctl set profile viasat2                     make it a satellite link
  ip netns exec lke-client ping -c 5 $WAN    from one host to the other
  linkctl top                                     watch it
  $0 stop
END
}

stop() {
    [ -e "$STATE" ] || { echo "There is no box to stop."; return; }
    for name in linkd linkd-dataplane; do
        if runs "$name"; then
            kill "$pid" || true
            waited=0
            while runs "$name" && [ "$waited" -lt "$((END * 10))" ]; do
                sleep 0.1
                waited=$((waited + 1))
            done
            ! runs "$name" || kill -KILL "$pid" || true
        fi
    done
    for side in lke-wan lke-client; do
        # First the pair: with its namespace it would go some time later.
        [ ! -e "/sys/class/net/$side" ] || ip link delete "$side"
        [ ! -e "/run/netns/$side" ] || ip netns delete "$side"
    done
    rm -r "$STATE"
    echo "The box is stopped, and the hosts are removed."
}

status() {
    [ -e "$STATE" ] || { echo "There is no box."; exit 1; }
    for name in linkd-dataplane linkd; do
        if runs "$name"; then
            echo "$name runs (pid $pid); $STATE/$name.log"
        else
            echo "$name does not run; its last words:"
            tail -n 5 "$STATE/$name.log"
            ended=1
        fi
    done
    [ -z "${ended:-}" ] || exit 1
}

case "${1:-}" in
start | stop | status) "$1" ;;
-h | --help) usage ;;
*)
    usage >&2
    exit 2
    ;;
esac
