// SPDX-License-Identifier: Apache-2.0
//
// Parses a frame, with or without a shim, up to the IP addresses. It does not know the ports of the
// box: a host's frame with the shim's type is parsed like a shim, and the control block corrects
// this.
//
// A frame that ends within a header is no error: the headers parsed so far stay, the rest is
// payload. So the frame is forwarded unchanged.
//
// Metadata is set at most once after its 0: on Tofino a second value would be or'ed to it.

#ifndef LINKEMU_PARSER
#define LINKEMU_PARSER

#include "headers.p4"

parser Frame(packet_in packet, out headers_t h, inout meta_t m) {
    state start {
#ifdef PORT_HEADER
        packet.extract(h.port);
#endif
        m.kind = KIND_OTHER;
        m.bypasses = 0;
        m.vlan = 0;
        transition select(packet.lookahead<ethernet_h>().type) {
            TYPE_SHIM: shim;
            default: ethernet;
        }
    }

    state shim {
        packet.extract(h.outer);
        packet.extract(h.shim);
        transition ethernet;
    }

    state ethernet {
        packet.extract(h.ethernet);
        transition select(h.ethernet.type) {
            TYPE_TAG: tag;
            TYPE_STAG: tag;
            TYPE_OLD_TAG: tag;
            TYPE_IPV4: ipv4;
            TYPE_IPV6: ipv6;
            default: bypass;
        }
    }

    state tag {
        packet.extract(h.tag);
        m.vlan = h.tag.vlan;
        transition select(h.tag.type) {
            TYPE_TAG: tag2;
            TYPE_STAG: tag2;
            TYPE_OLD_TAG: tag2;
            TYPE_IPV4: ipv4;
            TYPE_IPV6: ipv6;
            default: bypass;
        }
    }

    state tag2 {
        packet.extract(h.tag2);
        transition select(h.tag2.type) {
            // A third tag: stop parsing.
            TYPE_TAG: accept;
            TYPE_STAG: accept;
            TYPE_OLD_TAG: accept;
            TYPE_IPV4: ipv4;
            TYPE_IPV6: ipv6;
            default: bypass;
        }
    }

    state ipv4 {
        packet.extract(h.ipv4);
        transition select(h.ipv4.version, h.ipv4.ihl) {
            // At least five words of header.
            (4, 5): is_ipv4;
            (4, 6 &&& 14): is_ipv4;
            (4, 8 &&& 8): is_ipv4;
            default: accept;
        }
    }

    state is_ipv4 {
        m.kind = KIND_IPV4;
        transition accept;
    }

    state ipv6 {
        LOOK_AHEAD6(packet, m)
        packet.extract(h.ipv6);
        transition select(h.ipv6.version) {
            6: is_ipv6;
            default: accept;
        }
    }

    state is_ipv6 {
        m.kind = KIND_IPV6;
        transition select(h.ipv6.next) {
            PROTOCOL_ICMPV6: icmpv6;
            default: accept;
        }
    }

    state icmpv6 {
        transition select(packet.lookahead<bit<8>>()) {
            // Router solicitation to redirect (RFC 4861).
            133: bypass;
            134 &&& 0xfe: bypass;
            136 &&& 0xfe: bypass;
            default: accept;
        }
    }

    state bypass {
        m.bypasses = 1;
        transition accept;
    }
}

#endif
