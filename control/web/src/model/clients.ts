// SPDX-License-Identifier: Apache-2.0
//! Client definitions as the file of `linkctl clients set`, and lists in text fields.

import { stringify, type TomlTable } from "smol-toml";
import type { Clients, Match } from "../gen/linkemu/v1/clients_pb";
import { exactRate } from "./units";

const rateOf = (bps: bigint): string => (bps === 0n ? "down" : exactRate(bps));

/** The conditions of a match, as its keys in TOML. */
export function matchTable(match: Match): TomlTable {
  const table: TomlTable = {};
  if (match.priority) table.priority = match.priority;
  if (match.vlan) table.vlan = match.vlan;
  if (match.innerVlan) table.inner_vlan = match.innerVlan;
  const texts = [
    ["mac", match.mac],
    ["prefix", match.prefix],
    ["remote_prefix", match.remotePrefix],
    ["protocol", match.protocol],
    ["port", match.port],
    ["remote_port", match.remotePort],
    ["port_pair", match.portPair],
  ] as const;
  for (const [key, value] of texts) if (value) table[key] = value;
  if (match.dscp !== undefined) table.dscp = match.dscp;
  if (match.flowLabel !== undefined) table.flow_label = match.flowLabel;
  return table;
}

/** As `linkctl link assign --match` takes it: `protocol = "udp", dscp = 46`. */
export function matchText(match: Match): string {
  return Object.entries(matchTable(match))
    .map(([key, value]) => `${key} = ${typeof value === "string" ? JSON.stringify(value) : String(value)}`)
    .join(", ");
}

export function clientsToml(clients: Clients): string {
  const file: TomlTable = {};
  const { automatic } = clients;
  if (automatic) {
    file.automatic = {
      ...(automatic.limit === undefined ? {} : { limit: automatic.limit }),
      ...(automatic.beam ? { beam: automatic.beam } : {}),
      ...(automatic.weight ? { weight: automatic.weight } : {}),
    };
  }
  if (clients.clients.length > 0) {
    file.client = clients.clients.map((one) => ({
      name: one.name,
      ...(one.prefixes.length > 0 ? { prefix: one.prefixes } : {}),
      ...(one.vlans.length > 0 ? { vlan: one.vlans } : {}),
      ...(one.macs.length > 0 ? { mac: one.macs } : {}),
      ...(one.beam ? { beam: one.beam } : {}),
      ...(one.weight ? { weight: one.weight } : {}),
      ...(one.matches.length > 0 ? { match: one.matches.map(matchTable) } : {}),
    }));
  }
  if (clients.beams.length > 0) {
    file.beam = clients.beams.map((one) => ({
      name: one.name,
      ...(one.forwardRateBps === undefined ? {} : { forward_rate: rateOf(one.forwardRateBps) }),
      ...(one.returnRateBps === undefined ? {} : { return_rate: rateOf(one.returnRateBps) }),
    }));
  }
  return stringify(file);
}

/** Items of a text field, separated by spaces or commas. */
export const items = (text: string): string[] => text.split(/[\s,]+/).filter((one) => one !== "");

/** VLAN ids of a text field. */
export function vlans(text: string): number[] | Error {
  const found = items(text);
  const wrong = found.find((one) => !/^\d{1,4}$/.test(one) || Number(one) < 1 || Number(one) > 4094);
  return wrong === undefined ? found.map(Number) : new Error(`"${wrong}" is no VLAN id from 1 to 4094`);
}
