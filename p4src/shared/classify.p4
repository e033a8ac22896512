// SPDX-License-Identifier: Apache-2.0
//
// Assigns a host's frame to a client. Traffic that a link needs bypasses all rules. Otherwise MAC
// rules have priority over VLAN rules, and those over prefix rules, longest first. MAC and address
// are those of the client: the destination of a forward frame, the source of a return frame.
// Without a rule, or with an unreadable header: 0, and the box classifies. The owner of the bucket of
// its address is the box of an IP frame without a rule; all others without a rule stay with the default
// owner, which the port has set.

#ifndef LINKEMU_CLASSIFY
#define LINKEMU_CLASSIFY

#include "headers.p4"

control Classify(inout headers_t h, inout meta_t m) {
    // Assigns the frame to this client of this box.
    @name(".linkemu.set_client")
    action set_client(bit<16> client, box_t box) {
        m.client = client;
        m.box = box;
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

    // Assigns the frame to this box.
    @name(".linkemu.set_box")
    action set_box(box_t box) {
        m.box = box;
    }

    // Owners of clients without a rule, by a fold of their addresses.
    @name(".linkemu.buckets")
    table buckets {
        key = { m.bucket: exact @name("bucket"); }
        actions = { set_box; @defaultonly NoAction; }
        const default_action = NoAction();
        size = BUCKETS;
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

    @hidden
    action fold4() {
        m.bucket = m.address4[7:0] ^ m.address4[15:8];
    }

    @hidden
    action fold6() {
        m.bucket = FOLD6(m);
    }

    apply {
        bit<1> has_rule = 1;
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
                        fold4();
                        if (!prefixes4.apply().hit) {
                            has_rule = 0;
                        }
                    } else {
                        fold6();
                        if (!prefixes6.apply().hit) {
                            has_rule = 0;
                        }
                    }
                }
            }
            if (has_rule == 0) {
                buckets.apply();
            }
        }
    }
}

#endif
