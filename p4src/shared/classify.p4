// SPDX-License-Identifier: Apache-2.0
//
// Assigns a host's frame to a client. Traffic that a link needs bypasses all rules. Otherwise MAC
// rules have priority over VLAN rules, and those over prefix rules, longest first. MAC and address
// are those of the client: the destination of a forward frame, the source of a return frame.
// Without a rule, or with an unreadable header: 0, and the box classifies.

#ifndef LINKEMU_CLASSIFY
#define LINKEMU_CLASSIFY

#include "headers.p4"

control Classify(inout headers_t h, inout meta_t m) {
    // Assigns the frame to this client.
    @name(".linkemu.set_client")
    action set_client(bit<16> client) {
        m.client = client;
    }

    // Rules by MAC of the client.
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

    // Rules by outermost tag, at one host port or at all.
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

    // Rules by IPv4 address of the client.
    @name(".linkemu.prefixes4")
    table prefixes4 {
        key = { m.address4: lpm @name("address"); }
        actions = { set_client; @defaultonly NoAction; }
        const default_action = NoAction();
        size = PREFIXES4;
    }

    // Rules by IPv6 address of the client.
    @name(".linkemu.prefixes6")
    table prefixes6 {
        key = { m.address6: lpm @name("address"); }
        actions = { set_client; @defaultonly NoAction; }
        const default_action = NoAction();
        size = PREFIXES6;
    }

    // Forward: the client is the destination.
    @hidden
    action of_destination() {
        m.mac = h.ethernet.destination;
        m.address4 = h.ipv4.destination;
        m.address6 = h.ipv6.destination;
    }

    // Return: the client is the source.
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
                // An untagged frame has 0, which no rule uses.
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
