// SPDX-License-Identifier: Apache-2.0
//! The rate and the packet loss of each direction along a scenario, for plots: its steps, ramps and
//! repetitions are expanded by the rules of `proto/scenario`, which linkd runs. A wait takes no time. Times
//! are in nanoseconds from the start, as numbers: a plot needs no more than their 53 bits.

import { type TomlTable, parse as parseToml } from "smol-toml";
import type { Pipe, Profile } from "../gen/linkemu/v1/model_pb";
import { serving } from "./rates";
import { type Quantity, parse } from "./units";

/** Points of a direction; a longer scenario is cut there. */
const MOST = 20_000;

export interface Point {
  ns: number;
  /** In bit/s; 0: down; null: unlimited. */
  rate: number | null;
  /** Independent loss probability. */
  loss: number;
}

export interface Curves {
  forward: Point[];
  back: Point[];
  /** End of the points. */
  endNs: number;
  /** Steps up to there, as linkd counts them. */
  steps: number;
  /** There is more: it is endless, or longer than a plot can show. */
  isCut: boolean;
  hasWaits: boolean;
}

/** A pass of an endless repetition, and others up to this time, are shown. */
const ENDLESS_NS = 600e9;

class Cut extends Error {}

/** One direction while the scenario is gone through. A point holds until the next. */
class Way {
  readonly points: Point[] = [];
  rate: number | null = null;
  loss = 0;
  /** Rates that follow each other, from an instant on. */
  private trace: { stepNs: number; rates: readonly number[]; fromNs: number; next: number } | undefined;

  constructor(
    readonly name: string,
    pipe: Pipe | undefined,
  ) {
    this.take(pipe, 0);
  }

  /** All values of a pipe. */
  take(pipe: Pipe | undefined, ns: number): void {
    this.loss = pipe?.packetLoss ?? 0;
    const trace = pipe?.rateTrace;
    if (trace && !trace.opportunities) return this.follow({ stepNs: Number(trace.stepNs), rates: trace.ratesBps.map(Number) }, ns);
    const serves = serving(pipe);
    this.set(typeof serves === "object" ? serves.at : serves === "down" ? 0 : null);
  }

  set(rate: number | null): void {
    this.trace = undefined;
    this.rate = rate;
  }

  follow({ stepNs, rates }: { stepNs: number; rates: readonly number[] }, ns: number): void {
    if (!(stepNs > 0) || rates.length === 0) throw new Error("the rate trace has no steps");
    this.trace = { stepNs, rates, fromNs: ns, next: 1 };
    this.rate = rates[0] ?? 0;
  }

  /** Whether its rate can be the begin of a ramp. */
  get current(): number | null {
    return this.trace ? null : this.rate;
  }

  /** Goes on to an instant: the trace has gone on meanwhile. */
  advance(ns: number): void {
    const { trace } = this;
    if (!trace) return;
    for (let at = trace.fromNs + trace.next * trace.stepNs; at < ns; at = trace.fromNs + trace.next * trace.stepNs) {
      this.rate = trace.rates[trace.next % trace.rates.length] ?? 0;
      trace.next += 1;
      this.note(at);
    }
  }

  /** A point with the values now. */
  note(ns: number): void {
    const { rate, loss } = this;
    const last = this.points.at(-1);
    if (last?.ns === ns) Object.assign(last, { rate, loss });
    else if (last?.rate !== rate || last.loss !== loss) this.points.push({ ns, rate, loss });
    if (this.points.length > MOST) throw new Cut();
  }
}

const isTable = (value: unknown): value is TomlTable => typeof value === "object" && value !== null && !Array.isArray(value);
const tables = (value: unknown): TomlTable[] => (Array.isArray(value) ? value.filter(isTable) : []);

function quantity(of: Quantity, text: unknown): number {
  const value = parse(of, String(text));
  if (value instanceof Error) throw value;
  return Number(value);
}

const time = (text: unknown): number => (text === undefined ? 0 : quantity("time", text));
const rateOf = (text: unknown): number | null => (text === "unlimited" ? null : text === "down" ? 0 : quantity("rate", text));

function share(text: unknown): number {
  const found = /^\s*([\d.]+(?:e[-+]?\d+)?)\s*%\s*$/i.exec(String(text));
  const value = Number(found?.[1] ?? Number.NaN) / 100;
  if (!(value >= 0 && value <= 1)) throw new Error(`"${String(text)}" is no probability, such as "1 %"`);
  return value;
}

/** The curves of a scenario that begins at a link; an error says why there are none. */
export function curves(toml: string, link: Profile | undefined, profiles: ReadonlyMap<string, Profile>): Curves | Error {
  const forward = new Way("forward", link?.forwardPipe);
  const back = new Way("return", link?.returnPipe);
  const ways = [forward, back];
  let [endNs, steps, isCut, hasWaits] = [0, 0, false, false];

  const at = (ns: number, change: () => void): void => {
    for (const way of ways) way.advance(ns);
    change();
    for (const way of ways) way.note(ns);
    endNs = Math.max(endNs, ns);
    steps += 1;
  };

  const values = (way: Way, table: unknown, ns: number): void => {
    if (!isTable(table)) return;
    const trace = table.rate_trace;
    if (table.rate !== undefined) way.set(rateOf(table.rate));
    else if (isTable(trace) && Array.isArray(trace.rates)) way.follow({ stepNs: time(trace.step), rates: trace.rates.map((one) => rateOf(one) ?? 0) }, ns);
    else if (trace !== undefined) throw new Error("a trace of single opportunities has no rate to show");
    if (table.packet_loss !== undefined) way.loss = share(table.packet_loss);
  };

  const ramp = (table: TomlTable, begin: number): number => {
    const over = time(table.over);
    const every = table.every === undefined ? undefined : time(table.every);
    const count = every === undefined ? Number(table.steps ?? 1) : Math.max(Math.ceil(over / every), 1);
    const knob = table.value === "rate" ? "rate" : table.value === "packet_loss" ? "loss" : undefined;
    const read = (text: unknown): number | null => (knob === "rate" ? rateOf(text) : knob === "loss" ? share(text) : 0);
    const chosen = ways.filter(({ name }) => (table.direction ?? "both") === "both" || table.direction === name);
    const from = chosen.map((way) => {
      const first = table.from === undefined ? (knob === "rate" ? way.current : way.loss) : read(table.from);
      if (first === null) throw new Error(`the ${way.name} rate has no value at which a ramp can begin`);
      return first;
    });
    const to = read(table.to) ?? 0;
    for (let k = table.from === undefined ? 1 : 0; k <= count; k++) {
      const done = k === count ? over : Math.min(every === undefined ? (over * k) / count : every * k, over);
      const part = over > 0 ? done / over : 1;
      at(begin + done, () =>
        chosen.forEach((way, i) => {
          const first = from[i] ?? 0;
          const value = k === count ? to : table.law === "exponential" && first > 0 ? first * (to / first) ** part : first + (to - first) * part;
          if (knob === "rate") way.set(value);
          else if (knob === "loss") way.loss = value;
        }),
      );
    }
    return begin + over;
  };

  /** Goes through steps that begin at an instant; returns the end of the last one. */
  const walk = (list: readonly TomlTable[], begin: number): number => {
    let end = begin;
    for (const step of list) {
      const ns = step.at === undefined ? end + time(step.after) : begin + time(step.at);
      end = ns;
      if (isTable(step.ramp)) end = ramp(step.ramp, ns);
      else if (step.repeat !== undefined) {
        const times = step.repeat === "forever" ? Number.POSITIVE_INFINITY : Number(step.repeat);
        for (let pass = 0; pass < times; pass++) {
          if (times === Number.POSITIVE_INFINITY && end - ns >= ENDLESS_NS) throw new Cut();
          const from = end;
          end = walk(tables(step.step), end);
          // linkd refuses it.
          if (end === from && times === Number.POSITIVE_INFINITY) throw new Error("an endless repetition takes no time");
        }
      } else {
        at(ns, () => {
          hasWaits ||= step.wait !== undefined;
          if (typeof step.profile === "string") {
            const profile = profiles.get(step.profile);
            if (!profile) throw new Error(`no profile is named "${step.profile}"`);
            forward.take(profile.forwardPipe, ns);
            back.take(profile.returnPipe, ns);
          }
          values(forward, step.forward ?? step.both, ns);
          values(back, step.return ?? step.both, ns);
        });
      }
    }
    return end;
  };

  try {
    walk(tables(parseToml(toml).step), 0);
  } catch (error) {
    if (!(error instanceof Cut)) return error instanceof Error ? error : new Error(String(error));
    isCut = true;
  }
  for (const way of ways) way.points.push({ ns: endNs, rate: way.rate, loss: way.loss });
  return { forward: forward.points, back: back.points, endNs, steps, isCut, hasWaits };
}

/** The values of the last step are drawn for so much of the length. */
const TAIL = 0.04;

/** Columns for a plot: seconds, then the value of each direction, which holds until the next row. */
export function columns({ forward, back, endNs }: Curves, of: (point: Point) => number | null): [number[], (number | null)[], (number | null)[]] {
  const times = [...new Set([...forward, ...back].map(({ ns }) => ns))].sort((a, b) => a - b);
  times.push(endNs + Math.max(endNs * TAIL, 1e9));
  const column = (points: readonly Point[]): (number | null)[] => {
    let i = 0;
    return times.map((ns) => {
      while (i + 1 < points.length && points[i + 1]!.ns <= ns) i += 1;
      return points[i] ? of(points[i]!) : null;
    });
  };
  return [times.map((ns) => ns / 1e9), column(forward), column(back)];
}
