// SPDX-License-Identifier: Apache-2.0
//
// The header between linkd-p4switch's ports and the pipeline. The receiving port puts it before
// each frame. The pipeline returns it, with its decision, before the frame that it sends. The port
// removes it and executes the decision. SWX itself has neither timestamp, frame length, random
// numbers, multicast nor digests; with this header it needs none.
//
// The receiving port appends zeros to short frames, because SWX extracts headers without a check of
// the length. `length` is the length without them. The sending port removes the zeros.

#ifndef LINKEMU_PORT
#define LINKEMU_PORT

// Multicast group of the port for copies.
const bit<8> GROUP_OF_MIRROR = 3;

header port_h {
    bit<16> port; // received at
    bit<16> length; // of the frame as received, bytes
    bit<48> now; // time of arrival, ticks
    bit<32> draw_move; // random words
    bit<32> draw_loss;
    // Set by the pipeline.
    bit<16> to_port;
    bit<8> to_group; // 0: only to_port
    bit<8> to_mirror; // multicast group that gets a copy; 0: none
    bit<8> learn; // 1: report this host
    bit<8> direction;
    bit<48> source;
    // Set by the port: SWX may finish frames in another order than it received them.
    bit<16> order;
}

#define GROUP_BITS 8
#define PORT_HEADER port_h port;
#define PORT_META \
    bit<32> length; bit<8> has_shim; bit<8> has_frame; bit<16> source6; bit<16> destination6;
// The receiving port has set it to 0.
#define MIRROR(H, M) H.port.to_mirror = GROUP_OF_MIRROR
#define IS_CUT(H, M) M.length < 14
#define HAS_NO_SHIM(H, M) M.has_shim == 0
#define HAS_FRAME(H, M) (M.has_frame == 1)

// The last two bytes of both addresses of an IPv6 header.
header ends6_h {
    bit<64> before;
    bit<112> source_start;
    bit<16> source;
    bit<112> destination_start;
    bit<16> destination;
}

#define LOOK_AHEAD6(PACKET, M) \
    ends6_h ends = PACKET.lookahead<ends6_h>(); \
    M.source6 = ends.source; \
    M.destination6 = ends.destination;
#define FOLD6(M) (M.direction == FORWARD \
    ? M.destination6[7:0] ^ M.destination6[15:8] : M.source6[7:0] ^ M.source6[15:8])

#endif
