// SPDX-License-Identifier: Apache-2.0
import { parse } from "smol-toml";
import { describe, expect, it } from "vitest";
import { differences } from "./draft";
import { changeScenario, delayOf, readUtc } from "./moment";

describe("moment", () => {
  it("change_at_an_instant_is_a_scenario_of_one_step", () => {
    const toml = changeScenario({ forward: { rateBps: 72_000_000n, baseNs: 280_000_000n }, back: { rateBps: 0n } }, 10_000_000_000n);
    expect(parse(toml)).toEqual({
      name: "change-at",
      description: "A change at an instant, from the web page",
      step: [
        {
          at: "10 s",
          label: "change",
          forward: { rate: "72 Mbit/s", delay: { base: "280 ms" } },
          return: { rate: "down" },
        },
      ],
    });
    expect(parse(changeScenario({ profile: "viasat2" }, 0n)).step).toEqual([{ at: "0 ms", label: "change", profile: "viasat2" }]);
  });

  it("instant_in_the_past_is_now", () => {
    const utc = new Date(1_000_000);
    expect(delayOf({ kind: "at", utc }, 999_500)).toBe(500_000_000n);
    expect(delayOf({ kind: "at", utc }, 2_000_000)).toBe(0n);
    expect(delayOf({ kind: "after", ns: 7n }, 0)).toBe(7n);
  });

  it("instant_is_read_as_the_page_writes_it", () => {
    for (const text of ["2026-11-25 21:40:00 UTC", "2026-11-25T21:40:00Z", "2026-11-25 21:40"]) {
      expect(readUtc(text)).toEqual(new Date("2026-11-25T21:40:00Z"));
    }
    for (const text of ["", "11/25/2026 9:40 PM", "2026-02-30 10:00", "2026-11-25 25:00"]) expect(readUtc(text)).toBeInstanceOf(Error);
  });

  it("same_values_of_both_directions_are_one_change", () => {
    const values = { rateBps: 5n };
    expect(differences(values, { ...values })).toEqual([{ way: "both", values }]);
    expect(differences(values, {})).toEqual([{ way: "forward", values }]);
    expect(differences(values, { rateBps: 6n }).map(({ way }) => way)).toEqual(["forward", "return"]);
    expect(differences({}, {})).toEqual([]);
  });
});
