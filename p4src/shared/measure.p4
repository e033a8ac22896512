// SPDX-License-Identifier: Apache-2.0
//
// How long was a frame away, and how much longer than the box meant to keep it? Into bins
// whose bounds the control plane sets, as prefixes of ticks. Not of frames whose stamp is of
// another epoch, or that were stamped by another switch.
//
// Times are modulo 2^32 ticks. A stamp may be one tick late by rounding, hence the one more.

#ifndef LINKEMU_MEASURE
#define LINKEMU_MEASURE

#include "headers.p4"

control Measure(inout headers_t h, inout meta_t m) {
    // Where this time away is counted.
    @name(".linkemu.set_transit_bin")
    action set_transit_bin(bin_t bin) {
        m.transit_bin = bin;
    }

    // Where this lateness is counted.
    @name(".linkemu.set_lateness_bin")
    action set_lateness_bin(bin_t bin) {
        m.lateness_bin = bin;
    }

    // Bounds of the time away.
    @name(".linkemu.transit_bins")
    table transit_bins {
        key = { m.transit: lpm @name("ticks"); }
        actions = { set_transit_bin; }
        default_action = set_transit_bin(BIN_ABOVE);
        size = BINS;
    }

    // Bounds of lateness.
    @name(".linkemu.lateness_bins")
    table lateness_bins {
        key = { m.late: lpm @name("ticks"); }
        actions = { set_lateness_bin; }
        default_action = set_lateness_bin(BIN_ABOVE);
        size = BINS;
    }

    apply {
        m.stale = h.shim.epoch ^ m.epoch;
        if (m.stale != 0) {
            m.is_stale = 1;
        } else {
            m.is_timed = 1;
            m.transit = m.now[31:0] - h.shim.stamp[31:0];
            // Half of what 32 bits can say is before, the other half after it was due.
            m.late = m.transit + 1 - h.shim.planned;
            transit_bins.apply();
            if (m.late[31:31] == 1) {
                m.lateness_bin = BIN_EARLY;
            } else {
                lateness_bins.apply();
            }
        }
    }
}

#endif
