// SPDX-License-Identifier: Apache-2.0
//! The fate of each captured packet: its copies, joined by their number.

import { CapturePoint } from "../gen/linkemu/v1/capture_pb";
import { Direction, DropReason } from "../gen/linkemu/v1/model_pb";
import type { Copy } from "./pcapng";

export interface Fate {
  number: bigint;
  client: string;
  way: "forward" | "return";
  length: number;
  /** On the dataplane's clock; undefined if it was received before the start. */
  inNs: bigint | undefined;
  outNs: bigint | undefined;
  /** "in the link", "sent", or "dropped: REASON", with marks. */
  fate: string;
  summary: string;
}

const way = (direction: Direction): Fate["way"] => (direction === Direction.RETURN ? "return" : "forward");

/** One fate per packet, in order of their first copy. */
export function fates(copies: readonly Copy[]): Fate[] {
  const found = new Map<string, Fate>();
  copies.forEach(({ packet, client }, at) => {
    const key = packet.number > 0n ? `${packet.direction} ${packet.number}` : `before ${at}`;
    const fate: Fate = found.get(key) ?? {
      number: packet.number,
      client,
      way: way(packet.direction),
      length: packet.length,
      inNs: undefined,
      outNs: undefined,
      fate: "in the link",
      summary: summary(packet.data),
    };
    const marked = fate.fate.endsWith("marked") ? ", marked" : "";
    switch (packet.point) {
      case CapturePoint.INGRESS:
        fate.inNs = packet.timeNs;
        break;
      case CapturePoint.EGRESS:
        fate.outNs = packet.timeNs;
        fate.fate = `sent${marked}`;
        break;
      case CapturePoint.DROPPED:
        fate.outNs = packet.timeNs;
        fate.fate = `dropped: ${(DropReason[packet.reason] ?? "unknown").toLowerCase()}`;
        break;
      case CapturePoint.MARKED:
        fate.fate = `${fate.fate}, marked`;
        break;
    }
    found.set(key, fate);
  });
  return [...found.values()];
}

const PROTOCOLS: Record<number, string> = { 1: "ICMP", 6: "TCP", 17: "UDP", 58: "ICMPv6" };

/** Addresses and protocol of a frame, as far as its first bytes tell. */
export function summary(frame: Uint8Array): string {
  const view = new DataView(frame.buffer, frame.byteOffset, frame.byteLength);
  let at = 12;
  if (frame.length < 14) return "runt";
  let type = view.getUint16(at);
  while ((type === 0x8100 || type === 0x88a8) && frame.length >= at + 6) {
    at += 4;
    type = view.getUint16(at);
  }
  at += 2;
  if (type === 0x0806) return "ARP";
  if (type === 0x0800 && frame.length >= at + 20) {
    const address = (from: number): string => Array.from(frame.subarray(from, from + 4)).join(".");
    const header = (frame[at]! & 15) * 4;
    const first = (view.getUint16(at + 6) & 0x1fff) === 0;
    return described(view, frame[at + 9]!, at + header, first, address(at + 12), address(at + 16));
  }
  if (type === 0x86dd && frame.length >= at + 40) {
    const address = (from: number): string =>
      Array.from({ length: 8 }, (_, i) => view.getUint16(from + 2 * i).toString(16)).join(":").replace(/(^|:)0(:0)+(:|$)/, "::");
    return described(view, frame[at + 6]!, at + 40, true, address(at + 8), address(at + 24));
  }
  return `type 0x${type.toString(16).padStart(4, "0")}`;
}

function described(view: DataView, protocol: number, at: number, first: boolean, from: string, to: string): string {
  const name = PROTOCOLS[protocol] ?? `protocol ${protocol}`;
  const ports = (protocol === 6 || protocol === 17) && first && view.byteLength >= at + 4;
  return ports ? `${name} ${from}:${view.getUint16(at)} > ${to}:${view.getUint16(at + 2)}` : `${name} ${from} > ${to}`;
}
