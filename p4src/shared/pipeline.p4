// SPDX-License-Identifier: Apache-2.0
//
// What happens to a frame, for every architecture. A host's frame is classified, wrapped and
// sent to the box. A frame from the box is unwrapped, and passes the gate, loss, marks and
// measurement on its way to the hosts.
//
// What the control plane does not see is hidden; all that it sees has the same name in every
// architecture.
//
// An architecture supplies Draw, Chain, Fates, and the two kinds of counters. It sets
// port and time of arrival before, and carries out drop, to_port, to_group and learn after.
//
// Bytes are those of the frame as it came. From the box that is with the shim: 32 bytes a
// frame more than the hosts' frame has. In `fates` so of all but RECEIVED.

#ifndef LINKEMU_PIPELINE
#define LINKEMU_PIPELINE

#include "classify.p4"
#include "ecn.p4"
#include "headers.p4"
#include "loss.p4"
#include "measure.p4"

control Linkemu(inout headers_t h, inout meta_t m) {
    Classify() classify;
    Loss() loss;
    Mark() mark;
    Measure() measure;
    Fates() fates;

    // Frames that are nobody's, by port and reason.
    @name(".linkemu.port_drops")
    PACKETS_AND_BYTES(bit<11>, PORT_DROP_CELLS) port_drops;
    // Times away, by client, direction and bin.
    @name(".linkemu.transit")
    PACKETS(bit<(CLIENT_BITS + 6)>, TRANSIT_CELLS) transit;
    // Lateness, by direction and bin.
    @name(".linkemu.lateness")
    PACKETS(bit<6>, LATENESS_CELLS) lateness;

    // Nobody's frame.
    @hidden
    action refuse(reason_t reason) {
        m.drop = 1;
        m.is_refused = 1;
        m.reason = reason;
    }

    // A port of the hosts of one side.
    @name(".linkemu.from_host")
    action from_host(direction_t direction, bit<9> box_port, bit<16> epoch) {
        m.direction = direction;
        m.to_port = box_port;
        m.epoch = epoch;
    }

    // A port of the box, from which frames of one direction come.
    @name(".linkemu.from_box")
    action from_box(direction_t direction, bit<16> epoch) {
        m.direction = direction;
        m.is_turned = direction ^ h.shim.direction;
        m.epoch = epoch;
    }

    // No port of ours: nothing passes unimpaired.
    @name(".linkemu.unknown_port")
    action unknown_port() {
        refuse(DROP_UNKNOWN_PORT);
    }

    // What each port faces.
    @name(".linkemu.ports")
    table ports {
        key = { m.port: exact @name("port"); }
        actions = { from_host; from_box; @defaultonly unknown_port; }
        const default_action = unknown_port();
        size = PORTS;
    }

    // The host has been seen there.
    @name(".linkemu.known")
    action known() {}

    // Tell the control plane of a host.
    @name(".linkemu.learn")
    action learn() {
        m.learn = 1;
    }

    // Hosts that have been seen, by the source of what they send.
    @name(".linkemu.sources")
    table sources {
        key = {
            m.port: exact @name("port");
            m.source: exact @name("mac");
        }
        actions = { known; @defaultonly learn; }
        const default_action = learn();
        size = SOURCES;
    }

    // The link is down for this client.
    @name(".linkemu.close_gate")
    action close_gate() {
        m.closed = 1;
    }

    // Outages: of a client, or of all.
    @name(".linkemu.gates")
    table gates {
        key = {
            h.shim.client: ternary @name("client");
            m.direction: exact @name("direction");
        }
        actions = { close_gate; @defaultonly NoAction; }
        const default_action = NoAction();
        size = GATES;
    }

    // The host's port is known.
    @name(".linkemu.to_host")
    action to_host(bit<9> port) {
        m.to_port = port;
    }

    // To all hosts of that side.
    @name(".linkemu.flood")
    action flood() {
        m.to_group = GROUP_OF_FORWARD + (bit<16>)m.direction;
    }

    // Where the hosts are.
    @name(".linkemu.hosts")
    table hosts {
        key = {
            m.direction: exact @name("direction");
            h.ethernet.destination: exact @name("mac");
        }
        actions = { to_host; @defaultonly flood; }
        const default_action = flood();
        size = HOSTS;
    }

    // The whole frame goes behind a shim. What a host wrote is never taken for one.
    @hidden
    action wrap() {
        h.wrap.setValid();
        h.wrap.destination = MAC_OF_BOX;
        h.wrap.source = MAC_OF_SWITCH;
        h.wrap.type = TYPE_SHIM;
        h.wrap_shim.setValid();
        h.wrap_shim.version = SHIM_VERSION;
        h.wrap_shim.direction = FORWARD;
        h.wrap_shim.reserved = 0;
        h.wrap_shim.flags = 0;
        h.wrap_shim.mark = 0;
        h.wrap_shim.client = m.client;
        h.wrap_shim.epoch = m.epoch;
        h.wrap_shim.loss = 0;
        h.wrap_shim.stamp = m.now;
        h.wrap_shim.planned = 0;
    }

    // Its direction. Not in one action with the bits beside it: Tofino writes a byte from
    // constants or from a field.
    @hidden
    action wrap_return() {
        h.wrap_shim.direction = RETURN;
    }

    // The frame as the host sent it.
    @hidden
    action unwrap() {
        h.outer.setInvalid();
        h.shim.setInvalid();
    }

    // Where the client is counted.
    @hidden
    action set_cell() {
        m.cell = m.client[CLIENT_BITS - 1:0];
    }

    apply {
        switch (ports.apply().action_run) {
            from_host: {
                if (h.outer.isValid()) {
                    // Forged, or another's experiment: not IP, like any other such frame.
                    m.source = h.outer.source;
                    m.client = CLIENT_BYPASS;
                } else if (h.ethernet.isValid()) {
                    m.source = h.ethernet.source;
                    classify.apply(h, m);
                } else {
                    refuse(DROP_CUT);
                }
            }
            from_box: {
                if (!h.outer.isValid() && !h.ethernet.isValid()) {
                    refuse(DROP_CUT);
                } else if (!h.shim.isValid() || h.shim.version != SHIM_VERSION) {
                    refuse(DROP_NO_SHIM);
                } else if (m.is_turned == 1) {
                    refuse(DROP_WRONG_DIRECTION);
                } else if (!h.ethernet.isValid()) {
                    refuse(DROP_CUT);
                } else {
                    m.is_returned = 1;
                    m.client = h.shim.client;
                }
            }
        }
        if (m.client[15:CLIENT_BITS] == 0) {
            set_cell();
        }
        if (m.is_returned == 1) {
            // What the link needs to work at all passes, as it does in the box's outages.
            if (m.client != CLIENT_BYPASS) {
                gates.apply();
            }
            if (m.closed == 1) {
                m.drop = 1;
                m.fate = DROP_OUTAGE;
            } else {
                if (h.shim.loss != 0) {
                    loss.apply(h, m);
                }
                if (m.drop == 0) {
                    if (h.shim.mark == 1) {
                        mark.apply(h, m);
                    }
                    measure.apply(h, m);
                    hosts.apply();
                    unwrap();
                    m.fate = FATE_DELIVERED;
                }
            }
        } else if (m.is_refused == 0) {
            sources.apply();
            wrap();
            if (m.direction == RETURN) {
                wrap_return();
            }
            m.fate = FATE_RECEIVED;
        }
        if (m.is_refused == 1) {
            port_drops.count(m.port ++ m.reason);
        } else {
            fates.apply(m);
        }
        if (m.is_timed == 1) {
            transit.count(m.cell ++ m.direction ++ m.transit_bin);
            lateness.count(m.direction ++ m.lateness_bin);
        }
    }
}

#endif
