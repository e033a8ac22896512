// SPDX-License-Identifier: Apache-2.0
import { create } from "@bufbuild/protobuf";
import { beforeEach, describe, expect, it, vi } from "vitest";
import { LinkSampleSchema } from "../gen/linkemu/v1/history_pb";
import { History, generations, health, names, seen, take } from "./feed";

beforeEach(() => {
  vi.stubGlobal("requestAnimationFrame", () => 1);
  seen.clear();
});

const sample = (link: string, seconds: number, sent: bigint, generation = 1n) =>
  create(LinkSampleSchema, {
    link,
    timeNs: BigInt(Math.round(seconds * 1e9)),
    utc: { seconds: BigInt(Math.floor(seconds)), nanos: Math.round((seconds % 1) * 1e9) },
    generation,
    forwardSample: { sent: { packets: 1n, bytes: sent } },
    returnSample: { sent: { packets: 0n, bytes: 0n } },
  });

describe("feed", () => {
  it("main_is_first_and_links_that_are_gone_are_forgotten", () => {
    take([sample("links/a", 1, 0n), sample("links/main", 1, 0n)]);
    expect(names.value).toEqual(["links/main", "links/a"]);
    take([sample("links/main", 2, 1_000n, 2n)]);
    expect(names.value).toEqual(["links/main"]);
    expect([...seen.keys()]).toEqual(["links/main"]);
    expect(generations.value.get("links/main")).toBe(2n);
    expect(seen.get("links/main")?.row.forward.sentBps).toBe(8_000);
    expect(health.value).toMatchObject({ state: "live", last: new Date(2_000) });
  });

  it("history_is_a_minute_and_begins_again_with_another_dataplane", () => {
    for (let n = 0; n <= 100; n++) take([sample("links/main", 1_000 + n, BigInt(n))]);
    const history = seen.get("links/main")?.history;
    expect([history?.time[0], history?.time.at(-1), history?.forward.length]).toEqual([1_040, 1_100, 61]);
    take([sample("links/main", 5, 0n)]);
    expect(seen.get("links/main")?.history.time).toEqual([5]);
  });

  it("earlier_samples_come_before_the_own_ones", () => {
    const row = { forward: { longestBytes: 0 }, back: { longestBytes: 0 }, seconds: 1 } as never;
    const [own, earlier] = [new History(), new History()];
    for (const at of [100, 101]) own.add(at, row);
    for (let at = 35; at <= 90; at++) earlier.add(at, row);
    for (let at = 91; at <= 105; at++) earlier.add(at, row);
    own.precede(earlier);
    expect([own.time[0], own.time.length]).toEqual([45, 57]);
    expect(own.time).toEqual([...own.time].sort((a, b) => a - b));
    expect(own.forward.length).toBe(57);
  });
});
