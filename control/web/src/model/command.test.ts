// SPDX-License-Identifier: Apache-2.0
import { describe, expect, it } from "vitest";
import * as command from "./command";

describe("command", () => {
  it("single_value_has_its_own_command", () => {
    expect(command.setValues("links/main", "forward", { rateBps: 72_000_000n })).toBe(
      "linkctl set rate 72Mbit/s --direction forward",
    );
    expect(command.setValues("links/main", "both", { rateBps: 0n })).toBe("linkctl set rate down");
    expect(command.setValues("links/lab1", "return", { baseNs: 299_800_000n })).toBe(
      "linkctl --link lab1 set delay 299.8ms --direction return",
    );
    expect(command.setValues("links/main", "both", { limitBytes: 36_000_000n }, 7n)).toBe(
      "linkctl set queue 36MB --expect-generation 7",
    );
  });

  it("several_values_are_one_part", () => {
    const values = { rateBps: "unlimited", packetLoss: 0.001, slotNs: 0n } as const;
    expect(command.setValues("links/main", "both", values)).toBe(
      `linkctl set part 'rate = "unlimited"' 'delay.slot = "0 ms"' 'packet_loss = "0.1 %"'`,
    );
    // `set loss` would replace outages as well.
    expect(command.setValues("links/main", "both", { packetLoss: 0 })).toContain("set part");
  });

  it("words_are_quoted_for_the_shell", () => {
    expect(command.quote("it's")).toBe(`'it'\\''s'`);
    expect(command.quote("")).toBe("''");
    expect(command.quote("a;b")).toBe("'a;b'");
    expect(command.quote("10.1.0.0/24")).toBe("10.1.0.0/24");
    expect(command.assignLink("links/lab1", { prefixes: ["10.1.0.0/24"], vlans: [7], macs: [], matches: ["dscp = 46"] })).toBe(
      "linkctl link assign lab1 --prefix 10.1.0.0/24 --vlan 7 --match 'dscp = 46'",
    );
  });

  it("defaults_are_left_out", () => {
    const all = { clients: [], way: "both", snaplen: 128, count: 0n, durationNs: 0n, file: "run.pcapng" } as const;
    expect(command.capture("links/main", all)).toBe("linkctl capture --write run.pcapng");
    const some = { ...all, clients: ["10.0.0.2"], way: "forward", snaplen: 1514, count: 5n, durationNs: 3_000_000_000n } as const;
    expect(command.capture("links/main", some)).toBe(
      "linkctl capture --client 10.0.0.2 --direction forward --snaplen 1514B --count 5 --duration 3s --write run.pcapng",
    );
    expect(command.certificate("links/main", {}, false)).toBe("linkctl certificate");
    expect(command.certificate("links/main", { latenessNs: 5_000_000n, packets: 10n }, true)).toBe(
      "linkctl certificate --mark --min-packets 10 --max-lateness 5ms",
    );
    expect(command.setProfile("links/main", "viasat2", 7n)).toBe("linkctl set profile viasat2 --seed 7");
    const terms = { holder: "Ann", purpose: "", ttlNs: 600_000_000_000n, returnTo: "", steal: false };
    expect(command.acquireLease("links/main", terms)).toBe("linkctl lease acquire --holder Ann --ttl 600s");
    expect(command.acquireLease("links/lab1", { ...terms, purpose: "a test", returnTo: "transparent", steal: true })).toBe(
      "linkctl --link lab1 lease acquire --holder Ann --purpose 'a test' --ttl 600s --return-to transparent --steal",
    );
    expect(command.stopScenario("links/lab1", true)).toBe("linkctl --link lab1 scenario stop --restore");
  });
});
