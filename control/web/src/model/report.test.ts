// SPDX-License-Identifier: Apache-2.0
import { describe, expect, it } from "vitest";
import { readReport } from "./report";

describe("report", () => {
  it("advice_and_reasons_are_read_and_what_is_missing_is_empty", () => {
    const json = {
      summary: "the emulator may have been the bottleneck",
      span: { since_utc: "2026-11-25T21:40:03.25Z" },
      criteria: [{ name: "stall", reason: "1 % of the round trip of 575 ms" }, { name: "packets" }],
      remedies: ["give the worker a core", 7],
    };
    const report = readReport(JSON.stringify(json));
    expect(report).toMatchObject({ summary: json.summary, since: new Date(json.span.since_utc), remedies: ["give the worker a core"] });
    expect([report.reasons.get("stall"), report.reasons.get("packets")]).toEqual(["1 % of the round trip of 575 ms", ""]);
    for (const other of ["", "null", "[]", '{"criteria": 7}']) {
      expect(readReport(other)).toEqual({ since: undefined, summary: "", reasons: new Map(), remedies: [] });
    }
  });
});
