// SPDX-License-Identifier: Apache-2.0
//
// The pipeline for all architectures. A host's frame is classified, wrapped in a shim and sent to
// the box. A frame from the box is unwrapped and passes client gate, loss, marks and measurement on
// its way to the hosts.
//
// Tables that the control plane does not use are hidden. All others have the same name in every
// architecture.
//
// An architecture supplies Draw, Chain, Fates and the two kinds of counters. It sets port and
// arrival time first, and applies drop, to_port, to_group, mirror and learn at the end. At its egress it
// counts `sent` by port: what is in `given` and not there was lost between them.
//
// A copy is one of the frame that the pipeline gives to a port, so with the shim on its way to a box, and
// without it on its way to hosts. It is made behind the pipeline and beside the frame, which has all its
// fates and counts by then. A flood has one copy.
//
// Byte counts are those of received frames. From the box they include the shim: 32 bytes more per
// frame than at the hosts. In `fates` this applies to all but RECEIVED.

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
    Returns() returns;

    // Frames without a client, by port and reason.
    @name(".linkemu.port_drops")
    PACKETS_AND_BYTES(bit<12>, PORT_DROP_CELLS) port_drops;
    // Frames that the pipeline gives to a port, and to all ports of hosts of a side.
    @name(".linkemu.given")
    PACKETS_AND_BYTES(bit<10>, GIVEN_CELLS) given;
    // Frames of which the port for copies is given one, by whether they go to hosts, and direction.
    @name(".linkemu.mirrored")
    PACKETS_AND_BYTES(bit<2>, MIRRORED_CELLS) mirrored;
    // Transit times, by client, direction and bin.
    @name(".linkemu.transit")
    PACKETS(bit<(CLIENT_BITS + 6)>, TRANSIT_CELLS) transit;
    // Lateness, by direction and bin.
    @name(".linkemu.lateness")
    PACKETS(bit<6>, LATENESS_CELLS) lateness;

    // Counts a frame without a client.
    @hidden
    action refuse(reason_t reason) {
        m.drop = 1;
        m.is_refused = 1;
        m.reason = reason;
    }

    // A port to hosts of one side. The box is the owner of all clients without another one. `mirrors`: the
    // table of that name has entries.
    @name(".linkemu.from_host")
    action from_host(direction_t direction, box_t box, bit<16> epoch, bit<1> mirrors) {
        m.direction = direction;
        m.box = box;
        m.epoch = epoch;
        m.mirrors = mirrors;
    }

    // A port to a box, which receives frames of one direction. Clients of the box have cells from
    // `base` on; numbers with a bit of `over` have none and are counted at `base`.
    @name(".linkemu.from_box")
    action from_box(
            direction_t direction, box_t box, bit<16> epoch, bit<CLIENT_BITS> base, bit<16> over,
            bit<1> mirrors) {
        m.direction = direction;
        m.mirrors = mirrors;
        m.is_turned = direction ^ h.shim.direction;
        m.box = box;
        m.epoch = epoch;
        m.cell = base;
        m.over = over;
    }

    // An unconfigured port: drop, so that no frame passes unimpaired.
    @name(".linkemu.unknown_port")
    action unknown_port() {
        refuse(DROP_UNKNOWN_PORT);
    }

    // Side of each port.
    @name(".linkemu.ports")
    table ports {
        key = { m.port: exact @name("port"); }
        actions = { from_host; from_box; @defaultonly unknown_port; }
        const default_action = unknown_port();
        size = PORTS;
    }

    // Sends to a box. Its cells are as in from_box.
    @name(".linkemu.to_box")
    action to_box(bit<9> port, bit<CLIENT_BITS> base, bit<16> over) {
        m.to_port = port;
        m.given = (bit<10>)port;
        m.cell = base;
        m.over = over;
    }

    // A box that has no port.
    @name(".linkemu.no_box")
    action no_box() {
        refuse(DROP_NO_BOX);
    }

    // Ports of the boxes where frames of a direction enter them.
    @name(".linkemu.boxes")
    table boxes {
        key = {
            m.box: exact @name("box");
            m.direction: exact @name("direction");
        }
        actions = { to_box; @defaultonly no_box; }
        const default_action = no_box();
        size = BOX_PORTS;
    }

    // The host is known at this port.
    @name(".linkemu.known")
    action known() {}

    // Reports a host to the control plane.
    @name(".linkemu.learn")
    action learn() {
        m.learn = 1;
    }

    // Known hosts, by source address and port.
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

    // The client gate is closed.
    @name(".linkemu.close_gate")
    action close_gate() {
        m.closed = 1;
    }

    // Client gates: of one client of a box, or of all.
    @name(".linkemu.gates")
    table gates {
        key = {
            h.shim.client: ternary @name("client");
            m.box: ternary @name("box");
            m.direction: exact @name("direction");
        }
        actions = { close_gate; @defaultonly NoAction; }
        const default_action = NoAction();
        size = GATES;
    }

    // Has a copy made.
    @name(".linkemu.mirror")
    action mirror() {
        MIRROR(h, m);
    }

    // Clients whose frames are copied: of one client of a box, or of all, on the way to hosts or to a box.
    @name(".linkemu.mirrors")
    table mirrors {
        key = {
            m.client: ternary @name("client");
            m.box: ternary @name("box");
            m.direction: exact @name("direction");
            m.is_returned: exact @name("to_hosts");
        }
        actions = { mirror; @defaultonly NoAction; }
        const default_action = NoAction();
        size = MIRRORS;
    }

    // Forwards to the port of the host.
    @name(".linkemu.to_host")
    action to_host(bit<9> port) {
        m.to_port = port;
        m.given = (bit<10>)port;
    }

    // Floods to all hosts of the side.
    @name(".linkemu.flood")
    action flood() {
        m.to_group = GROUP_OF_FORWARD + (bit<GROUP_BITS>)m.direction;
        m.given = GIVEN_FLOODS + (bit<10>)m.direction;
    }

    // Ports of the hosts.
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

    // Notes of the control plane about its other entries, as keys: each target returns all of a key, but
    // Stratum no metadata, and Tofino no parameter without effect. Frames that match do so by chance.
    @name(".linkemu.notes")
    table notes {
        key = {
            h.ipv6.length: exact @name("epoch");
            h.ipv6.source: exact @name("note");
        }
        actions = { NoAction; }
        const default_action = NoAction();
        size = NOTES;
    }

    // Wraps the whole frame in a shim. A shim sent by a host is never trusted.
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
        m.fate = FATE_RECEIVED;
    }

    // Sets the direction. Separate from the bits beside it: Tofino writes a byte from constants or
    // from a field.
    @hidden
    action wrap_return() {
        h.wrap_shim.direction = RETURN;
    }

    // Unwraps the frame as the host sent it.
    @hidden
    action unwrap() {
        h.outer.setInvalid();
        h.shim.setInvalid();
    }

    // Whether the client of a host's frame has no cell.
    @hidden
    action set_over() {
        m.over = m.over & m.client;
    }

    // Cell index of that client.
    @hidden
    action set_cell() {
        m.cell = m.cell + m.client[CLIENT_BITS - 1:0];
    }

    // A frame from the box: as for the client of a host's frame.
    @hidden
    action accept_return() {
        m.is_returned = 1;
        m.fate = FATE_DELIVERED;
        m.client = h.shim.client;
        m.over = m.over & h.shim.client;
    }

    @hidden
    action set_cell_of_return() {
        m.cell = m.cell + h.shim.client[CLIENT_BITS - 1:0];
    }

    // A closed gate drops the frame, which has no other fates than to have returned.
    @hidden
    action drop_at_gate() {
        m.drop = 1;
        m.fate = DROP_OUTAGE;
        m.is_marked = 0;
        m.is_stale = 0;
        m.is_timed = 0;
    }

    // A frame depends on few things one after the other, so that Tofino's stages are enough: what is not
    // needed of a frame that will be dropped is computed all the same.
    apply {
        switch (ports.apply().action_run) {
            from_host: {
                if (h.outer.isValid()) {
                    // A forged shim, or another experiment: not IP, like all unknown types.
                    m.source = h.outer.source;
                    m.client = CLIENT_BYPASS;
                } else if (HAS_FRAME(h, m)) {
                    m.source = h.ethernet.source;
                    classify.apply(h, m);
                } else {
                    refuse(DROP_CUT);
                }
                if (m.is_refused == 0) {
                    boxes.apply();
                }
                set_over();
                if (m.over == 0) {
                    set_cell();
                }
            }
            from_box: {
                if (IS_CUT(h, m)) {
                    refuse(DROP_CUT);
                } else if (HAS_NO_SHIM(h, m) || h.shim.version != SHIM_VERSION) {
                    refuse(DROP_NO_SHIM);
                } else if (m.is_turned == 1) {
                    refuse(DROP_WRONG_DIRECTION);
                } else if (!HAS_FRAME(h, m)) {
                    refuse(DROP_CUT);
                } else {
                    accept_return();
                    if (m.over == 0) {
                        set_cell_of_return();
                    }
                    // Traffic that a link needs passes, as in outages of the box.
                    if (h.shim.client != CLIENT_BYPASS) {
                        gates.apply();
                    }
                    if (h.shim.mark == 1) {
                        mark.apply(h, m);
                    }
                    measure.apply(h, m);
                    hosts.apply();
                    if (m.closed == 1) {
                        drop_at_gate();
                    } else if (h.shim.loss != 0) {
                        loss.apply(h, m);
                    }
                    unwrap();
                    returns.apply(m);
                    if (m.is_timed == 1) {
                        transit.count(m.cell ++ m.direction ++ m.transit_bin);
                        lateness.count(m.direction ++ m.lateness_bin);
                    }
                }
            }
        }
        if (m.is_refused == 1) {
            COUNT_BYTES(port_drops, m.port ++ m.reason, m);
            notes.apply();
        } else {
            if (m.is_returned == 0) {
                sources.apply();
                wrap();
                if (m.direction == RETURN) {
                    wrap_return();
                }
            }
            fates.apply(m);
        }
        if (m.drop == 0) {
            COUNT_BYTES(given, m.given, m);
            // One test for each frame while there are no copies.
            if (m.mirrors == 1) {
                if (mirrors.apply().hit) {
                    COUNT_BYTES(mirrored, m.is_returned ++ m.direction, m);
                }
            }
        }
    }
}

#endif
