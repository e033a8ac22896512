// SPDX-License-Identifier: Apache-2.0
//
// The pipeline for the Tofino Native Architecture, on Tofino 1. All of it is in ingress; egress, behind
// the traffic manager, only counts. Ticks are nanoseconds.

// A counter is in one stage, which has 48 blocks: `transit` of 4,096 clients would need 65, of
// 2,048 clients it needs 33.
#define CLIENT_BITS 11

#include <core.p4>
#include <tna.p4>

#include "externs.p4"
#include "../shared/parser.p4"
#include "../shared/pipeline.p4"

parser Read(
        packet_in packet, out headers_t h, out meta_t m,
        out ingress_intrinsic_metadata_t intrinsic) {
    Frame() frame;

    state start {
        m = { 0, ... };
        packet.extract(intrinsic);
        packet.advance(PORT_METADATA_SIZE);
        frame.apply(packet, h, m);
        transition accept;
    }
}

control Arrive(
        inout headers_t h, inout meta_t m,
        in ingress_intrinsic_metadata_t intrinsic,
        in ingress_intrinsic_metadata_from_parser_t from_parser,
        inout ingress_intrinsic_metadata_for_deparser_t for_deparser,
        inout ingress_intrinsic_metadata_for_tm_t for_tm) {
    Linkemu() linkemu;

    apply {
        m.port = intrinsic.ingress_port;
        m.now = intrinsic.ingress_mac_tstamp;
        // A frame that ends within a header is left to the box. Without reading the parser error,
        // Tofino would drop such frames.
        if (from_parser.parser_err != PARSER_ERROR_OK) {
            m.kind = KIND_OTHER;
        }
        linkemu.apply(h, m);
        if (m.drop == 1) {
            for_deparser.drop_ctl = 1;
        } else if (m.to_group != 0) {
            for_tm.mcast_grp_a = m.to_group;
        } else {
            for_tm.ucast_egress_port = m.to_port;
        }
        if (m.mirror == 1) {
            // Beside the port or the other group.
            for_tm.mcast_grp_b = GROUP_OF_MIRROR;
        }
        for_deparser.digest_type = (bit<3>)m.learn;
    }
}

control Write(
        packet_out packet, inout headers_t h, in meta_t m,
        in ingress_intrinsic_metadata_for_deparser_t for_deparser) {
    Digest<learn_t>() learned;

    apply {
        if (for_deparser.digest_type == 1) {
            learned.pack({ m.port, m.source, m.direction });
        }
        packet.emit(h);
    }
}

// Egress parses nothing: the whole frame is payload.
struct nothing_t {}

parser ReadNothing(
        packet_in packet, out nothing_t h, out nothing_t m,
        out egress_intrinsic_metadata_t intrinsic) {
    state start {
        packet.extract(intrinsic);
        transition accept;
    }
}

control Leave(
        inout nothing_t h, inout nothing_t m,
        in egress_intrinsic_metadata_t intrinsic,
        in egress_intrinsic_metadata_from_parser_t from_parser,
        inout egress_intrinsic_metadata_for_deparser_t for_deparser,
        inout egress_intrinsic_metadata_for_output_port_t for_port) {
    // Frames that the traffic manager has given to a port.
    @name(".linkemu.sent")
    PACKETS_AND_BYTES(PortId_t, SENT_CELLS) sent;

    apply {
        sent.count(intrinsic.egress_port);
    }
}

control WriteNothing(
        packet_out packet, inout nothing_t h, in nothing_t m,
        in egress_intrinsic_metadata_for_deparser_t for_deparser) {
    apply {
        packet.emit(h);
    }
}

Pipeline(Read(), Arrive(), Write(), ReadNothing(), Leave(), WriteNothing()) pipe;

@pkginfo(name = "linkemu", version = "2")
Switch(pipe) main;
