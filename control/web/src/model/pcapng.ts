// SPDX-License-Identifier: Apache-2.0
//! Copies of packets as a pcapng file (draft-ietf-opsawg-pcapng), with the interfaces, comments and
//! packet IDs that `linkctl capture` writes. Little-endian; times are nanoseconds since 1970 in UTC.

import { CapturePoint, type CaptureStart, type CapturedPacket } from "../gen/linkemu/v1/capture_pb";
import { Direction, DropReason } from "../gen/linkemu/v1/model_pb";

const POINTS = [CapturePoint.INGRESS, CapturePoint.EGRESS, CapturePoint.DROPPED, CapturePoint.MARKED] as const;
const SUFFIX: Record<(typeof POINTS)[number], string> = {
  [CapturePoint.INGRESS]: "in",
  [CapturePoint.EGRESS]: "out",
  [CapturePoint.DROPPED]: "drop",
  [CapturePoint.MARKED]: "mark",
};

const ETHERNET = 1;
const MAGIC = 0x1a2b3c4d;

export interface Copy {
  packet: CapturedPacket;
  client: string;
}

/** Blocks are written one after the other into growing pieces. */
class Blocks {
  readonly pieces: Uint8Array<ArrayBuffer>[] = [];

  /** A block of a type: its fields, then its options. */
  add(type: number, fields: Uint8Array, options: readonly [code: number, value: Uint8Array][]): void {
    const sized = options.map(([, value]) => 4 + pad(value.length));
    const list = sized.length > 0 ? sized.reduce((sum, length) => sum + length, 4) : 0;
    const total = 12 + fields.length + list;
    const bytes = new Uint8Array(total);
    const view = new DataView(bytes.buffer);
    view.setUint32(0, type, true);
    view.setUint32(4, total, true);
    bytes.set(fields, 8);
    let at = 8 + fields.length;
    for (const [code, value] of options) {
      view.setUint16(at, code, true);
      view.setUint16(at + 2, value.length, true);
      bytes.set(value, at + 4);
      at += 4 + pad(value.length);
    }
    // opt_endofopt is four zero bytes.
    view.setUint32(total - 4, total, true);
    this.pieces.push(bytes);
  }
}

const pad = (length: number): number => (length + 3) & ~3;
const text = (value: string): Uint8Array => new TextEncoder().encode(value);

function u64(value: bigint): Uint8Array {
  const bytes = new Uint8Array(8);
  new DataView(bytes.buffer).setBigUint64(0, value, true);
  return bytes;
}

function u32(...values: number[]): Uint8Array {
  const bytes = new Uint8Array(4 * values.length);
  const view = new DataView(bytes.buffer);
  values.forEach((value, i) => view.setUint32(4 * i, value, true));
  return bytes;
}

const reasonText = (reason: DropReason): string => (DropReason[reason] ?? "unknown").toLowerCase();

/** What a copy says beside its bytes. */
export function comment({ packet, client }: Copy): string {
  const parts: string[] = [];
  if (packet.point === CapturePoint.DROPPED) parts.push(`dropped: ${reasonText(packet.reason)}`);
  if (packet.point === CapturePoint.MARKED) parts.push("marked");
  if (packet.number === 0n) parts.push("received before the capture");
  parts.push(`client ${client}`);
  return parts.join("; ");
}

/** Nanoseconds since 1970 of an instant of the dataplane's clock. */
export function utcNs(start: CaptureStart, timeNs: bigint): bigint {
  const utc = start.utc ? start.utc.seconds * 1_000_000_000n + BigInt(start.utc.nanos) : 0n;
  return utc + timeNs - start.timeNs;
}

export function pcapng(start: CaptureStart, copies: readonly Copy[]): Blob {
  const blocks = new Blocks();
  const section = new Uint8Array(16);
  const view = new DataView(section.buffer);
  view.setUint32(0, MAGIC, true);
  view.setUint16(4, 1, true);
  // The length of the section is not given.
  view.setBigInt64(8, -1n, true);
  const about = `linkemu: profile ${start.profile}, generation ${start.generation}; began at ${start.timeNs} ns of the dataplane's clock`;
  blocks.add(0x0a0d0d0a, section, [[1, text(about)], [4, text("linkemu web page")]]);
  const ids = new Map<string, number>();
  for (const [direction, name] of [[Direction.FORWARD, "forward"], [Direction.RETURN, "return"]] as const) {
    for (const point of POINTS) {
      ids.set(`${direction} ${point}`, ids.size);
      const fields = new Uint8Array([...u32(ETHERNET), ...u32(start.snaplen)]);
      blocks.add(1, fields, [[2, text(`${name}-${SUFFIX[point]}`)], [9, new Uint8Array([9])]]);
    }
  }
  const ordered = [...copies].sort((a, b) => (a.packet.timeNs < b.packet.timeNs ? -1 : a.packet.timeNs > b.packet.timeNs ? 1 : 0));
  for (const copy of ordered) {
    const { packet } = copy;
    const id = ids.get(`${packet.direction} ${packet.point}`);
    if (id === undefined) continue;
    const at = utcNs(start, packet.timeNs);
    const fields = new Uint8Array(20 + pad(packet.data.length));
    fields.set(u32(id, Number(at >> 32n), Number(at & 0xffffffffn), packet.data.length, packet.length));
    fields.set(packet.data, 20);
    const options: [number, Uint8Array][] = [[1, text(comment(copy))]];
    if (packet.point === CapturePoint.INGRESS) options.push([2, u32(1)]);
    if (packet.point === CapturePoint.EGRESS) options.push([2, u32(2)]);
    if (packet.number > 0n) options.push([5, u64(packet.number)]);
    blocks.add(6, fields, options);
  }
  return new Blob(blocks.pieces, { type: "application/x-pcapng" });
}
