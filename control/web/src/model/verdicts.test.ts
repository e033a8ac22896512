// SPDX-License-Identifier: Apache-2.0
import { describe, expect, it } from "vitest";
import { addVerdict, readVerdicts } from "./verdicts";

function store(initial: Record<string, string> = {}) {
  const items = new Map(Object.entries(initial));
  return { getItem: (key: string) => items.get(key) ?? null, setItem: (key: string, value: string) => void items.set(key, value) };
}

describe("verdicts", () => {
  it("latest_verdict_is_first_and_links_are_separate", () => {
    const kept = store();
    for (let i = 0; i < 60; i++) addVerdict(kept, "links/main", { at: String(i), holds: i % 2 === 0, failed: [] });
    const all = readVerdicts(kept, "links/main");
    expect(all.length).toBe(50);
    expect(all[0]).toEqual({ at: "59", holds: false, failed: [] });
    expect(readVerdicts(kept, "links/lab1")).toEqual([]);
  });

  it("foreign_content_is_ignored", () => {
    const name = "linkemu verdicts links/main";
    expect(readVerdicts(store({ [name]: "{" }), "links/main")).toEqual([]);
    expect(readVerdicts(store({ [name]: '[1, {"at": 5}, {"at": "x", "holds": true, "failed": []}]' }), "links/main").length).toBe(1);
    const full = { getItem: () => null, setItem: () => { throw new Error("quota"); } };
    expect(addVerdict(full, "links/main", { at: "x", holds: true, failed: [] }).length).toBe(1);
  });
});
