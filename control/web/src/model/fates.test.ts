// SPDX-License-Identifier: Apache-2.0
import { describe, expect, it } from "vitest";
import { Fates, described } from "./fates";
import { type Copy, Reader } from "./pcapng";

// ICMP from 10.0.0.1 to 10.0.0.2.
const FRAME = new Uint8Array(98);
FRAME.set([8, 0, 0x45, 0, 0, 84, 0, 0, 0, 0, 64, 1, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2], 12);

const copy = (atNs: bigint, number: bigint, point: Copy["point"], comment = ""): Copy => ({
  atNs, number, point, comment, way: "forward", length: 98, data: FRAME,
});

describe("fates", () => {
  it("copies_of_a_packet_are_one_fate", () => {
    const fates = new Fates();
    for (const one of [
      copy(1n, 1n, "in"),
      copy(2n, 2n, "in", "client: alice"),
      copy(3n, 2n, "drop", "dropped: outage; client: alice"),
      copy(4n, 1n, "mark", "marked: congestion experienced"),
      copy(5n, 1n, "out"),
      copy(6n, 0n, "out", "received before the capture began"),
      copy(7n, 3n, "in"),
    ]) fates.add(one);
    expect(fates.all.map(({ number, client, inNs, outNs, fate }) => [number, client, inNs, outNs, fate])).toEqual([
      [1n, "10.0.0.2", 1n, 5n, "sent, marked"],
      [2n, "alice", 2n, 3n, "dropped: outage"],
      [0n, "10.0.0.2", undefined, 6n, "sent"],
      [3n, "10.0.0.2", 7n, undefined, "in the link"],
    ]);
    expect(fates.all[0]?.summary).toBe("ICMP 10.0.0.1 > 10.0.0.2");
    expect(fates.copies).toBe(7);
  });

  it("short_and_unknown_frames_have_a_summary", () => {
    for (let length = 0; length < 98; length++) expect(described(FRAME.subarray(0, length)).summary).not.toBe("");
    expect(described(FRAME.subarray(0, 13)).summary).toBe("runt");
    const ports = FRAME.slice();
    ports.set([6], 23);
    ports.set([0, 80, 0x13, 0x89], 34);
    expect(described(ports).summary).toBe("TCP 10.0.0.1:80 > 10.0.0.2:5001");
  });
});

describe("pcapng", () => {
  /** A block with fields of 32 bits, bytes, and options. */
  const block = (type: number, fields: number[], data: Uint8Array, options: [number, Uint8Array][]): number[] => {
    const u32 = (value: number): number[] => [24, 16, 8, 0].map((shift) => (value >>> shift) & 255);
    const even = (bytes: Uint8Array): number[] => [...bytes, ...new Array<number>(-bytes.length & 3).fill(0)];
    const body = [
      ...fields.flatMap(u32),
      ...even(data),
      ...options.flatMap(([code, value]) => [...u32((code << 16) | value.length), ...even(value)]),
      ...(options.length > 0 ? u32(0) : []),
    ];
    return [...u32(type), ...u32(body.length + 12), ...body, ...u32(body.length + 12)];
  };
  const text = (value: string): Uint8Array => new TextEncoder().encode(value);
  const none = new Uint8Array();
  const FILE = [
    ...block(0x0a0d0d0a, [0x1a2b3c4d, 0x10000, 0xffffffff, 0xffffffff], none, [[1, text("linkemu: profile lte")]]),
    ...block(1, [0x10000, 128], none, [[2, text("return-in")], [9, new Uint8Array([9])]]),
    ...block(1, [0x10000, 128], none, [[2, text("return-drop")]]),
    ...block(6, [0, 1, 5, 5, 98], new Uint8Array([1, 2, 3, 4, 5]), [[5, new Uint8Array([0, 0, 0, 0, 0, 0, 0, 9])]]),
    ...block(6, [1, 1, 6, 0, 98], none, [[1, text("dropped: loss")], [5, new Uint8Array([0, 0, 0, 0, 0, 0, 0, 9])]]),
    ...block(5, [1, 1, 7], none, [[5, new Uint8Array([0, 0, 0, 0, 0, 0, 0, 3])]]),
  ];

  it("file_is_read_in_pieces_of_any_length", () => {
    for (const size of [1, 7, 64, FILE.length]) {
      const reader = new Reader();
      const copies: Copy[] = [];
      for (let at = 0; at < FILE.length; at += size) {
        expect(reader.isWhole).toBe(false);
        copies.push(...reader.take(new Uint8Array(FILE.slice(at, at + size))));
      }
      expect(copies.map(({ data, ...rest }) => ({ ...rest, data: [...data] }))).toEqual([
        { atNs: 0x1_0000_0005n, number: 9n, way: "return", point: "in", length: 98, comment: "", data: [1, 2, 3, 4, 5] },
        { atNs: 0x1_0000_0006n, number: 9n, way: "return", point: "drop", length: 98, comment: "dropped: loss", data: [] },
      ]);
      expect([reader.about, reader.missed, reader.isWhole]).toEqual(["linkemu: profile lte", 3n, true]);
    }
  });

  it("other_files_are_refused", () => {
    const little = [...FILE];
    little.splice(8, 4, 0x4d, 0x3c, 0x2b, 0x1a);
    expect(() => new Reader().take(new Uint8Array(little))).toThrow("form");
    expect(() => new Reader().take(new Uint8Array(12))).toThrow("block");
    expect(() => new Reader().take(new Uint8Array(FILE.slice(-152, -40)))).toThrow();
  });
});
