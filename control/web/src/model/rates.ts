// SPDX-License-Identifier: Apache-2.0
//! Rates of a link from two of its figures, as `linkctl top` has them per client: over the
//! dataplane's own clock, and unknown (not zero) without two figures of one dataplane.

import { DropReason, type Drop, type Pipe } from "../gen/linkemu/v1/model_pb";
import type { DirectionSample, LinkSample } from "../gen/linkemu/v1/history_pb";

/** Kinds of drops, as in `linkctl top`. OWN are drops that no link makes. */
export const KINDS = ["AQM", "LIMIT", "OUTAGE", "LOSS", "OWN"] as const;
export type Kind = (typeof KINDS)[number];

/** The kind of a reason. */
export function kindOf(reason: DropReason): Kind {
  switch (reason) {
    case DropReason.AQM:
      return "AQM";
    case DropReason.LIMIT:
      return "LIMIT";
    case DropReason.OUTAGE:
      return "OUTAGE";
    case DropReason.LOSS:
    case DropReason.SCHEDULED:
    case DropReason.MTU:
      return "LOSS";
    default:
      return "OWN";
  }
}

export type Drops = Record<Kind, number>;

/** Dropped packets by kind. */
export function drops(dropped: readonly Drop[]): Drops {
  const sum: Drops = { AQM: 0, LIMIT: 0, OUTAGE: 0, LOSS: 0, OWN: 0 };
  for (const drop of dropped) sum[kindOf(drop.reason)] += Number(drop.count?.packets ?? 0n);
  return sum;
}

/** How a pipe serves its queue: bit/s, or why there is no constant rate. */
export type Serving = { at: number; mean: boolean } | "unlimited" | "down";

export function serving(pipe: Pipe | undefined): Serving | undefined {
  if (!pipe) return undefined;
  const trace = pipe.rateTrace;
  if (trace?.opportunities) {
    let steps = 0n;
    let chances = 0n;
    for (const run of trace.opportunities.runs) {
      steps += run / 16n;
      chances += run % 16n;
    }
    const seconds = (Number(steps) * Number(trace.stepNs)) / 1e9;
    return { at: (Number(chances) * trace.opportunities.sizeBytes * 8) / seconds, mean: true };
  }
  if (trace) {
    const sum = trace.ratesBps.reduce((all, bps) => all + Number(bps), 0);
    return sum > 0 ? { at: sum / trace.ratesBps.length, mean: true } : "down";
  }
  if (pipe.rateBps === undefined) return "unlimited";
  if (pipe.rateBps === 0n) return "down";
  const varied = pipe.access !== undefined || pipe.capacity !== undefined || (pipe.reconfiguration?.shares.length ?? 0) > 0;
  return { at: Number(pipe.rateBps), mean: varied };
}

/** The queue length above which the AQM begins to drop, in bytes; undefined without one in bytes. */
export function threshold(pipe: Pipe | undefined): number | undefined {
  const queue = pipe?.queue;
  if (queue?.randomDrop) return Number(queue.randomDrop.thresholdBytes);
  if (queue?.red) return Number(queue.red.minBytes);
  return undefined;
}

export function aqmName(pipe: Pipe | undefined): string {
  const queue = pipe?.queue;
  if (queue?.randomDrop) return "random drop";
  if (queue?.red) return "RED";
  if (queue?.codel) return "CoDel";
  if (queue?.pie) return "PIE";
  return "tail drop";
}

export interface Flow {
  /** Sent and received in bit/s. */
  sentBps: number | undefined;
  receivedBps: number | undefined;
  /** Packets per second by kind. */
  drops: Drops | undefined;
  /** Bytes in all queues, and in the longest one. */
  queueBytes: number;
  longestBytes: number;
  /** Mean time from arrival to the end of service of the packets served in the interval, in ns. */
  queueDelayNs: number | undefined;
  /** Of capacity on demand, in bit/s; undefined without. */
  demand: Demand | undefined;
}

export interface Demand {
  requestedBps: number;
  assignedBps: number;
  usedBps: number;
}

export interface Row {
  forward: Flow;
  back: Flow;
  /** Seconds between the figures. */
  seconds: number | undefined;
}

const bytes = (count: { bytes: bigint } | undefined): number => Number(count?.bytes ?? 0n);

/** Seconds between two figures; undefined if the dataplane was restarted between. */
export function between(last: LinkSample | undefined, now: LinkSample): number | undefined {
  if (!last || now.timeNs <= last.timeNs) return undefined;
  return Number(now.timeNs - last.timeNs) / 1e9;
}

function flow(last: DirectionSample | undefined, now: DirectionSample | undefined, seconds: number | undefined): Flow {
  const result: Flow = {
    sentBps: undefined,
    receivedBps: undefined,
    drops: undefined,
    queueBytes: bytes(now?.queue),
    longestBytes: Number(now?.longestQueueBytes ?? 0n),
    queueDelayNs: undefined,
    demand: undefined,
  };
  if (!last || !now || seconds === undefined) return result;
  // A counter that went back belongs to another dataplane.
  const rate = (a: number, b: number): number | undefined => (b < a ? undefined : (b - a) / seconds);
  const bps = (a: number, b: number) => {
    const value = rate(a, b);
    return value === undefined ? undefined : value * 8;
  };
  result.sentBps = bps(bytes(last.sent), bytes(now.sent));
  result.receivedBps = bps(bytes(last.received), bytes(now.received));
  const [before, after] = [drops(last.drops), drops(now.drops)];
  const rates = KINDS.map((kind) => rate(before[kind], after[kind]));
  if (rates.every((value) => value !== undefined)) {
    result.drops = Object.fromEntries(KINDS.map((kind, i) => [kind, rates[i]])) as Drops;
  }
  if (now.access) {
    const [requestedBps, assignedBps, usedBps] = (["requestedBytes", "assignedBytes", "usedBytes"] as const).map((key) =>
      bps(Number(last.access?.[key] ?? 0n), Number(now.access?.[key])),
    );
    if (requestedBps !== undefined && assignedBps !== undefined && usedBps !== undefined) {
      result.demand = { requestedBps, assignedBps, usedBps };
    }
  }
  const served = now.queueDelayCount - last.queueDelayCount;
  if (served > 0n) {
    result.queueDelayNs = Number(now.queueDelaySumNs - last.queueDelaySumNs) / Number(served);
  }
  return result;
}

export function row(last: LinkSample | undefined, now: LinkSample): Row {
  const seconds = between(last, now);
  return {
    forward: flow(last?.forwardSample, now.forwardSample, seconds),
    back: flow(last?.returnSample, now.returnSample, seconds),
    seconds,
  };
}

/** Estimated wait of a packet that arrives now, in ns, if the rate stays; undefined if unknown. */
export function wait(queueBytes: number, serves: Serving | undefined): number | undefined {
  if (serves === undefined) return undefined;
  if (queueBytes === 0 || serves === "unlimited") return 0;
  return serves === "down" ? Number.POSITIVE_INFINITY : (queueBytes * 8e9) / serves.at;
}

export interface Contribution {
  /** Configured constant delay of both directions, ns. */
  baseNs: number;
  /** Estimated wait in the longest queue of each direction, ns. */
  forwardQueueNs: number | undefined;
  returnQueueNs: number | undefined;
}

/** With capacity on demand, what packets waited that were served last: the rate is the most that is assigned. */
function waitIn(pipe: Pipe | undefined, flow: Flow): number | undefined {
  return pipe?.access && flow.longestBytes > 0 ? flow.queueDelayNs : wait(flow.longestBytes, serving(pipe));
}

/** What the link adds to a round trip now, without slots, delay bodies and excursions. */
export function contribution(forward: Pipe | undefined, back: Pipe | undefined, now: Row): Contribution {
  return {
    baseNs: Number(forward?.delay?.baseNs ?? 0n) + Number(back?.delay?.baseNs ?? 0n),
    forwardQueueNs: waitIn(forward, now.forward),
    returnQueueNs: waitIn(back, now.back),
  };
}
