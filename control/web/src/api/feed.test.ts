// SPDX-License-Identifier: Apache-2.0
import { create } from "@bufbuild/protobuf";
import { createRouterTransport } from "@connectrpc/connect";
import { beforeEach, describe, expect, it, vi } from "vitest";
import { History as Api, LinkSampleSchema } from "../gen/linkemu/v1/history_pb";
import { use } from "./client";
import { generations, health, names, recall, seen, take } from "./feed";

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

  it("page_that_opens_or_returns_gets_the_unseen_samples_without_a_gap", async () => {
    // What linkd has: one sample per second, with 1 kB each.
    const all = Array.from({ length: 200 }, (_, n) => sample("links/main", 1_000 + n, BigInt(1_000 * n)));
    const asked: bigint[] = [];
    use(
      createRouterTransport(({ service }) => {
        service(Api, {
          getHistory: ({ afterNs }) => {
            asked.push(afterNs / 1_000_000_000n);
            return { samples: all.filter(({ timeNs }) => timeNs > afterNs) };
          },
        });
      }),
    );
    const seconds = (): number[] => seen.get("links/main")?.history.time ?? [];
    const rates = (): unknown[] => [...new Set(seen.get("links/main")?.history.forward)];
    take([all[90]!], true);
    take([all[91]!]);
    await recall("links/main");
    await recall("links/main");
    expect(seconds()).toEqual(Array.from({ length: 61 }, (_, n) => 1_031 + n));
    expect(rates()).toEqual([8_000]);
    // The page was hidden for 20 s.
    take([all[111]!], true);
    await recall("links/main");
    take([all[112]!]);
    expect(seconds()).toEqual(Array.from({ length: 61 }, (_, n) => 1_052 + n));
    expect(rates()).toEqual([8_000]);
    expect(asked).toEqual([1_029n, 1_091n]);
  });

  it("plots_begin_with_the_page_if_linkd_has_no_samples", async () => {
    use(createRouterTransport(({ service }) => service(Api, { getHistory: () => ({}) })));
    take([sample("links/main", 5, 0n)], true);
    await recall("links/main");
    take([sample("links/main", 6, 1_000n)]);
    expect(seen.get("links/main")?.history).toMatchObject({ time: [5, 6], forward: [null, 8_000], gap: undefined });
  });
});
