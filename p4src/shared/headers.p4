// SPDX-License-Identifier: Apache-2.0
//
// Headers, and the metadata of a frame in the pipeline.
//
// An architecture whose parser does not detect the end of a frame defines these three by the length.
// Elsewhere a truncated header is not valid.

#ifndef LINKEMU_HEADERS
#define LINKEMU_HEADERS

#include "constants.p4"

#ifndef IS_CUT
// The frame is shorter than an Ethernet header.
#define IS_CUT(H, M) (!H.outer.isValid() && !H.ethernet.isValid())
// There is no shim, or it is truncated.
#define HAS_NO_SHIM(H, M) !H.shim.isValid()
// There is an Ethernet header behind the shim, or without one.
#define HAS_FRAME(H, M) H.ethernet.isValid()
#endif

#ifndef FOLD6
// The bucket of the client's IPv6 address. DPDK's compiler takes no part of 128 bits, so there the
// parser reads the last two bytes of both addresses.
#define LOOK_AHEAD6(PACKET, M)
#define FOLD6(M) M.address6[7:0] ^ M.address6[15:8]
#endif

#ifndef MIRROR
// Has the port for copies get one.
#define MIRROR(H, M) M.mirror = 1
#endif

header ethernet_h {
    bit<48> destination;
    bit<48> source;
    bit<16> type;
}

// Between switch and box: follows an extra Ethernet header, precedes the whole frame.
header shim_h {
    bit<4> version;
    direction_t direction;
    bit<3> reserved;
    bit<7> flags;
    bit<1> mark; // set CE
    bit<16> client; // 0: not classified
    bit<16> epoch; // epoch of client and stamp
    bit<16> loss; // loss number for the switch; 0: none
    bit<48> stamp; // arrival of the host's frame, ticks
    bit<32> planned; // intended time in the box, ticks modulo 2^32
}

header tag_h {
    bit<3> priority;
    bit<1> eligible;
    bit<12> vlan;
    bit<16> type;
}

// Options are not parsed; they are part of the payload.
header ipv4_h {
    bit<4> version;
    bit<4> ihl;
    bit<6> dscp;
    bit<2> ecn;
    bit<16> length;
    bit<16> identification;
    bit<16> fragment;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> checksum;
    bit<32> source;
    bit<32> destination;
}

header ipv6_h {
    bit<4> version;
    bit<6> dscp;
    bit<2> ecn;
    bit<20> flow;
    bit<16> length;
    bit<8> next;
    bit<8> hops;
    bit<128> source;
    bit<128> destination;
}

struct headers_t {
#ifdef PORT_HEADER
    // Exchanged with the ports of the switch, before each frame.
    PORT_HEADER
#endif
    // Added by the switch before a host's frame.
    ethernet_h wrap;
    shim_h wrap_shim;
    // Received before the frame. From a host it belongs to the frame and stays.
    ethernet_h outer;
    shim_h shim;
    // The frame itself.
    ethernet_h ethernet;
    tag_h tag;
    tag_h tag2;
    ipv4_h ipv4;
    ipv6_h ipv6;
}

// Digest of an unknown host.
struct learn_t {
    bit<9> port;
    bit<48> mac;
    direction_t direction;
}

struct meta_t {
#ifdef PORT_META
    PORT_META
#endif
    // Set by the architecture: port, time of arrival, and two random words of 32 bits.
    bit<9> port;
    bit<48> now;
    bit<32> draw_move;
    bit<32> draw_loss;

    // Set by the port and the parser.
    kind_t kind;
    bit<1> bypasses; // not IP, or neighbour discovery
    bit<12> vlan; // of the outermost tag; 0: untagged
    direction_t direction;
    bit<1> is_turned; // the shim has the other direction
    bit<1> mirrors; // some client has an entry in `mirrors`
    bit<16> epoch;

    // Client-side addresses of the frame, and its client.
    bit<48> source;
    bit<48> mac;
    bit<32> address4;
    bit<128> address6;
    bit<8> bucket; // of that IP address
    bit<16> client; // number in its box
    box_t box;
    bit<16> over; // bits of client numbers that the box has no cells for; later those of this client
    bit<CLIENT_BITS> cell; // cell index of the client

    // For loss. Saturating differences: nonzero means yes.
    bit<1> closed;
    bit<1> chained;
    state_t state;
    bit<32> worsens;
    bit<32> betters;
    bit<32> lost_in_good;
    bit<32> lost_in_bad;

    // Times in ticks modulo 2^32.
    bit<32> transit;
    bit<32> late;
    bin_t transit_bin;
    bin_t lateness_bin;

    // Result of the pipeline.
    bit<1> learn;
    bit<1> drop;
    bit<1> is_refused; // no client: counted by port and reason
    reason_t reason;
    fate_t fate;
    bit<1> is_returned;
    bit<1> is_marked;
    bit<1> is_stale;
    bit<1> is_unknown_loss;
    bit<1> is_timed;
    bit<9> to_port;
    bit<GROUP_BITS> to_group; // 0: only to_port
    bit<10> given; // cell of `given`
    bit<1> mirror; // a copy goes to the port for copies
}

#endif
