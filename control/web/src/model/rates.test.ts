// SPDX-License-Identifier: Apache-2.0
import { create } from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";
import { AccessStatsSchema, DropReason, PipeSchema } from "../gen/linkemu/v1/model_pb";
import { LinkSampleSchema } from "../gen/linkemu/v1/history_pb";
import { KINDS, contribution, kindOf, row, serving, threshold } from "./rates";

const figures = (timeNs: bigint, sent: bigint, outages: bigint, queue = 0n) =>
  create(LinkSampleSchema, {
    link: "links/main",
    timeNs,
    forwardSample: {
      sent: { packets: sent / 100n, bytes: sent },
      received: { packets: 0n, bytes: 2n * sent },
      drops: [{ reason: DropReason.OUTAGE, count: { packets: outages, bytes: 0n } }],
      queue: { packets: 1n, bytes: queue },
      longestQueueBytes: queue,
      queueDelayCount: sent / 100n,
      queueDelaySumNs: sent * 50n,
    },
    returnSample: {},
  });

describe("rates", () => {
  it("rates_are_over_the_clock_of_the_dataplane", () => {
    const now = row(figures(1_000_000_000n, 1_000n, 0n), figures(1_500_000_000n, 2_000n, 3n));
    expect(now.forward.sentBps).toBe(16_000);
    expect(now.forward.receivedBps).toBe(32_000);
    expect(now.forward.drops).toEqual({ AQM: 0, LIMIT: 0, OUTAGE: 6, LOSS: 0, OWN: 0 });
    expect(now.forward.queueDelayNs).toBe(5_000);
  });

  it("rates_without_two_figures_of_one_dataplane_are_unknown", () => {
    expect(row(undefined, figures(1n, 5n, 0n)).forward.sentBps).toBeUndefined();
    expect(row(figures(9n, 5n, 0n), figures(1n, 5n, 0n)).forward.sentBps).toBeUndefined();
    expect(row(figures(1n, 500n, 4n), figures(9n, 5n, 0n)).forward.drops).toBeUndefined();
  });

  it("every_reason_has_a_kind", () => {
    const reasons = Object.values(DropReason).filter((value): value is DropReason => typeof value === "number");
    expect(reasons.length).toBeGreaterThan(10);
    for (const reason of reasons) expect(KINDS).toContain(kindOf(reason));
    expect(kindOf(DropReason.OVERLOAD)).toBe("OWN");
    expect(kindOf(DropReason.SCHEDULED)).toBe("LOSS");
  });

  it("contribution_to_a_round_trip_is_delay_and_queues", () => {
    const pipe = create(PipeSchema, { rateBps: 8_000_000n, delay: { baseNs: 275_000_000n } });
    const down = create(PipeSchema, { rateBps: 0n, delay: { baseNs: 1n } });
    const now = row(undefined, figures(1n, 1n, 0n, 1_000_000n));
    const both = contribution(pipe, down, now);
    expect(both).toEqual({ baseNs: 275_000_001, forwardQueueNs: 1e9, returnQueueNs: 0 });
    expect(contribution(down, down, now).forwardQueueNs).toBe(Number.POSITIVE_INFINITY);
  });

  it("wait_for_capacity_on_demand_is_measured", () => {
    const pipe = create(PipeSchema, { rateBps: 8_000_000n, access: { superframeNs: 40_000_000n } });
    expect(serving(pipe)).toEqual({ at: 8_000_000, mean: true });
    const sampled = (timeNs: bigint, bytes: bigint) => {
      const sample = figures(timeNs, bytes, 0n, 1_000n);
      const access = { requestedBytes: 3n * bytes, assignedBytes: 2n * bytes, usedBytes: bytes };
      if (sample.forwardSample) sample.forwardSample.access = create(AccessStatsSchema, access);
      return sample;
    };
    const now = row(sampled(1_000_000_000n, 1_000n), sampled(2_000_000_000n, 2_000n));
    expect(now.forward.demand).toEqual({ requestedBps: 24_000, assignedBps: 16_000, usedBps: 8_000 });
    expect(contribution(pipe, undefined, now).forwardQueueNs).toBe(5_000);
    const unknown = row(undefined, sampled(1n, 1_000n));
    expect(unknown.forward.demand).toBeUndefined();
    expect(contribution(pipe, undefined, unknown).forwardQueueNs).toBeUndefined();
  });

  it("serving_rate_of_a_trace_is_its_mean", () => {
    const steps = create(PipeSchema, { rateTrace: { stepNs: 1n, ratesBps: [10n, 30n] } });
    expect(serving(steps)).toEqual({ at: 20, mean: true });
    const chances = create(PipeSchema, {
      rateTrace: { stepNs: 1_000_000n, opportunities: { sizeBytes: 1500, runs: [16n * 3n + 2n, 16n + 1n] } },
    });
    expect(serving(chances)).toEqual({ at: (3 * 1500 * 8) / 0.004, mean: true });
    expect(serving(create(PipeSchema, {}))).toBe("unlimited");
    expect(threshold(create(PipeSchema, { queue: { randomDrop: { thresholdBytes: 18n } } }))).toBe(18);
  });
});
