// SPDX-License-Identifier: Apache-2.0
//! The figures of all links, from one stream for the whole page: a browser has six connections to a
//! server over HTTP/1.1, shared by its windows. A hidden page has no stream.

import { signal } from "@preact/signals";
import { timestampDate } from "@bufbuild/protobuf/wkt";
import type { LinkSample } from "../gen/linkemu/v1/history_pb";
import { type Row, row } from "../model/rates";
import { api } from "./client";
import { type Failure, failure, isCanceled } from "./failure";

/** Interval of the figures. */
export const INTERVAL_MS = 100;
/** Silence above this is reported. */
const QUIET_MS = 2_000;
const RETRY_MS = [500, 1_000, 2_000, 5_000] as const;
/** Length of the history of a link. */
export const HISTORY_S = 60;

export interface Health {
  state: "connecting" | "live" | "lost" | "login";
  /** UTC of the last figures, by linkd. */
  last: Date | undefined;
  /** Since when there are no news, by this computer. */
  since: Date | undefined;
  why: string;
}

export const health = signal<Health>({ state: "connecting", last: undefined, since: undefined, why: "" });

/** A link's latest figures and its last minute, the oldest first. */
export interface Seen {
  figures: LinkSample;
  row: Row;
  history: History;
}

/** The unseen time before a sample: before this page was opened, or while it was hidden or had no connection. */
interface Gap {
  /** The last sample before it, if any. */
  from: LinkSample | undefined;
  to: LinkSample;
  isAsked: boolean;
}

/** Columns of equal length, as uPlot takes them; times in seconds since 1970. */
export class History {
  readonly time: number[] = [];
  readonly forward: (number | null)[] = [];
  readonly back: (number | null)[] = [];
  readonly forwardQueue: number[] = [];
  readonly returnQueue: number[] = [];
  /** Until linkd has told what was in it. */
  gap: Gap | undefined;

  add(at: number, { forward, back }: Row): void {
    this.time.push(at);
    this.forward.push(forward.sentBps ?? null);
    this.back.push(back.sentBps ?? null);
    this.forwardQueue.push(forward.longestBytes);
    this.returnQueue.push(back.longestBytes);
    while (this.time[0]! < at - HISTORY_S || this.time[0]! > at) for (const column of this.columns()) column.shift();
  }

  /** Fills the gap with samples of linkd, in order of time. The sample after it gets the rates since the last of them. */
  fill(samples: readonly LinkSample[]): void {
    const { gap } = this;
    this.gap = undefined;
    const at = gap ? this.time.indexOf(utcOf(gap.to)) : -1;
    if (!gap || at < 0) return;
    const [begin, end] = [gap.from ? utcOf(gap.from) : 0, utcOf(gap.to)];
    const known = [...samples.filter((one) => utcOf(one) > begin && utcOf(one) < end), gap.to];
    const before = gap.from ?? known.shift();
    const filled = new History();
    known.forEach((one, i) => filled.add(utcOf(one), row(known[i - 1] ?? before, one)));
    const theirs = filled.columns();
    this.columns().forEach((column, i) => column.splice(at, known.length === 0 ? 0 : 1, ...(theirs[i] ?? [])));
  }

  private columns(): unknown[][] {
    return [this.time, this.forward, this.back, this.forwardQueue, this.returnQueue];
  }
}

export const seen = new Map<string, Seen>();
/** Names of the links, in linkd's order. Changes only when links come or go. */
export const names = signal<readonly string[]>([]);
/** Generation by link. Changes only with one of them. */
export const generations = signal<ReadonlyMap<string, bigint>>(new Map());

type Listener = () => void;
const listeners = new Set<Listener>();
let frame = 0;

/** Calls `listener` after new figures, at most once per frame of the screen. */
export function subscribe(listener: Listener): () => void {
  listeners.add(listener);
  if (seen.size > 0) listener();
  return () => listeners.delete(listener);
}

function tell(): void {
  frame = 0;
  for (const listener of listeners) listener();
}

const MAIN = "links/main";

const utcOf = (sample: LinkSample): number => (sample.utc ? timestampDate(sample.utc).getTime() / 1e3 : Number.NaN);

/** Above so many links, linkd keeps less than a minute of ten samples per second of each. */
const FINE_LINKS = 50;

/** Reads from linkd what this page has not seen of a link's last minute, once per gap. */
export async function recall(name: string): Promise<void> {
  const history = seen.get(name)?.history;
  const gap = history?.gap;
  if (!history || !gap || gap.isAsked) return;
  gap.isAsked = true;
  // A second more, for the rates of the first sample.
  const begin = gap.to.timeNs - BigInt(HISTORY_S + 1) * 1_000_000_000n;
  const from = gap.from?.timeNs ?? 0n;
  const afterNs = from > begin ? from : begin > 0n ? begin : 0n;
  const intervalNs = BigInt(names.value.length > FINE_LINKS ? 1_000 : INTERVAL_MS) * 1_000_000n;
  try {
    history.fill((await api.history.getHistory({ link: name, intervalNs, afterNs })).samples);
  } catch {
    // The plots begin with this page.
    history.gap = undefined;
  }
}

/** Notes samples; those of a new stream come after a gap. */
export function take(samples: readonly LinkSample[], isFirst = false): void {
  const links = [...samples.filter(({ link }) => link === MAIN), ...samples.filter(({ link }) => link !== MAIN)];
  const now = links.map(({ link }) => link);
  for (const name of [...seen.keys()]) if (!now.includes(name)) seen.delete(name);
  for (const figures of links) {
    const before = seen.get(figures.link);
    const entry = { figures, row: row(before?.figures, figures), history: before?.history ?? new History() };
    // Counters of another dataplane begin a new history.
    if (before && figures.timeNs < before.figures.timeNs) entry.history = new History();
    if (isFirst || !before) entry.history.gap = { from: entry.history.time.length > 0 ? before?.figures : undefined, to: figures, isAsked: false };
    entry.history.add(utcOf(figures), entry.row);
    seen.set(figures.link, entry);
  }
  if (now.join() !== names.value.join()) names.value = now;
  if (links.some(({ link, generation }) => generations.value.get(link) !== generation) || generations.value.size !== links.length) {
    generations.value = new Map(links.map(({ link, generation }) => [link, generation]));
  }
  const utc = links[0]?.utc;
  const { last } = health.value;
  const date = utc ? timestampDate(utc) : last;
  // Once a second is often enough for a date.
  if (health.value.state !== "live" || !last || !date || Math.abs(date.getTime() - last.getTime()) >= 1_000) {
    health.value = { state: "live", last: date, since: undefined, why: "" };
  }
  if (frame === 0) frame = requestAnimationFrame(tell);
}

function lost(error: Failure): void {
  const { last, since } = health.value;
  const state = error.login ? "login" : "lost";
  health.value = { state, last, since: since ?? new Date(), why: error.message };
}

let running = false;

/** Follows the figures until the page is closed. */
export async function follow(): Promise<void> {
  if (running) return;
  running = true;
  for (let failures = 0; ; ) {
    await visible();
    const stop = new AbortController();
    const hide = (): void => {
      if (document.hidden) stop.abort();
    };
    document.addEventListener("visibilitychange", hide);
    let news = Date.now();
    const guard = setInterval(() => {
      if (Date.now() - news > QUIET_MS && health.value.state === "live") {
        const { last } = health.value;
        health.value = { state: "lost", last, since: new Date(news), why: "linkd is silent" };
        // A dataplane that is away has no samples; another request tells why.
        api.linkemu.getRoom({}, { timeoutMs: QUIET_MS }).catch((caught: unknown) => {
          const now = health.value;
          if (now.state === "lost") health.value = { ...now, why: failure(caught).message };
        });
      }
    }, 250);
    try {
      let isFirst = true;
      const request = { intervalNs: BigInt(INTERVAL_MS) * 1_000_000n };
      for await (const answer of api.history.watchLinks(request, { signal: stop.signal })) {
        news = Date.now();
        failures = 0;
        take(answer.samples, isFirst);
        isFirst = false;
      }
      lost(failure(new TypeError("the stream ended")));
    } catch (error) {
      if (!(stop.signal.aborted && isCanceled(error))) lost(failure(error));
    } finally {
      clearInterval(guard);
      document.removeEventListener("visibilitychange", hide);
    }
    if (!stop.signal.aborted) {
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS[Math.min(failures, RETRY_MS.length - 1)]));
      failures += 1;
    }
  }
}

function visible(): Promise<void> {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => {
    const look = (): void => {
      if (document.hidden) return;
      document.removeEventListener("visibilitychange", look);
      resolve();
    };
    document.addEventListener("visibilitychange", look);
  });
}
