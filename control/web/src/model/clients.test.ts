// SPDX-License-Identifier: Apache-2.0
import { create } from "@bufbuild/protobuf";
import { parse } from "smol-toml";
import { describe, expect, it } from "vitest";
import { ClientsSchema, MatchSchema } from "../gen/linkemu/v1/clients_pb";
import { clientsToml, items, matchText, vlans } from "./clients";

describe("clients", () => {
  it("definitions_are_the_file_of_linkctl", () => {
    const clients = create(ClientsSchema, {
      automatic: { limit: 0 },
      clients: [
        { name: "alice", prefixes: ["10.1.0.0/24"], vlans: [7], beam: "b1", weight: 2, matches: [{ protocol: "udp", port: "5000-5010", dscp: 0 }] },
        { name: "bob", macs: ["02:00:00:00:00:01"] },
      ],
      beams: [{ name: "b1", forwardRateBps: 400_000_000n, returnRateBps: 0n }],
    });
    expect(parse(clientsToml(clients))).toEqual({
      automatic: { limit: 0 },
      client: [
        { name: "alice", prefix: ["10.1.0.0/24"], vlan: [7], beam: "b1", weight: 2, match: [{ protocol: "udp", port: "5000-5010", dscp: 0 }] },
        { name: "bob", mac: ["02:00:00:00:00:01"] },
      ],
      beam: [{ name: "b1", forward_rate: "400 Mbit/s", return_rate: "down" }],
    });
    expect(clientsToml(create(ClientsSchema, {})).trim()).toBe("");
  });

  it("match_and_lists_are_text", () => {
    expect(matchText(create(MatchSchema, { protocol: "udp", remotePort: "5001", dscp: 46 }))).toBe('protocol = "udp", remote_port = "5001", dscp = 46');
    expect(items(" a, b  c,")).toEqual(["a", "b", "c"]);
    expect(vlans("7 4094")).toEqual([7, 4094]);
    expect(vlans("4095")).toBeInstanceOf(Error);
  });
});
