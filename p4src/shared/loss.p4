// SPDX-License-Identifier: Apache-2.0
//
// Per-packet loss by the entry named in the shim: independent, or with the good and bad state of
// Gilbert and Elliott, as in the dataplane. The fate of a packet and the following transition
// depend on the current state and on separate random words.
//
// Probabilities are in units of 2^-32. An event happens if its probability minus a random word,
// saturating at 0, is not 0: EXCESS. (Tofino cannot compare two fields.)

#ifndef LINKEMU_LOSS
#define LINKEMU_LOSS

#include "headers.p4"

#ifndef EXCESS
#define EXCESS(A, B) A |-| B
#endif

control Loss(inout headers_t h, inout meta_t m) {
    Draw() draw;
    Chain() chain;

    // Independent loss.
    @name(".linkemu.independent")
    action independent(bit<32> p) {
        m.lost_in_good = EXCESS(p, m.draw_loss);
    }

    // Loss by the state of this client and direction.
    @name(".linkemu.gilbert_elliott")
    action gilbert_elliott(
            bit<32> to_bad, bit<32> to_good, bit<32> loss_in_bad, bit<32> loss_in_good) {
        m.chained = 1;
        m.worsens = EXCESS(to_bad, m.draw_move);
        m.betters = EXCESS(to_good, m.draw_move);
        m.lost_in_bad = EXCESS(loss_in_bad, m.draw_loss);
        m.lost_in_good = EXCESS(loss_in_good, m.draw_loss);
    }

    // Unknown number: the frame is delivered and counted.
    @name(".linkemu.unknown_loss")
    action unknown_loss() {
        m.is_unknown_loss = 1;
    }

    // Loss parameters. Links with equal parameters share an entry; states are never shared.
    @name(".linkemu.loss")
    table loss {
        key = { h.shim.loss: exact @name("slot"); }
        actions = { independent; gilbert_elliott; @defaultonly unknown_loss; }
        const default_action = unknown_loss();
        size = LOSSES;
    }

    // A lost frame has no other fates than to have returned.
    @hidden
    action lose() {
        m.drop = 1;
        m.fate = DROP_LOSS;
        m.is_marked = 0;
        m.is_stale = 0;
        m.is_timed = 0;
    }

    apply {
        draw.apply(m);
        loss.apply();
        if (m.chained == 1) {
            chain.apply(m);
        }
        if (m.state == STATE_GOOD) {
            if (m.lost_in_good != 0) {
                lose();
            }
        } else if (m.lost_in_bad != 0) {
            lose();
        }
    }
}

#endif
