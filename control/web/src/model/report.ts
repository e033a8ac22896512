// SPDX-License-Identifier: Apache-2.0
//! What a certificate says in its JSON only: when the run began, the reasons for its limits, and advice.

export interface Report {
  /** Begin of the run. */
  since: Date | undefined;
  /** The verdict as a sentence. */
  summary: string;
  /** By the name of the criterion. */
  reasons: ReadonlyMap<string, string>;
  /** What to change before the run is repeated. */
  remedies: readonly string[];
}

type Json = Record<string, unknown>;

const table = (value: unknown): Json => (typeof value === "object" && value !== null ? (value as Json) : {});
const list = (value: unknown): unknown[] => (Array.isArray(value) ? value : []);
const text = (value: unknown): string => (typeof value === "string" ? value : "");

/** Reads the JSON of a certificate; what it lacks is empty. */
export function readReport(json: string): Report {
  let report: Json = {};
  try {
    report = table(JSON.parse(json));
  } catch {
    // The verdict and its criteria are in the message.
  }
  const since = text(table(report.span).since_utc);
  const criteria = list(report.criteria).map(table);
  return {
    since: since === "" ? undefined : new Date(since),
    summary: text(report.summary),
    reasons: new Map(criteria.map((one) => [text(one.name), text(one.reason)])),
    remedies: list(report.remedies).map(text).filter((one) => one !== ""),
  };
}
