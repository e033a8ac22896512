// SPDX-License-Identifier: Apache-2.0
//! The fate of each captured packet: its copies, joined by their number.

import type { Copy } from "./pcapng";

export interface Fate {
  number: bigint;
  client: string;
  way: Copy["way"];
  length: number;
  /** UTC in nanoseconds since 1970; undefined if it was received before the start. */
  inNs: bigint | undefined;
  outNs: bigint | undefined;
  /** "in the link", "sent", or "dropped: REASON", with marks. */
  fate: string;
  summary: string;
}

const key = ({ way, number }: Pick<Copy, "way" | "number">): string => `${way} ${number}`;

/** Fates of copies that arrive one after the other. */
export class Fates {
  /** In order of their first copy. */
  readonly all: Fate[] = [];
  copies = 0;
  private readonly open = new Map<string, Fate>();

  add(copy: Copy): void {
    this.copies += 1;
    const known = copy.number > 0n ? this.open.get(key(copy)) : undefined;
    const fate = known ?? begin(copy);
    if (!known) {
      this.all.push(fate);
      if (copy.number > 0n) this.open.set(key(copy), fate);
    }
    switch (copy.point) {
      case "in":
        fate.inNs = copy.atNs;
        break;
      case "out":
        fate.outNs = copy.atNs;
        fate.fate = fate.fate.endsWith("marked") ? "sent, marked" : "sent";
        break;
      case "drop":
        fate.outNs = copy.atNs;
        fate.fate = said(copy).find((part) => part.startsWith("dropped: ")) ?? "dropped";
        break;
      case "mark":
        fate.fate = `${fate.fate}, marked`;
        break;
    }
  }
}

const said = ({ comment }: Copy): string[] => comment.split("; ");

function begin(copy: Copy): Fate {
  const frame = described(copy.data);
  // linkd names a client that is not the address of the packet.
  const named = said(copy).find((part) => part.startsWith("client: "))?.slice("client: ".length);
  const address = copy.way === "forward" ? frame.to : frame.from;
  const { number, way, length } = copy;
  return { number, way, length, client: named ?? address ?? "", inNs: undefined, outNs: undefined, fate: "in the link", summary: frame.summary };
}

const PROTOCOLS: Record<number, string> = { 1: "ICMP", 6: "TCP", 17: "UDP", 58: "ICMPv6" };

interface Frame {
  /** Addresses and protocol, as far as the first bytes tell. */
  summary: string;
  from?: string;
  to?: string;
}

export function described(frame: Uint8Array): Frame {
  const view = new DataView(frame.buffer, frame.byteOffset, frame.byteLength);
  let at = 12;
  if (frame.length < 14) return { summary: "runt" };
  let type = view.getUint16(at);
  while ((type === 0x8100 || type === 0x88a8) && frame.length >= at + 6) {
    at += 4;
    type = view.getUint16(at);
  }
  at += 2;
  if (type === 0x0806) return { summary: "ARP" };
  if (type === 0x0800 && frame.length >= at + 20) {
    const address = (from: number): string => Array.from(frame.subarray(from, from + 4)).join(".");
    const header = (frame[at]! & 15) * 4;
    const first = (view.getUint16(at + 6) & 0x1fff) === 0;
    return transport(view, frame[at + 9]!, at + header, first, address(at + 12), address(at + 16));
  }
  if (type === 0x86dd && frame.length >= at + 40) {
    const address = (from: number): string =>
      Array.from({ length: 8 }, (_, i) => view.getUint16(from + 2 * i).toString(16)).join(":").replace(/(^|:)0(:0)+(:|$)/, "::");
    return transport(view, frame[at + 6]!, at + 40, true, address(at + 8), address(at + 24));
  }
  return { summary: `type 0x${type.toString(16).padStart(4, "0")}` };
}

function transport(view: DataView, protocol: number, at: number, first: boolean, from: string, to: string): Frame {
  const name = PROTOCOLS[protocol] ?? `protocol ${protocol}`;
  const ports = (protocol === 6 || protocol === 17) && first && view.byteLength >= at + 4;
  const summary = ports ? `${name} ${from}:${view.getUint16(at)} > ${to}:${view.getUint16(at + 2)}` : `${name} ${from} > ${to}`;
  return { summary, from, to };
}
