// SPDX-License-Identifier: Apache-2.0
//
// v1model implementations for the shared pipeline: random words, loss state, counters.

#ifndef LINKEMU_EXTERNS
#define LINKEMU_EXTERNS

#include "../shared/headers.p4"

#define PACKETS(INDEX, SIZE) counter<INDEX>(SIZE, CounterType.packets)
#define PACKETS_AND_BYTES(INDEX, SIZE) counter<INDEX>(SIZE, CounterType.packets_and_bytes)

#define COUNT_BYTES(COUNTER, INDEX, M) COUNTER.count(INDEX)

// Multicast group of the ports of a cell of `given` and of the port for copies: this constant plus the cell.
const bit<16> GROUP_OF_MIRRORED = 16;

// Random words.
control Draw(inout meta_t m) {
    apply {
        random(m.draw_move, (bit<32>)0, (bit<32>)0xffffffff);
        random(m.draw_loss, (bit<32>)0, (bit<32>)0xffffffff);
    }
}

// Gilbert-Elliott state per client and direction: returns the current state and makes the
// transition after it. bmv2 runs ingress in one thread.
control Chain(inout meta_t m) {
    @name(".linkemu.loss_state")
    register<state_t, bit<(CLIENT_BITS + 1)>>(CLIENT_CELLS) loss_state;

    apply {
        bit<(CLIENT_BITS + 1)> index = m.cell ++ m.direction;
        loss_state.read(m.state, index);
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
        fates.count(m.cell ++ m.direction ++ m.fate);
        if (m.is_returned == 1) {
            fates.count(m.cell ++ m.direction ++ FATE_RETURNED);
        }
        if (m.is_marked == 1) {
            fates.count(m.cell ++ m.direction ++ FATE_MARKED);
        }
        if (m.is_stale == 1) {
            fates.count(m.cell ++ m.direction ++ FATE_STALE);
        }
        if (m.is_unknown_loss == 1) {
            fates.count(m.cell ++ m.direction ++ FATE_UNKNOWN_LOSS);
        }
    }
}

// Fates counts these as well.
control Returns(in meta_t m) {
    apply {}
}

#endif
