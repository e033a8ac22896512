// SPDX-License-Identifier: Apache-2.0
//
// Loss of packets, drawn once per packet by the entry that the shim names: each for itself,
// or by Gilbert and Elliott's good and bad state, as the dataplane draws it. A packet's fate
// and the move after it hang on the state that it finds, and on draws of their own.
//
// Probabilities are in units of 2^-32. An event happens if a draw is below its chance: if
// chance minus draw, saturating at 0, is not 0. (Tofino cannot compare two fields.)

#ifndef LINKEMU_LOSS
#define LINKEMU_LOSS

#include "headers.p4"

control Loss(inout headers_t h, inout meta_t m) {
    Draw() draw;
    Chain() chain;

    // Each packet for itself.
    @name(".linkemu.independent")
    action independent(bit<32> p) {
        m.lost_in_good = p |-| m.draw_loss;
    }

    // By the state of this client and direction.
    @name(".linkemu.gilbert_elliott")
    action gilbert_elliott(
            bit<32> to_bad, bit<32> to_good, bit<32> loss_in_bad, bit<32> loss_in_good) {
        m.chained = 1;
        m.worsens = to_bad |-| m.draw_move;
        m.betters = to_good |-| m.draw_move;
        m.lost_in_bad = loss_in_bad |-| m.draw_loss;
        m.lost_in_good = loss_in_good |-| m.draw_loss;
    }

    // There is no such entry. The frame is not lost; it is counted.
    @name(".linkemu.unknown_loss")
    action unknown_loss() {
        m.is_unknown_loss = 1;
    }

    // Figures of loss. Links of equal figures share an entry; states are never shared.
    @name(".linkemu.loss")
    table loss {
        key = { h.shim.loss: exact @name("slot"); }
        actions = { independent; gilbert_elliott; @defaultonly unknown_loss; }
        const default_action = unknown_loss();
        size = LOSSES;
    }

    apply {
        draw.apply(m);
        loss.apply();
        if (m.chained == 1) {
            chain.apply(m);
        }
        if (m.state == STATE_GOOD) {
            if (m.lost_in_good != 0) {
                m.drop = 1;
            }
        } else if (m.lost_in_bad != 0) {
            m.drop = 1;
        }
        if (m.drop == 1) {
            m.fate = DROP_LOSS;
        }
    }
}

#endif
