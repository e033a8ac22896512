// SPDX-License-Identifier: Apache-2.0
import { parse } from "smol-toml";
import { describe, expect, it } from "vitest";
import * as timeline from "./timeline";

const S = 1_000_000_000n;
const TOML = `
name = "fade"
source = "a choice"
[[step]]
profile = "viasat2"
[[step]]
at = "30 s"
label = "rain"
ramp = { value = "packet_loss", from = "0.001 %", to = "0.1 %", over = "10 s", every = "500 ms" }
[[step]]
after = "5 s"
forward = { rate = "72 Mbit/s", delay.base = "280 ms" }
[[step]]
label = "end"
`;

function known(): timeline.Timeline {
  const found = timeline.read(TOML);
  if (found instanceof Error) throw found;
  return found;
}

describe("timeline", () => {
  it("steps_have_absolute_instants", () => {
    const found = known();
    expect(found.steps.map((step) => step.atNs / S)).toEqual([0n, 30n, 45n, 45n]);
    expect(found.steps.map(timeline.kindOf)).toEqual(["profile", "ramp", "values", "mark"]);
    expect(found.steps.map(timeline.actionOf)).toEqual([
      "profile viasat2",
      "both: packet_loss to 0.1 % over 10 s",
      "forward: rate = 72 Mbit/s, delay.base = 280 ms",
      "marks an instant",
    ]);
  });

  it("written_scenario_is_read_back_the_same", () => {
    const found = known();
    const again = timeline.read(timeline.write(found));
    if (again instanceof Error) throw again;
    const bare = (one: timeline.Timeline) => ({ head: one.head, steps: one.steps.map(({ atNs, rest }) => ({ atNs, rest })) });
    expect(bare(again)).toEqual(bare(found));
    expect(parse(timeline.write(found)).name).toBe("fade");
  });

  it("moved_step_is_written_in_its_place", () => {
    const found = known();
    const [, ramp, values] = found.steps;
    const early = timeline.moved(found, values!.id, 12_340_000_000n, S);
    expect((parse(timeline.write(early)).step as { at: string }[]).map(({ at }) => at)).toEqual(["0 ms", "12 s", "30 s", "45 s"]);
    expect(timeline.moved(found, values!.id, -5n * S, S).steps[2]?.atNs).toBe(0n);
    expect(timeline.overlaps(found.steps)).toEqual([]);
    expect(timeline.overlaps(timeline.moved(found, values!.id, 35n * S, S).steps).map(({ id }) => id)).toEqual([values!.id]);
    const long = timeline.stretched(found, ramp!.id, 20n * S, S);
    expect(timeline.endOf(long.steps[1]!)).toBe(50n * S);
    expect(timeline.lengthOf(timeline.stretched(found, ramp!.id, -S, S).steps[1]!)).toBe(S);
  });

  it("steps_without_an_instant_and_other_text_are_refused_with_a_reason", () => {
    for (const [text, reason] of [
      ["[[step]]\nrepeat = 10\n[[step.step]]\nboth.rate = \"down\"", "`repeat`"],
      ["[[step]]\nwait = { event = \"link_changed\" }", "`wait`"],
      ["name = 5 5", "Invalid TOML"],
      ["name = \"x\"", "no [[step]]"],
      ["[[step]]\nat = \"soon\"", "not understood"],
    ] as const) {
      const found = timeline.read(text);
      expect(found, text).toBeInstanceOf(Error);
      expect((found as Error).message).toContain(reason);
    }
  });

  it("grid_of_a_length_is_round", () => {
    expect([1n, 10n, 60n, 299n, 300n, 36_000n].map((seconds) => timeline.gridOf(seconds * S))).toEqual([S / 100n, S / 10n, S, S, 10n * S, 600n * S]);
  });

  it("keys_are_set_and_removed_by_their_path", () => {
    const table = timeline.setKey({ rate: "1 Mbit/s" }, "delay.base", "5 ms");
    expect(table).toEqual({ rate: "1 Mbit/s", delay: { base: "5 ms" } });
    expect(timeline.getKey(table, "delay.base")).toBe("5 ms");
    expect(timeline.setKey(table, "delay.base", "")).toEqual({ rate: "1 Mbit/s" });
    const step = timeline.asKind(timeline.newStep(0n, { label: "a", profile: "x" }), "ramp", "x");
    expect(timeline.kindOf(step)).toBe("ramp");
    expect(timeline.labelOf(step)).toBe("a");
  });
});
