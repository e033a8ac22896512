// SPDX-License-Identifier: Apache-2.0
import { create } from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";
import { CapturePoint, CaptureStartSchema, CapturedPacketSchema } from "../gen/linkemu/v1/capture_pb";
import { Direction, DropReason } from "../gen/linkemu/v1/model_pb";
import { fates, summary } from "./fates";
import { type Copy, pcapng } from "./pcapng";

// ICMP from 10.0.0.1 to 10.0.0.2.
const FRAME = new Uint8Array(98);
FRAME.set([8, 0, 0x45, 0, 0, 84, 0, 0, 0, 0, 64, 1, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2], 12);

const copy = (timeNs: bigint, number: bigint, point: CapturePoint, reason = DropReason.UNSPECIFIED): Copy => ({
  client: "10.0.0.2",
  packet: create(CapturedPacketSchema, { timeNs, number, direction: Direction.FORWARD, point, reason, length: 98, data: FRAME }),
});

describe("capture", () => {
  it("copies_of_a_packet_are_one_fate", () => {
    const all = fates([
      copy(1n, 1n, CapturePoint.INGRESS),
      copy(2n, 2n, CapturePoint.INGRESS),
      copy(3n, 2n, CapturePoint.DROPPED, DropReason.OUTAGE),
      copy(4n, 1n, CapturePoint.MARKED),
      copy(5n, 1n, CapturePoint.EGRESS),
      copy(6n, 0n, CapturePoint.EGRESS),
      copy(7n, 3n, CapturePoint.INGRESS),
    ]);
    expect(all.map(({ number, inNs, outNs, fate }) => [number, inNs, outNs, fate])).toEqual([
      [1n, 1n, 5n, "sent, marked"],
      [2n, 2n, 3n, "dropped: outage"],
      [0n, undefined, 6n, "sent"],
      [3n, 7n, undefined, "in the link"],
    ]);
    expect(all[0]?.summary).toBe("ICMP 10.0.0.1 > 10.0.0.2");
  });

  it("short_and_unknown_frames_have_a_summary", () => {
    for (let length = 0; length < 98; length++) expect(summary(FRAME.subarray(0, length))).not.toBe("");
    expect(summary(FRAME.subarray(0, 13))).toBe("runt");
    const ports = FRAME.slice();
    ports.set([6], 23);
    ports.set([0, 80, 0x13, 0x89], 34);
    expect(summary(ports)).toBe("TCP 10.0.0.1:80 > 10.0.0.2:5001");
  });

  it("every_block_of_the_file_has_its_length_twice", async () => {
    const start = create(CaptureStartSchema, { timeNs: 100n, utc: { seconds: 1n, nanos: 5 }, snaplen: 128, profile: "viasat2", generation: 7n });
    const file = new Uint8Array(await pcapng(start, [copy(105n, 9n, CapturePoint.EGRESS), copy(101n, 9n, CapturePoint.INGRESS)]).arrayBuffer());
    const view = new DataView(file.buffer);
    const types: number[] = [];
    const times: bigint[] = [];
    for (let at = 0; at < file.length; ) {
      const length = view.getUint32(at + 4, true);
      expect(length % 4).toBe(0);
      expect(view.getUint32(at + length - 4, true)).toBe(length);
      types.push(view.getUint32(at, true));
      if (types.at(-1) === 6) times.push((BigInt(view.getUint32(at + 12, true)) << 32n) | BigInt(view.getUint32(at + 16, true)));
      at += length;
    }
    expect(types).toEqual([0x0a0d0d0a, 1, 1, 1, 1, 1, 1, 1, 1, 6, 6]);
    expect(times).toEqual([1_000_000_006n, 1_000_000_010n]);
  });
});
