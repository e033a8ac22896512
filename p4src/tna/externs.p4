// SPDX-License-Identifier: Apache-2.0
//
// TNA implementations for the shared pipeline: random words, loss state, counters.

#ifndef LINKEMU_EXTERNS
#define LINKEMU_EXTERNS

#include "../shared/headers.p4"

// Widths are minimal: with 32 bits, two packet and byte counters or four packet counters fit a
// memory word. The driver accumulates overflows.
#define PACKETS(INDEX, SIZE) Counter<bit<32>, INDEX>(SIZE, CounterType_t.PACKETS)
#define PACKETS_AND_BYTES(INDEX, SIZE) \
    Counter<bit<32>, INDEX>(SIZE, CounterType_t.PACKETS_AND_BYTES)

#define COUNT_BYTES(COUNTER, INDEX, M) COUNTER.count(INDEX)

// Multicast group of the port for copies.
const bit<16> GROUP_OF_MIRROR = 3;

// Random words.
control Draw(inout meta_t m) {
    Random<bit<32>>() move;
    Random<bit<32>>() lost;

    apply {
        m.draw_move = move.get();
        m.draw_loss = lost.get();
    }
}

// Gilbert-Elliott state per client and direction: returns the current state and makes the
// transition after it. A table chooses one of four operations of the stateful ALU.
control Chain(inout meta_t m) {
    @name(".linkemu.loss_state")
    Register<state_t, bit<(CLIENT_BITS + 1)>>(CLIENT_CELLS) loss_state;

    RegisterAction<state_t, bit<(CLIENT_BITS + 1)>, state_t>(loss_state) read = {
        void apply(inout state_t state, out state_t found) {
            found = state;
        }
    };
    RegisterAction<state_t, bit<(CLIENT_BITS + 1)>, state_t>(loss_state) set = {
        void apply(inout state_t state, out state_t found) {
            found = state;
            state = STATE_BAD;
        }
    };
    RegisterAction<state_t, bit<(CLIENT_BITS + 1)>, state_t>(loss_state) clear = {
        void apply(inout state_t state, out state_t found) {
            found = state;
            state = STATE_GOOD;
        }
    };
    RegisterAction<state_t, bit<(CLIENT_BITS + 1)>, state_t>(loss_state) turn = {
        void apply(inout state_t state, out state_t found) {
            found = state;
            state = state ^ STATE_BAD;
        }
    };

    // The state stays.
    action keep() {
        m.state = read.execute(m.cell ++ m.direction);
    }

    // To bad.
    action worsen() {
        m.state = set.execute(m.cell ++ m.direction);
    }

    // To good.
    action better() {
        m.state = clear.execute(m.cell ++ m.direction);
    }

    // To the other state.
    action toggle() {
        m.state = turn.execute(m.cell ++ m.direction);
    }

    // Meaning of the random word in both states. Hidden from the control plane.
    @hidden
    table moves {
        key = {
            m.worsens: ternary;
            m.betters: ternary;
        }
        actions = { keep; worsen; better; toggle; @defaultonly NoAction; }
        const entries = {
            (0, 0): keep();
            (0, _): better();
            (_, 0): worsen();
            (_, _): toggle();
        }
        // Tofino has no index for a register in a default action.
        const default_action = NoAction();
    }

    apply {
        moves.apply();
    }
}

// Counts a frame by its fate. A counter counts a packet once, so fates that can occur
// together have separate counters with the same index: the count of a fate is the sum over all
// of them.
control Fates(in meta_t m) {
    @name(".linkemu.fates")
    PACKETS_AND_BYTES(bit<(CLIENT_BITS + 4)>, FATE_CELLS) fates;

    apply {
        fates.count(m.cell ++ m.direction ++ m.fate);
    }
}

// Counts a frame from the box by the fates that it may have besides. Its client is known early, so that
// these are in stages before that of `fates`.
control Returns(in meta_t m) {
    @name(".linkemu.fates_returned")
    PACKETS_AND_BYTES(bit<(CLIENT_BITS + 4)>, FATE_CELLS) fates_returned;
    @name(".linkemu.fates_marked")
    PACKETS_AND_BYTES(bit<(CLIENT_BITS + 4)>, FATE_CELLS) fates_marked;
    @name(".linkemu.fates_stale")
    PACKETS_AND_BYTES(bit<(CLIENT_BITS + 4)>, FATE_CELLS) fates_stale;
    @name(".linkemu.fates_unknown_loss")
    PACKETS_AND_BYTES(bit<(CLIENT_BITS + 4)>, FATE_CELLS) fates_unknown_loss;

    apply {
        fates_returned.count(m.cell ++ m.direction ++ FATE_RETURNED);
        if (m.is_marked == 1) {
            fates_marked.count(m.cell ++ m.direction ++ FATE_MARKED);
        }
        if (m.is_stale == 1) {
            fates_stale.count(m.cell ++ m.direction ++ FATE_STALE);
        }
        if (m.is_unknown_loss == 1) {
            fates_unknown_loss.count(m.cell ++ m.direction ++ FATE_UNKNOWN_LOSS);
        }
    }
}

#endif
