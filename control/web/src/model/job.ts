// SPDX-License-Identifier: Apache-2.0
//! Options of a fit as the user writes them, and figures of its results as text.

import type { FitJob, LogOptions, PlotPoint, VerifyFigure } from "../gen/linkemu/v1/jobs_pb";
import { Direction } from "../gen/linkemu/v1/model_pb";
import { quote, shell } from "./command";
import { type Quantity, parse } from "./units";

export type Kind = "text" | "choice" | Quantity;

/** An option of `linkctl fit`; `of` says whose it is in the API. */
export interface Option {
  key: string;
  of: "log" | "fit";
  label: string;
  flag: string;
  kind: Kind;
  /** Of a choice; the first is the default. */
  choices?: readonly string[];
  placeholder?: string;
}

export const FORMATS = ["recognised", "probe", "ping", "irtt", "columns", "summary"] as const;

export const OPTIONS: readonly Option[] = [
  { key: "name", of: "fit", label: "name of the profile", flag: "--name", kind: "text", placeholder: "that of the file" },
  { key: "like", of: "fit", label: "take rates and queues from", flag: "--like", kind: "text", placeholder: "name of a profile" },
  { key: "lossesIn", of: "fit", label: "losses are in", flag: "--losses-in", kind: "choice", choices: ["both", "forward", "return"] },
  { key: "delayIn", of: "fit", label: "delay varies in", flag: "--delay-in", kind: "choice", choices: ["return", "forward"] },
  { key: "forwardRateBps", of: "fit", label: "forward rate", flag: "--forward-rate", kind: "rate", placeholder: "72 Mbit/s" },
  { key: "returnRateBps", of: "fit", label: "return rate", flag: "--return-rate", kind: "rate" },
  { key: "queueBytes", of: "fit", label: "limit of both queues", flag: "--queue", kind: "size", placeholder: "36 MB" },
  { key: "forwardDelayNs", of: "fit", label: "constant forward delay", flag: "--forward-delay", kind: "time", placeholder: "275 ms" },
  { key: "isolatedDurationNs", of: "fit", label: "duration of an isolated loss", flag: "--isolated-duration", kind: "time" },
  { key: "description", of: "fit", label: "description", flag: "--description", kind: "text" },
  { key: "format", of: "log", label: "format of the log", flag: "--format", kind: "choice", choices: FORMATS },
  { key: "intervalNs", of: "log", label: "probing interval", flag: "--interval", kind: "time", placeholder: "of the log" },
  { key: "columns", of: "log", label: "columns of a table", flag: "--columns", kind: "text", placeholder: "sent=time:s,rtt=rtt:ms" },
  { key: "spacing", of: "log", label: "spacing of the probes", flag: "--spacing", kind: "choice", choices: ["recognised", "constant", "poisson", "irregular"] },
];

export type Texts = Readonly<Record<string, string>>;

const DIRECTIONS: Record<string, Direction> = { both: Direction.UNSPECIFIED, forward: Direction.FORWARD, return: Direction.RETURN };

type Fields<T> = Partial<Omit<T, "$typeName" | "$unknown">>;

export interface FitOptions {
  log: Fields<LogOptions>;
  fit: Omit<Fields<FitJob>, "log">;
  /** The same for linkctl; those of the log alone are also options of `linkctl verify`. */
  words: string[];
  logWords: string[];
}

/** The options that differ from the defaults; an error names the field. */
export function options(texts: Texts): FitOptions | Error {
  const found: FitOptions = { log: {}, fit: {}, words: [], logWords: [] };
  for (const { key, of, label, flag, kind, choices } of OPTIONS) {
    const text = (texts[key] ?? "").trim();
    if (text === "" || text === choices?.[0]) continue;
    let value: unknown = text;
    if (key === "lossesIn" || key === "delayIn") value = DIRECTIONS[text];
    else if (kind !== "text" && kind !== "choice") {
      value = parse(kind, text);
      if (value instanceof Error) return new Error(`${label}: ${value.message}`);
    }
    Object.assign(found[of], { [key]: value });
    const words = [flag, kind === "text" ? text : text.replaceAll(" ", "")];
    found.words.push(...words);
    if (of === "log") found.logWords.push(...words);
  }
  return found;
}

/** A path of the shell's directory, for a name that may begin with "-". */
const path = (name: string): string => (name.startsWith("-") ? `./${name}` : name);

export const fitCommand = (file: string, certificate: string, { words }: FitOptions, written: string): string =>
  shell(["linkctl", "fit", path(file), ...words, ...(certificate ? ["--certificate", path(certificate)] : []), "--write", written]);

export const verifyCommand = (file: string, certificate: string, { logWords }: FitOptions, profile: string): string =>
  shell(["linkctl", "verify", "--baseline", path(file), ...logWords, ...(certificate ? ["--certificate", path(certificate)] : []), profile]);

export const putCommand = (file: string, replace: boolean): string => `linkctl profile put ${replace ? "--replace " : ""}${quote(file)}`;

/** A value of a figure with four significant digits. */
export function value(number: number, unit = ""): string {
  if (!Number.isFinite(number)) return "–";
  const text = Number(number.toPrecision(4)).toString();
  return unit === "" ? text : `${text} ${unit}`;
}

/** Groups in their order, with their figures. */
export function groups(figures: readonly VerifyFigure[]): Map<string, VerifyFigure[]> {
  const found = new Map<string, VerifyFigure[]>();
  for (const one of figures) found.set(one.group, [...(found.get(one.group) ?? []), one]);
  return found;
}

/** Both curves as steps at common places, as uPlot takes them; null where one has no value. */
export function steps(baseline: readonly PlotPoint[], link: readonly PlotPoint[]): [number[], (number | null)[], (number | null)[]] {
  const places = [...new Set([...baseline, ...link].map(({ x }) => x))].sort((a, b) => a - b);
  const column = (points: readonly PlotPoint[]): (number | null)[] => {
    const sorted = [...points].sort((a, b) => a.x - b.x);
    let at = -1;
    return places.map((x) => {
      while (at + 1 < sorted.length && sorted[at + 1]!.x <= x) at += 1;
      const y = sorted[at]?.y;
      // A logarithmic axis has no zero.
      return y !== undefined && y > 0 && x <= (sorted.at(-1)?.x ?? x) ? y : null;
    });
  };
  return [places, column(baseline), column(link)];
}
