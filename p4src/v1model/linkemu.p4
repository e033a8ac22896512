// SPDX-License-Identifier: Apache-2.0
//
// The pipeline for v1model, for bmv2's simple_switch_grpc. All of it is in ingress; egress, behind the
// queues, only counts. Ticks are microseconds.

// Counters with a typed index.
#define V1MODEL_VERSION 20200408
#include <core.p4>
#include <v1model.p4>

#include "externs.p4"
#include "../shared/parser.p4"
#include "../shared/pipeline.p4"

parser Read(packet_in packet, out headers_t h, inout meta_t m, inout standard_metadata_t s) {
    Frame() frame;

    state start {
        frame.apply(packet, h, m);
        transition accept;
    }
}

// The frame is forwarded unchanged, so no checksum is computed.
control Verify(inout headers_t h, inout meta_t m) {
    apply {}
}

// An IP packet longer than its frame has an unreadable header, as in the dataplane. Tofino does not
// know the length of a frame here.
control Lengths(in headers_t h, inout meta_t m, in standard_metadata_t s) {
    @hidden
    action unreadable() {
        m.kind = KIND_OTHER;
        m.bypasses = 0;
    }

    apply {
        bit<32> before = 14;
        if (h.shim.isValid()) {
            before = before + 32;
        }
        if (h.tag.isValid()) {
            before = before + 4;
        }
        if (h.tag2.isValid()) {
            before = before + 4;
        }
        if (h.ipv4.isValid()) {
            if ((bit<32>)h.ipv4.length + before > s.packet_length
                    || h.ipv4.length < (bit<16>)(h.ipv4.ihl ++ 2w0)) {
                unreadable();
            }
        }
        if (h.ipv6.isValid()) {
            if ((bit<32>)h.ipv6.length + 40 + before > s.packet_length) {
                unreadable();
            }
        }
    }
}

control Arrive(inout headers_t h, inout meta_t m, inout standard_metadata_t s) {
    Lengths() lengths;
    Linkemu() linkemu;

    apply {
        m.port = s.ingress_port;
        m.now = s.ingress_global_timestamp;
        lengths.apply(h, m, s);
        linkemu.apply(h, m);
        if (m.drop == 1) {
            mark_to_drop(s);
        } else if (m.mirror == 1) {
            // A group replaces the port, and a clone would be of the frame as received.
            s.mcast_grp = GROUP_OF_MIRRORED + (bit<16>)m.given;
        } else if (m.to_group != 0) {
            s.mcast_grp = m.to_group;
        } else {
            s.egress_spec = m.to_port;
        }
        if (m.learn == 1) {
            digest<learn_t>(1, { m.port, m.source, m.direction });
        }
    }
}

control Leave(inout headers_t h, inout meta_t m, inout standard_metadata_t s) {
    // Frames that have left the queue of a port.
    @name(".linkemu.sent")
    PACKETS_AND_BYTES(bit<9>, SENT_CELLS) sent;

    apply {
        sent.count(s.egress_port);
    }
}

control Update(inout headers_t h, inout meta_t m) {
    apply {}
}

control Write(packet_out packet, in headers_t h) {
    apply {
        packet.emit(h);
    }
}

@pkginfo(name = "linkemu", version = "2")
V1Switch(Read(), Verify(), Arrive(), Leave(), Update(), Write()) main;
