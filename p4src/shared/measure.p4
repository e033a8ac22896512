// SPDX-License-Identifier: Apache-2.0
//
// Measures the time that a frame was away, and the excess over the time intended by the box. The
// control plane sets the bounds of the bins, as prefixes of ticks. Frames with a stamp of another
// epoch or switch are not measured.
//
// Times are modulo 2^32 ticks. Rounding may set a stamp one tick late, so one is added.

#ifndef LINKEMU_MEASURE
#define LINKEMU_MEASURE

#include "headers.p4"

control Measure(inout headers_t h, inout meta_t m) {
    // Bin of this transit time.
    @name(".linkemu.set_transit_bin")
    action set_transit_bin(bin_t bin) {
        m.transit_bin = bin;
    }

    // Bin of this lateness.
    @name(".linkemu.set_lateness_bin")
    action set_lateness_bin(bin_t bin) {
        m.lateness_bin = bin;
    }

    // Bounds of transit times.
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

    // How long the frame was away, and was to be, less one tick.
    @hidden
    action take_times() {
        m.is_timed = 1;
        m.transit = m.now[31:0] - h.shim.stamp[31:0];
        m.late = h.shim.planned - 1;
    }

    @hidden
    action compare_times() {
        m.late = m.transit - m.late;
    }

    apply {
        if (h.shim.epoch != m.epoch) {
            m.is_stale = 1;
        } else {
            take_times();
            // Half of the 32-bit range counts as early, the other half as late.
            compare_times();
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
