// SPDX-License-Identifier: Apache-2.0
//
// Explicit congestion notification (RFC 3168), where the box's queue chose a packet: ECT(0)
// and ECT(1) become CE, in IPv4 and IPv6. What is CE stays it and counts as marked; what is
// Not-ECT is left alone. IPv4's checksum follows by RFC 1624: its word of the type of
// service grows by 1 or 2, so the checksum becomes less by that, in ones' complement.

#ifndef LINKEMU_ECN
#define LINKEMU_ECN

#include "headers.p4"

control Mark(inout headers_t h, inout meta_t m) {
    // IPv4's is CE; added to the checksum modulo 2^16.
    @hidden
    action mark4(bit<16> change) {
        h.ipv4.ecn = 3;
        h.ipv4.checksum = h.ipv4.checksum + change;
        m.is_marked = 1;
    }

    // IPv6's is CE.
    @hidden
    action mark6() {
        h.ipv6.ecn = 3;
        m.is_marked = 1;
    }

    // Ones' complement: what would fall below 0 skips the second zero, 0xffff.
    @hidden
    table marks4 {
        key = {
            h.ipv4.ecn: exact;
            h.ipv4.checksum: ternary;
        }
        actions = { mark4; @defaultonly NoAction; }
        const entries = {
            (2, 0): mark4(0xfffe); // ECT(0): less by 1
            (2, _): mark4(0xffff);
            (1, 0): mark4(0xfffd); // ECT(1): less by 2
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
