// SPDX-License-Identifier: Apache-2.0
//
// Whose is a host's frame? What the link needs bypasses, before all rules. Then a rule of a
// MAC goes before one of a VLAN, that before one of a prefix, and of prefixes the longest.
// MAC and address are the client's: the destination of a forward frame, the source of a
// return frame. No rule, or a header that cannot be read: 0, and the box classifies.

#ifndef LINKEMU_CLASSIFY
#define LINKEMU_CLASSIFY

#include "headers.p4"

control Classify(inout headers_t h, inout meta_t m) {
    // It is this client's.
    @name(".linkemu.set_client")
    action set_client(bit<16> client) {
        m.client = client;
    }

    // By the client's MAC.
    @name(".linkemu.macs")
    table macs {
        key = {
            m.direction: exact @name("direction");
            m.mac: exact @name("mac");
        }
        actions = { set_client; @defaultonly NoAction; }
        const default_action = NoAction();
        size = MACS;
    }

    // By the outermost tag, on one host port or on all.
    @name(".linkemu.vlans")
    table vlans {
        key = {
            m.vlan: exact @name("vlan");
            m.port: ternary @name("port");
        }
        actions = { set_client; @defaultonly NoAction; }
        const default_action = NoAction();
        size = VLANS;
    }

    // By the client's IPv4 address.
    @name(".linkemu.prefixes4")
    table prefixes4 {
        key = { m.address4: lpm @name("address"); }
        actions = { set_client; @defaultonly NoAction; }
        const default_action = NoAction();
        size = PREFIXES4;
    }

    // By the client's IPv6 address.
    @name(".linkemu.prefixes6")
    table prefixes6 {
        key = { m.address6: lpm @name("address"); }
        actions = { set_client; @defaultonly NoAction; }
        const default_action = NoAction();
        size = PREFIXES6;
    }

    // The client receives it.
    @hidden
    action of_destination() {
        m.mac = h.ethernet.destination;
        m.address4 = h.ipv4.destination;
        m.address6 = h.ipv6.destination;
    }

    // The client has sent it.
    @hidden
    action of_source() {
        m.mac = h.ethernet.source;
        m.address4 = h.ipv4.source;
        m.address6 = h.ipv6.source;
    }

    apply {
        if (m.bypasses == 1) {
            m.client = CLIENT_BYPASS;
        } else if (m.kind != KIND_OTHER) {
            if (m.direction == FORWARD) {
                of_destination();
            } else {
                of_source();
            }
            if (!macs.apply().hit) {
                // Without a tag it is 0, which no rule names.
                if (!vlans.apply().hit) {
                    if (m.kind == KIND_IPV4) {
                        prefixes4.apply();
                    } else {
                        prefixes6.apply();
                    }
                }
            }
        }
    }
}

#endif
