// SPDX-License-Identifier: Apache-2.0
//
// Explicit congestion notification (RFC 3168) for packets selected by the box's AQM: ECT(0) and
// ECT(1) become CE, in IPv4 and IPv6. A packet with CE is unchanged and counts as marked. Not-ECT
// is unchanged. The IPv4 checksum is updated by RFC 1624: the word with the type of service grows
// by 1 or 2, so the checksum decreases by as much, in ones' complement.

#ifndef LINKEMU_ECN
#define LINKEMU_ECN

#include "headers.p4"

control Mark(inout headers_t h, inout meta_t m) {
    // Sets CE in IPv4. The argument is added to the checksum modulo 2^16.
    @hidden
    action mark4(bit<16> change) {
        h.ipv4.ecn = 3;
        h.ipv4.checksum = h.ipv4.checksum + change;
        m.is_marked = 1;
    }

    // Sets CE in IPv6.
    @hidden
    action mark6() {
        h.ipv6.ecn = 3;
        m.is_marked = 1;
    }

    // Ones' complement: a result below 0 skips the second zero, 0xffff.
    @hidden
    table marks4 {
        key = {
            h.ipv4.ecn: exact;
            h.ipv4.checksum: ternary;
        }
        actions = { mark4; @defaultonly NoAction; }
        const entries = {
            (2, 0): mark4(0xfffe); // ECT(0): minus 1
            (2, _): mark4(0xffff);
            (1, 0): mark4(0xfffd); // ECT(1): minus 2
            (1, 1): mark4(0xfffd);
            (1, _): mark4(0xfffe);
            (3, _): mark4(0);
        }
        const default_action = NoAction();
    }

    apply {
        if (m.kind == KIND_IPV4) {
            marks4.apply();
        } else if (m.kind == KIND_IPV6) {
            if (h.ipv6.ecn != 0) {
                mark6();
            }
        }
    }
}

#endif
