// SPDX-License-Identifier: Apache-2.0
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { create } from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";
import { type Profile, ProfileSchema } from "../gen/linkemu/v1/model_pb";
import { type Curves, type Point, columns, curves } from "./curve";

const profile = (name: string, forward: bigint, back: bigint): Profile =>
  create(ProfileSchema, { name, forwardPipe: { rateBps: forward }, returnPipe: { rateBps: back } });
const PROFILES = new Map([profile("viasat2", 144_000_000n, 12_000_000n), create(ProfileSchema, { name: "transparent" })].map((one) => [one.name, one]));

function known(toml: string, link?: Profile): Curves {
  const found = curves(toml, link, PROFILES);
  if (found instanceof Error) throw found;
  return found;
}

/** The value in force at an instant. */
const at = (points: readonly Point[], seconds: number): Point | undefined => points.findLast(({ ns }) => ns <= seconds * 1e9);
const builtIn = (name: string): string => readFileSync(join(import.meta.dirname, `../../../../proto/scenario/scenarios/${name}.toml`), "utf8");

describe("curve", () => {
  // By hand; the test in a browser compares them with those of linkd.
  it.each([
    ["rain-fade", 50, 300],
    ["link-flap", 32, 109],
    ["handover", 27, 165],
    ["beam-congestion", 213, 300],
    ["lte-highway", 662, 640],
  ])("built_in_scenario_%s_has_all_its_steps", (name, steps, seconds) => {
    const found = known(builtIn(name));
    expect([name, found.steps, found.endNs / 1e9, found.isCut]).toEqual([name, steps, seconds, false]);
  });

  it("rain_fade_has_its_rates_and_losses", () => {
    const { forward, back } = known(builtIn("rain-fade"));
    expect([10, 60, 100, 299].map((s) => at(forward, s)?.rate)).toEqual([144e6, 108e6, 72e6, 144e6]);
    expect([10, 60, 100, 299].map((s) => at(back, s)?.rate)).toEqual([12e6, 8e6, 4e6, 12e6]);
    // Half way of an exponential ramp from 0.001 % to 0.1 %.
    expect(at(forward, 35)?.loss).toBeCloseTo(1e-4, 10);
    expect([at(forward, 41), at(forward, 151), at(forward, 156)].map((point) => point?.loss)).toEqual([0, 1, 0]);
  });

  it("ramp_begins_at_the_value_in_force_and_trace_goes_on_between_steps", () => {
    const ramp = '[[step]]\nramp = { value = "rate", direction = "return", to = "2 Mbit/s", over = "10 s", steps = 5 }\n';
    const { back, forward } = known(ramp, profile("mine", 9n, 12_000_000n));
    expect(back.map(({ ns, rate }) => [ns / 1e9, rate])).toEqual([[2, 10e6], [4, 8e6], [6, 6e6], [8, 4e6], [10, 2e6], [10, 2e6]]);
    expect(forward.every(({ rate }) => rate === 9)).toBe(true);
    expect(curves(ramp, undefined, PROFILES)).toBeInstanceOf(Error);
    const trace = '[[step]]\nforward.rate_trace = { step = "1 s", rates = ["1 Mbit/s", "2 Mbit/s"] }\n[[step]]\nat = "3500 ms"\nforward.rate = "down"\n';
    const [times, rates] = columns(known(trace), ({ rate }) => rate);
    expect(times.map((s, i) => [s, rates[i]])).toEqual([[0, 1e6], [1, 2e6], [2, 1e6], [3, 2e6], [3.5, 0], [4.5, 0]]);
  });

  it("endless_scenario_is_cut_and_what_linkd_refuses_has_no_curve", () => {
    const flap = '[[step]]\nrepeat = "forever"\n[[step.step]]\nboth.rate = "down"\n[[step.step]]\nafter = "1 min"\nboth.rate = "1 Mbit/s"\n[[step.step]]\nafter = "1 min"\n';
    expect(known(flap)).toMatchObject({ isCut: true, endNs: 600e9 });
    for (const wrong of ["[[step", '[[step]]\nprofile = "nosuch"\n', '[[step]]\nboth.rate = "much"\n', '[[step]]\nboth.packet_loss = "200 %"\n']) {
      expect(curves(wrong, undefined, PROFILES)).toBeInstanceOf(Error);
    }
  });
});
