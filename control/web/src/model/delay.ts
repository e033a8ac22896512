// SPDX-License-Identifier: Apache-2.0
//! Stationary distribution of the delay of a pipe, without its queue: base + level of the period +
//! slot + body + excursions, taken as independent. Packets keep their order, so a delay falls at
//! most as fast as time passes; this preview leaves that out.
//!
//! Distributions are probabilities on a grid of equal steps from zero.

import { ValueOrder, type Excursion, type Pipe } from "../gen/linkemu/v1/model_pb";

/** Steps of the grid. */
export const STEPS = 1024;

export interface Curve {
  /** Delays in ms, ascending. */
  ms: number[];
  /** Probability of a delay above it. */
  above: number[];
}

type Mass = Float64Array;

/** Longest extra delay that any part can give, ns. */
function extent(pipe: Pipe): number {
  const delay = pipe.delay;
  const largest = (values: readonly bigint[]): number => values.reduce((most, ns) => Math.max(most, Number(ns)), 0);
  const excursions = (delay?.excursions ?? []).map((excursion) => Number(excursion.maxNs));
  return (
    Number(delay?.slotNs ?? 0n) +
    largest(delay?.body?.quantilesNs ?? []) +
    excursions.reduce((sum, ns) => sum + ns, 0) +
    largest(pipe.reconfiguration?.delaysNs ?? []) +
    largest(pipe.pathTrace?.delaysNs ?? [])
  );
}

/** The grid that holds all extra delays of a pipe. */
export function stepOf(pipes: readonly Pipe[]): number {
  const longest = pipes.reduce((sum, pipe) => sum + extent(pipe), 0);
  return Math.max(longest / (STEPS - 1), 1_000);
}

/** From the probability of at most x (ns), for x at the upper end of each step. */
function fromCdf(step: number, cdf: (ns: number) => number): Mass {
  const mass = new Float64Array(STEPS);
  let last = 0;
  for (let i = 0; i < STEPS; i++) {
    // The last step has the rest.
    const now = i === STEPS - 1 ? 1 : Math.min(Math.max(cdf((i + 0.5) * step), last), 1);
    mass[i] = now - last;
    last = now;
  }
  return mass;
}

function convolve(a: Mass, b: Mass): Mass {
  const sum = new Float64Array(STEPS);
  for (let i = 0; i < STEPS; i++) {
    const p = a[i]!;
    if (p === 0) continue;
    for (let j = 0; j < STEPS; j++) {
      const k = Math.min(i + j, STEPS - 1);
      sum[k] = sum[k]! + p * b[j]!;
    }
  }
  return sum;
}

/** Quantiles at equally spaced probabilities, interpolated. */
function quantileCdf(quantiles: readonly bigint[]): (ns: number) => number {
  const values = quantiles.map(Number);
  const cells = values.length - 1;
  return (ns) => {
    if (cells < 1) return ns >= (values[0] ?? 0) ? 1 : 0;
    const above = values.findIndex((value) => value > ns);
    if (above < 0) return 1;
    if (above === 0) return 0;
    const [low, high] = [values[above - 1]!, values[above]!];
    return (above - 1 + (ns - low) / (high - low)) / cells;
  };
}

/** Values that are equally likely. */
function listCdf(list: readonly bigint[]): (ns: number) => number {
  const sorted = list.map(Number).sort((a, b) => a - b);
  return (ns) => {
    const above = sorted.findIndex((value) => value > ns);
    return above < 0 ? 1 : above / sorted.length;
  };
}

/** Share of the time in episodes, with regimes: in these the intervals are shorter by the factor. */
function share(excursion: Excursion): number {
  const [gap, length] = [Number(excursion.intervalNs), Number(excursion.durationNs)];
  const at = (factor: number): number => length / (gap / factor + length);
  const regime = excursion.regime;
  if (!regime) return at(1);
  const inside = Number(regime.durationNs) / (Number(regime.intervalNs) + Number(regime.durationNs));
  return (1 - inside) * at(1) + inside * at(regime.factor);
}

/** Generalized Pareto distribution, cut at its maximum. */
function excursionCdf(excursion: Excursion): (ns: number) => number {
  const [location, scale, most] = [excursion.locationNs, excursion.scaleNs, excursion.maxNs].map(Number) as [number, number, number];
  const { shape } = excursion;
  const within = (ns: number): number => {
    if (ns >= most) return 1;
    if (ns < location) return 0;
    if (scale === 0) return 1;
    const z = (ns - location) / scale;
    if (Math.abs(shape) < 1e-9) return 1 - Math.exp(-z);
    const base = 1 + shape * z;
    return base <= 0 ? 1 : 1 - base ** (-1 / shape);
  };
  const p = share(excursion);
  return (ns) => 1 - p + p * within(ns);
}

function extra(pipe: Pipe, step: number): Mass {
  let mass: Mass = new Float64Array(STEPS);
  mass[0] = 1;
  const add = (cdf: (ns: number) => number): void => {
    mass = convolve(mass, fromCdf(step, cdf));
  };
  const slot = Number(pipe.delay?.slotNs ?? 0n);
  if (slot > 0) add((ns) => ns / slot);
  const body = pipe.delay?.body?.quantilesNs ?? [];
  if (body.length > 0) add(quantileCdf(body));
  const levels = pipe.reconfiguration?.delaysNs ?? [];
  if (levels.length > 0) {
    add(pipe.reconfiguration?.values === ValueOrder.LISTED ? listCdf(levels) : quantileCdf(levels));
  }
  const trace = pipe.pathTrace?.delaysNs ?? [];
  if (trace.length > 0) add(listCdf(trace));
  for (const excursion of pipe.delay?.excursions ?? []) add(excursionCdf(excursion));
  return mass;
}

function curve(mass: Mass, baseNs: number, step: number): Curve {
  const [ms, above]: [number[], number[]] = [[], []];
  let rest = 1;
  for (let i = 0; i < STEPS; i++) {
    rest -= mass[i]!;
    ms.push((baseNs + i * step) / 1e6);
    above.push(Math.max(rest, 0));
    if (rest < 1e-9) break;
  }
  return { ms, above };
}

/** Of both directions, and of the round trip, whose delays are added. */
export function preview(forward: Pipe, back: Pipe): { forward: Curve; back: Curve; both: Curve } {
  const step = stepOf([forward, back]);
  const [f, b] = [extra(forward, step), extra(back, step)];
  const [fBase, bBase] = [Number(forward.delay?.baseNs ?? 0n), Number(back.delay?.baseNs ?? 0n)];
  return {
    forward: curve(f, fBase, step),
    back: curve(b, bBase, step),
    both: curve(convolve(f, b), fBase + bBase, step),
  };
}

/** The delay that is exceeded with a probability, in ms. */
export function exceeded({ ms, above }: Curve, probability: number): number {
  const at = above.findIndex((p) => p <= probability);
  return ms[at < 0 ? ms.length - 1 : at] ?? 0;
}
