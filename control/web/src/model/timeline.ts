// SPDX-License-Identifier: Apache-2.0
//! A scenario as a timeline: steps at absolute instants, from and to TOML. Steps that have no instant
//! (after a wait, in a repetition) cannot be on it: such a scenario is edited as text.

import { type TomlTable, parse as parseToml, stringify } from "smol-toml";
import { exactTime, parse } from "./units";

export const KINDS = ["values", "ramp", "profile", "mark"] as const;
export type Kind = (typeof KINDS)[number];

export interface Step {
  /** Identity while it is edited. */
  id: number;
  atNs: bigint;
  /** All other keys of the step. */
  rest: TomlTable;
}

export interface Timeline {
  /** Keys of the file beside the steps. */
  head: TomlTable;
  steps: Step[];
}

const isTable = (value: unknown): value is TomlTable =>
  typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof Date);

export function kindOf(step: Step): Kind {
  if (isTable(step.rest.ramp)) return "ramp";
  if (typeof step.rest.profile === "string") return "profile";
  return ["forward", "return", "both", "links"].some((key) => key in step.rest) ? "values" : "mark";
}

export function labelOf(step: Step): string {
  return typeof step.rest.label === "string" ? step.rest.label : "";
}

/** Duration of a ramp, else 0. */
export function lengthOf(step: Step): bigint {
  const ramp = step.rest.ramp;
  if (!isTable(ramp) || typeof ramp.over !== "string") return 0n;
  const over = parse("time", ramp.over);
  return over instanceof Error ? 0n : over;
}

export const endOf = (step: Step): bigint => step.atNs + lengthOf(step);

/** What a step does, in a few words. */
export function actionOf(step: Step): string {
  const { rest } = step;
  if (isTable(rest.ramp)) {
    const { value, to, over, direction } = rest.ramp;
    return `${direction ?? "both"}: ${value} to ${to} over ${over}`;
  }
  const parts: string[] = [];
  if (typeof rest.profile === "string") parts.push(`profile ${rest.profile}`);
  for (const way of ["forward", "return", "both"] as const) {
    const table = rest[way];
    if (isTable(table)) parts.push(`${way}: ${flat(table).map(([key, value]) => `${key} = ${value}`).join(", ")}`);
  }
  if (isTable(rest.links)) parts.push(`links ${Object.keys(rest.links).join(", ")}`);
  return parts.join("; ") || "marks an instant";
}

/** Dotted keys and values. */
export function flat(table: TomlTable, prefix = ""): [string, string][] {
  return Object.entries(table).flatMap(([key, value]): [string, string][] =>
    isTable(value) ? flat(value, `${prefix}${key}.`) : [[`${prefix}${key}`, typeof value === "string" ? value : JSON.stringify(value)]],
  );
}

/** The value of a dotted key. */
export function getKey(table: TomlTable, path: string): string {
  let value: unknown = table;
  for (const key of path.split(".")) value = isTable(value) ? value[key] : undefined;
  return typeof value === "string" ? value : "";
}

/** A copy with another value of a dotted key; empty removes it, and tables that it leaves empty. */
export function setKey(table: TomlTable, path: string, value: string): TomlTable {
  const [key = "", ...further] = path.split(".");
  const copy = { ...table };
  if (further.length > 0) {
    const inner = setKey(isTable(copy[key]) ? copy[key] : {}, further.join("."), value);
    if (Object.keys(inner).length > 0) copy[key] = inner;
    else delete copy[key];
  } else if (value === "") delete copy[key];
  else copy[key] = value;
  return copy;
}

let ids = 0;

export function newStep(atNs: bigint, rest: TomlTable): Step {
  ids += 1;
  return { id: ids, atNs, rest };
}

function time(step: TomlTable, key: string): bigint | undefined {
  const text = step[key];
  if (text === undefined) return undefined;
  if (typeof text !== "string") throw new Error(`${key} is not a time, such as "10 s"`);
  const ns = parse("time", text);
  if (ns instanceof Error) throw ns;
  return ns;
}

/** Reads a scenario; an error says why it cannot be on a timeline, or is no TOML. */
export function read(toml: string): Timeline | Error {
  try {
    const { step: steps, ...head } = parseToml(toml);
    if (!Array.isArray(steps)) return new Error("the scenario has no [[step]]");
    const timeline: Timeline = { head, steps: [] };
    let end = 0n;
    for (const [index, raw] of steps.entries()) {
      if (!isTable(raw)) return new Error(`step ${index + 1} is no table`);
      const unplaced = ["wait", "repeat"].find((key) => key in raw);
      if (unplaced) {
        return new Error(`step ${index + 1} has \`${unplaced}\`, and steps after it have no fixed instant: edit the text`);
      }
      const { at: _, after: __, ...rest } = raw;
      const atNs = time(raw, "at") ?? end + (time(raw, "after") ?? 0n);
      const step = newStep(atNs, rest);
      end = endOf(step);
      timeline.steps.push(step);
    }
    return timeline;
  } catch (error) {
    return error instanceof Error ? error : new Error(String(error));
  }
}

/** Steps in order of their instants; those of one instant keep their order. */
export function sorted(steps: readonly Step[]): Step[] {
  return [...steps].sort((a, b) => (a.atNs < b.atNs ? -1 : a.atNs > b.atNs ? 1 : 0));
}

export function write({ head, steps }: Timeline): string {
  const step = sorted(steps).map(({ atNs, rest }) => ({ at: exactTime(atNs), ...rest }));
  return `${stringify({ ...head, step }).trim()}\n`;
}

/** Steps that begin before the one before has ended, which linkd refuses. */
export function overlaps(steps: readonly Step[]): Step[] {
  const ordered = sorted(steps);
  return ordered.filter((step, at) => at > 0 && step.atNs < endOf(ordered[at - 1]!));
}

/** Moves a step, not before the start, to a multiple of `grid`. */
export function moved(timeline: Timeline, id: number, atNs: bigint, grid: bigint): Timeline {
  const snapped = ((atNs < 0n ? 0n : atNs) + grid / 2n) / grid * grid;
  return { ...timeline, steps: timeline.steps.map((step) => (step.id === id ? { ...step, atNs: snapped } : step)) };
}

/** Sets the duration of a ramp. */
export function stretched(timeline: Timeline, id: number, over: bigint, grid: bigint): Timeline {
  const snapped = (over + grid / 2n) / grid * grid;
  const ns = snapped < grid ? grid : snapped;
  return {
    ...timeline,
    steps: timeline.steps.map((step) =>
      step.id === id && isTable(step.rest.ramp) ? { ...step, rest: { ...step.rest, ramp: { ...step.rest.ramp, over: exactTime(ns) } } } : step,
    ),
  };
}

/** Changes the kind of a step; its label stays. */
export function asKind(step: Step, kind: Kind, profile: string): Step {
  const label = labelOf(step);
  const kept: TomlTable = label ? { label } : {};
  const rest: Record<Kind, TomlTable> = {
    mark: kept,
    profile: { ...kept, profile },
    values: { ...kept, both: { rate: "10 Mbit/s" } },
    ramp: { ...kept, ramp: { value: "rate", direction: "both", to: "1 Mbit/s", over: "10 s", every: "100 ms" } },
  };
  return kindOf(step) === kind ? step : { ...step, rest: rest[kind] };
}

/** The largest round step of which a length has at least 30. */
export function gridOf(lengthNs: bigint): bigint {
  const steps = [3_600, 600, 60, 10, 1, 0.1, 0.01].map((seconds) => BigInt(seconds * 1e9));
  return steps.find((step) => step * 30n <= lengthNs) ?? 10_000_000n;
}
