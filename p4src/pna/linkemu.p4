// SPDX-License-Identifier: Apache-2.0
//
// The pipeline for the Portable NIC Architecture, for DPDK's software switch (SWX) in
// linkd-p4switch. Ticks are microseconds.

#include <core.p4>
#include <pna.p4>

#include "port.p4"
#include "externs.p4"
#include "../shared/parser.p4"
#include "../shared/pipeline.p4"

struct nothing_t {}

control Before(
        in nothing_t h, inout nothing_t m,
        in pna_pre_input_metadata_t s, inout pna_pre_output_metadata_t o) {
    apply {}
}

parser Read(
        packet_in packet, out headers_t h, inout meta_t m,
        in pna_main_parser_input_metadata_t s) {
    Frame() frame;

    state start {
        frame.apply(packet, h, m);
        transition accept;
    }
}

// The end of the frame, which the parser does not know. A header that is not within the frame is
// as good as not there, and an IP packet longer than its frame has an unreadable header, as in the
// dataplane.
control Lengths(in headers_t h, inout meta_t m) {
    @hidden
    action unreadable() {
        m.kind = KIND_OTHER;
        m.bypasses = 0;
    }

    apply {
        // Up to the end of the Ethernet header and its tags.
        bit<32> before = 14;
        m.has_shim = 0;
        m.has_frame = 0;
        if (h.shim.isValid()) {
            before = before + 32;
            if (m.length >= 32) {
                m.has_shim = 1;
            }
        }
        if (m.length >= before) {
            m.has_frame = 1;
        }
        if (h.tag.isValid()) {
            before = before + 4;
        }
        if (h.tag2.isValid()) {
            before = before + 4;
        }
        if (m.length < before) {
            unreadable();
        }
        if (h.ipv4.isValid()) {
            if (m.length < before + 20) {
                unreadable();
            }
            if ((bit<32>)h.ipv4.length + before > m.length) {
                unreadable();
            }
            if (h.ipv4.length < (bit<16>)(h.ipv4.ihl ++ 2w0)) {
                unreadable();
            }
        }
        if (h.ipv6.isValid()) {
            if ((bit<32>)h.ipv6.length + 40 + before > m.length) {
                unreadable();
            }
        }
    }
}

control Arrive(
        inout headers_t h, inout meta_t m,
        in pna_main_input_metadata_t s, inout pna_main_output_metadata_t o) {
    Lengths() lengths;
    Linkemu() linkemu;

    // SWX keeps the metadata of the packet before. What only one statement outside of tables sets is
    // set here in any case: p4c takes such a value for constant even if a table changes it.
    @hidden
    action clear() {
        m.is_turned = 0;
        m.client = 0;
        m.over = 0;
        m.cell = 0;
        m.closed = 0;
        m.chained = 0;
        m.state = 0;
        m.lost_in_good = 0;
        m.lost_in_bad = 0;
        m.learn = 0;
        m.drop = 0;
        m.is_refused = 0;
        m.is_returned = 0;
        m.is_marked = 0;
        m.is_stale = 0;
        m.is_unknown_loss = 0;
        m.is_timed = 0;
        m.lateness_bin = 0;
        m.to_port = 0;
        m.to_group = 0;
    }

    apply {
        clear();
        m.port = (bit<9>)h.port.port;
        m.length = (bit<32>)h.port.length;
        m.now = h.port.now;
        m.draw_move = h.port.draw_move;
        m.draw_loss = h.port.draw_loss;
        lengths.apply(h, m);
        linkemu.apply(h, m);
        if (m.drop == 1) {
            drop_packet();
        }
        h.port.to_port = (bit<16>)m.to_port;
        h.port.to_group = m.to_group;
        h.port.learn = (bit<8>)m.learn;
        h.port.direction = (bit<8>)m.direction;
        h.port.source = m.source;
    }
}

control Write(
        packet_out packet, in headers_t h, in meta_t m, in pna_main_output_metadata_t o) {
    // p4c has no digests for SWX: the port sends it, and here it is for the P4Info.
    @name(".learn_t")
    Digest<learn_t>() learned;
    // Frames that a port has taken. The port counts them, and here it is for the P4Info.
    @name(".linkemu.sent")
    PACKETS_AND_BYTES(bit<9>, SENT_CELLS) sent;

    apply {
        packet.emit(h.port);
        packet.emit(h.wrap);
        packet.emit(h.wrap_shim);
        packet.emit(h.outer);
        packet.emit(h.shim);
        packet.emit(h.ethernet);
        packet.emit(h.tag);
        packet.emit(h.tag2);
        packet.emit(h.ipv4);
        packet.emit(h.ipv6);
    }
}

@pkginfo(name = "linkemu", version = "2")
PNA_NIC(Read(), Before(), Arrive(), Write()) main;
