// SPDX-License-Identifier: Apache-2.0
//! Reads the pcapng files of linkd (draft-ietf-opsawg-pcapng) while they arrive. Blocks are big-endian,
//! times nanoseconds since 1970, and the name of an interface says direction and point, such as
//! "forward-drop". Only what linkd writes is read.

export interface Copy {
  /** Nanoseconds since 1970 in UTC. */
  atNs: bigint;
  /** Same for all copies of a packet; 0 if it was received before the capture. */
  number: bigint;
  way: "forward" | "return";
  point: "in" | "out" | "drop" | "mark";
  /** Length of the packet in bytes; `data` may be shorter. */
  length: number;
  data: Uint8Array;
  /** What the bytes do not contain: reason of a drop, client. */
  comment: string;
}

const SECTION = 0x0a0d0d0a;
const INTERFACE = 1;
const STATISTICS = 5;
const PACKET = 6;
const MAGIC = 0x1a2b3c4d;
/** Larger than any block of linkd, whose packets have 10,224 bytes at most. */
const MOST_BYTES = 1 << 20;

interface Interface {
  way: Copy["way"];
  point: Copy["point"];
}

export class Reader {
  /** Profile and generation at the begin, as linkd writes them. */
  about = "";
  /** Copies that were not read in time, and are not in the file. Known at its end. */
  missed = 0n;
  /** The file has its last blocks. */
  isWhole = false;
  private rest: Uint8Array = new Uint8Array();
  private readonly interfaces: Interface[] = [];

  /** Takes the next bytes of a file; returns the copies that they complete, in the order of the file. */
  take(bytes: Uint8Array): Copy[] {
    const all = new Uint8Array(this.rest.length + bytes.length);
    all.set(this.rest);
    all.set(bytes, this.rest.length);
    const view = new DataView(all.buffer);
    const copies: Copy[] = [];
    let at = 0;
    while (all.length - at >= 12) {
      const [type, total] = [view.getUint32(at), view.getUint32(at + 4)];
      if (total < 12 || total % 4 !== 0 || total > MOST_BYTES) throw new Error(`the capture has a block of ${total} bytes`);
      if (all.length - at < total) break;
      const copy = this.block(type, all.subarray(at + 8, at + total - 4));
      if (copy) copies.push(copy);
      at += total;
    }
    this.rest = all.slice(at);
    return copies;
  }

  private block(type: number, body: Uint8Array): Copy | undefined {
    const view = new DataView(body.buffer, body.byteOffset, body.byteLength);
    switch (type) {
      case SECTION:
        if (view.getUint32(0) !== MAGIC) throw new Error("the capture is not in the form that linkd writes");
        this.about = text(options(body, 16).get(1));
        return undefined;
      case INTERFACE: {
        const [way, point] = text(options(body, 8).get(2)).split("-");
        this.interfaces.push({ way, point } as Interface);
        return undefined;
      }
      case STATISTICS: {
        this.isWhole = true;
        this.missed += u64(options(body, 12).get(5));
        return undefined;
      }
      case PACKET: {
        const of = this.interfaces[view.getUint32(0)];
        if (!of) throw new Error("the capture has a packet of an unknown interface");
        const captured = view.getUint32(12);
        const found = options(body, 20 + padded(captured));
        const data = body.subarray(20, 20 + captured);
        return { ...of, atNs: view.getBigUint64(4), length: view.getUint32(16), data, comment: text(found.get(1)), number: u64(found.get(5)) };
      }
      default:
        return undefined;
    }
  }
}

const padded = (length: number): number => (length + 3) & ~3;
const text = (bytes: Uint8Array | undefined): string => new TextDecoder().decode(bytes);

function u64(bytes: Uint8Array | undefined): bigint {
  return bytes?.length === 8 ? new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0) : 0n;
}

/** Options by their code; of several with the same code, the last. */
function options(body: Uint8Array, from: number): Map<number, Uint8Array> {
  const view = new DataView(body.buffer, body.byteOffset, body.byteLength);
  const found = new Map<number, Uint8Array>();
  for (let at = from; at + 4 <= body.length; ) {
    const [code, length] = [view.getUint16(at), view.getUint16(at + 2)];
    if (code === 0) break;
    found.set(code, body.subarray(at + 4, at + 4 + length));
    at += 4 + padded(length);
  }
  return found;
}
