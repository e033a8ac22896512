// SPDX-License-Identifier: Apache-2.0
//
// PNA implementations for the shared pipeline: random words, loss state, counters.

#ifndef LINKEMU_EXTERNS
#define LINKEMU_EXTERNS

#include "../shared/headers.p4"

#define PACKETS(INDEX, SIZE) Counter<bit<64>, INDEX>(SIZE, PNA_CounterType_t.PACKETS)
#define PACKETS_AND_BYTES(INDEX, SIZE) \
    Counter<bit<64>, INDEX>(SIZE, PNA_CounterType_t.PACKETS_AND_BYTES)
// p4c has no saturating operations for SWX.
#define EXCESS(A, B) (A > B ? 1 : 32w0)
#define COUNT_BYTES(COUNTER, INDEX, M) COUNTER.count(INDEX, M.length)

// Random words: the port has drawn them.
control Draw(inout meta_t m) {
    apply {}
}

// Gilbert-Elliott state per client and direction: returns the current state and makes the
// transition after it. One thread runs the pipeline.
control Chain(inout meta_t m) {
    @name(".linkemu.loss_state")
    Register<state_t, bit<(CLIENT_BITS + 1)>>(CLIENT_CELLS) loss_state;

    apply {
        bit<(CLIENT_BITS + 1)> index = m.cell ++ m.direction;
        m.state = loss_state.read(index);
        if (m.state == STATE_GOOD) {
            if (m.worsens != 0) {
                loss_state.write(index, STATE_BAD);
            }
        } else if (m.betters != 0) {
            loss_state.write(index, STATE_GOOD);
        }
    }
}

// Counts a frame by its fates; it may have several.
control Fates(in meta_t m) {
    @name(".linkemu.fates")
    PACKETS_AND_BYTES(bit<(CLIENT_BITS + 4)>, FATE_CELLS) fates;

    apply {
        fates.count(m.cell ++ m.direction ++ m.fate, m.length);
        if (m.is_returned == 1) {
            fates.count(m.cell ++ m.direction ++ FATE_RETURNED, m.length);
        }
        if (m.is_marked == 1) {
            fates.count(m.cell ++ m.direction ++ FATE_MARKED, m.length);
        }
        if (m.is_stale == 1) {
            fates.count(m.cell ++ m.direction ++ FATE_STALE, m.length);
        }
        if (m.is_unknown_loss == 1) {
            fates.count(m.cell ++ m.direction ++ FATE_UNKNOWN_LOSS, m.length);
        }
    }
}

// Fates counts these as well.
control Returns(in meta_t m) {
    apply {}
}

#endif
