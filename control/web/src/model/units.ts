// SPDX-License-Identifier: Apache-2.0
//! Quantities as text. `rate`, `size` and `time` round to three digits, for figures; `exactRate`,
//! `exactSize` and `exactTime` are exact in the syntax of profiles and of linkctl ("72 Mbit/s").

type Unit = readonly [name: string, factor: bigint];

const RATES: readonly Unit[] = [
  ["Gbit/s", 1_000_000_000n],
  ["Mbit/s", 1_000_000n],
  ["kbit/s", 1_000n],
  ["bit/s", 1n],
];
const SIZES: readonly Unit[] = [
  ["GB", 1_000_000_000n],
  ["MB", 1_000_000n],
  ["kB", 1_000n],
  ["B", 1n],
];
const TIMES: readonly Unit[] = [
  ["s", 1_000_000_000n],
  ["ms", 1_000_000n],
  ["µs", 1_000n],
  ["ns", 1n],
];
/** Also read, but not written. */
const OTHER: readonly Unit[] = [
  ["us", 1_000n],
  ["min", 60_000_000_000n],
  ["h", 3_600_000_000_000n],
  ["d", 86_400_000_000_000n],
  ["KiB", 1_024n],
  ["MiB", 1_048_576n],
  ["GiB", 1_073_741_824n],
  ["kbps", 1_000n],
  ["Mbps", 1_000_000n],
  ["Gbps", 1_000_000_000n],
  ["kb/s", 1_000n],
  ["Mb/s", 1_000_000n],
  ["Gb/s", 1_000_000_000n],
];

export type Quantity = "rate" | "size" | "time";

const UNITS: Record<Quantity, readonly Unit[]> = { rate: RATES, size: SIZES, time: TIMES };
const READ: Record<Quantity, RegExp> = {
  rate: /bit\/s$|bps$|b\/s$/,
  size: /^[kMG]?B$|^[KMG]iB$/,
  time: /^(s|ms|µs|us|ns|min|h|d)$/,
};
const EXAMPLE: Record<Quantity, string> = { rate: "72 Mbit/s", size: "36 MB", time: "275 ms" };

/** Three significant digits without trailing zeros of a fraction: 72, 1.23, 0.05. */
function digits(value: number): string {
  if (!Number.isFinite(value)) return "–";
  const abs = Math.abs(value);
  if (abs >= 99.95) return value.toFixed(0);
  if (abs >= 9.995) return value.toFixed(1);
  return value.toFixed(2);
}

function rounded(value: number, units: readonly Unit[]): string {
  if (!Number.isFinite(value)) return "–";
  const smallest = units[units.length - 1]!;
  // 999.5 rounds up into the next unit.
  const [name, factor] = units.find(([, f]) => Math.abs(value) >= Number(f) * 0.9995) ?? smallest;
  const scaled = value / Number(factor);
  return factor === 1n ? `${Math.round(scaled)} ${name}` : `${digits(scaled)} ${name}`;
}

/** A rate in bit/s as a figure: "72.0 Mbit/s". */
export const rate = (bps: number): string => rounded(bps, RATES);
/** A size in bytes as a figure: "18.2 MB". */
export const size = (bytes: number): string => rounded(bytes, SIZES);
/** A time in nanoseconds as a figure: "275 ms". */
export const time = (ns: number): string => (ns === 0 ? "0 ms" : rounded(ns, TIMES));

/** A number of packets, with thin spaces: "12 345". */
export function count(value: bigint | number): string {
  return value.toString().replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
}

/** A number of something: "1 packet", "12 345 packets". */
export const counted = (value: bigint | number, things: string): string => `${count(value)} ${Number(value) === 1 ? things.replace(/s$/, "") : things}`;

/** A probability as text, such as "0.1 %", exact to 12 digits. */
export function percent(probability: number): string {
  return `${Number((probability * 100).toPrecision(12))} %`;
}

/** The quantity in the largest unit that needs at most six decimals, exact: "1.5 Mbit/s". */
function exact(value: bigint, units: readonly Unit[]): string {
  for (const [name, factor] of units) {
    if (value < factor && name !== units[units.length - 1]![0]) continue;
    const whole = value / factor;
    const rest = value % factor;
    if (rest === 0n) return `${whole} ${name}`;
    const fraction = rest.toString().padStart(factor.toString().length - 1, "0").replace(/0+$/, "");
    if (fraction.length <= 6) return `${whole}.${fraction} ${name}`;
  }
  return `${value} ${units[units.length - 1]![0]}`;
}

export const exactRate = (bps: bigint): string => exact(bps, RATES);
export const exactSize = (bytes: bigint): string => (bytes === 0n ? "0 B" : exact(bytes, SIZES));
export const exactTime = (ns: bigint): string => (ns === 0n ? "0 ms" : exact(ns, TIMES));

export function exactOf(quantity: Quantity, value: bigint): string {
  return { rate: exactRate, size: exactSize, time: exactTime }[quantity](value);
}

/** Reads "72 Mbit/s" or "1 min 30 s"; the error says what is accepted. */
export function parse(quantity: Quantity, text: string): bigint | Error {
  const parts = [...text.matchAll(/\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Zµ/]*)/g)];
  const read = parts.map((part) => part[0]).join("");
  const wrong = new Error(`"${text}" is not understood: write a number and a unit, such as "${EXAMPLE[quantity]}"`);
  if (parts.length === 0 || read.trim() !== text.trim()) return wrong;
  if (parts.length > 1 && quantity !== "time") return wrong;
  let sum = 0n;
  for (const [, number = "", name = ""] of parts) {
    const unit = [...UNITS[quantity], ...OTHER].find(
      ([known]) => known === name.replace("µ", "u") && READ[quantity].test(known),
    );
    if (!unit) return wrong;
    const [whole = "0", fraction = ""] = number.split(".");
    const scale = 10n ** BigInt(fraction.length);
    const scaled = BigInt(whole + fraction) * unit[1];
    if (scaled % scale !== 0n) return new Error(`"${text}" has more digits than the unit can have`);
    sum += scaled / scale;
  }
  return sum;
}

/** Reads "1 %"; the value is from 0 to 1. */
export function parsePercent(text: string): number | Error {
  const found = /^\s*([0-9]+(?:\.[0-9]+)?)\s*%\s*$/.exec(text);
  const value = found ? Number(found[1]) / 100 : Number.NaN;
  if (!(value >= 0 && value <= 1)) return new Error(`"${text}" is not from "0 %" to "100 %"`);
  return value;
}

/** An instant of the API in UTC with milliseconds: "21:40:03.250". */
export function clock(at: Date): string {
  return Number.isNaN(at.getTime()) ? "–" : at.toISOString().slice(11, 23);
}

/** Date and time in UTC: "2026-11-25 21:40:03 UTC". */
export function utc(at: Date): string {
  return Number.isNaN(at.getTime()) ? "–" : `${at.toISOString().slice(0, 19).replace("T", " ")} UTC`;
}
