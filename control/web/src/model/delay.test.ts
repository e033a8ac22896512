// SPDX-License-Identifier: Apache-2.0
import { create } from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";
import { PipeSchema, ValueOrder } from "../gen/linkemu/v1/model_pb";
import { exceeded, preview } from "./delay";

const MS = 1_000_000n;
const none = create(PipeSchema, {});

describe("delay", () => {
  it("constant_delay_is_a_step", () => {
    const pipe = create(PipeSchema, { delay: { baseNs: 275n * MS } });
    const { both } = preview(pipe, pipe);
    expect(both).toEqual({ ms: [550], above: [0] });
  });

  it("slot_is_uniform", () => {
    const { forward } = preview(create(PipeSchema, { delay: { baseNs: 300n * MS, slotNs: 40n * MS } }), none);
    for (const p of [0.9, 0.5, 0.25, 0.1]) expect(exceeded(forward, p)).toBeCloseTo(340 - 40 * p, 0);
  });

  it("sum_of_two_slots_is_triangular", () => {
    const pipe = create(PipeSchema, { delay: { slotNs: 100n * MS } });
    const { both } = preview(pipe, pipe);
    expect(Math.abs(exceeded(both, 0.5) - 100)).toBeLessThan(1);
    // P(sum > 200 - x) = x² / (2 · 100²).
    expect(Math.abs(exceeded(both, 0.02) - 180)).toBeLessThan(1);
  });

  it("excursion_has_its_share_of_the_time_and_its_tail", () => {
    const excursion = { intervalNs: 900n * MS, durationNs: 100n * MS, scaleNs: 50n * MS, shape: 0, maxNs: 1000n * MS };
    const { forward } = preview(create(PipeSchema, { delay: { excursions: [excursion] } }), none);
    expect(exceeded(forward, 0.11)).toBe(0);
    // 0.1 · exp(-x / 50) = 0.01 at x = 115 ms.
    expect(Math.abs(exceeded(forward, 0.01) - 50 * Math.log(10))).toBeLessThan(2);
    const regime = { intervalNs: 300n * MS, durationNs: 100n * MS, factor: 9 };
    const busy = preview(create(PipeSchema, { delay: { excursions: [{ ...excursion, regime }] } }), none).forward;
    // A quarter of the time 100 of 200 ms, else 100 of 1,000 ms.
    expect(busy.above[0]).toBeCloseTo(0.25 * 0.5 + 0.75 * 0.1, 2);
  });

  it("body_and_listed_levels_follow_their_values", () => {
    const body = { correlationNs: MS, quantilesNs: [0n, 10n * MS, 20n * MS, 100n * MS] };
    const { forward } = preview(create(PipeSchema, { delay: { body } }), none);
    expect(Math.abs(exceeded(forward, 1 / 3) - 20)).toBeLessThan(0.5);
    const reconfiguration = { values: ValueOrder.LISTED, delaysNs: [0n, 10n * MS, 0n, 10n * MS] };
    const levels = preview(create(PipeSchema, { reconfiguration }), none).forward;
    expect(levels.above[0]).toBeCloseTo(0.5, 6);
    expect(exceeded(levels, 0)).toBeCloseTo(10, 1);
  });
});
