// SPDX-License-Identifier: Apache-2.0
//! When a change is made, and the scenario of one step that makes it at an instant.

import { stringify } from "smol-toml";
import { type Values, patchLines } from "./command";
import { exactTime, utc } from "./units";

export type Moment = { kind: "now" } | { kind: "after"; ns: bigint } | { kind: "at"; utc: Date };

/** Time from `now` (ms since 1970) until the moment, in ns; never negative. */
export function delayOf(moment: Moment, now: number): bigint {
  switch (moment.kind) {
    case "now":
      return 0n;
    case "after":
      return moment.ns;
    case "at": {
      const ms = moment.utc.getTime() - now;
      return ms > 0 ? BigInt(Math.round(ms)) * 1_000_000n : 0n;
    }
  }
}

/** Reads an instant in UTC as the page writes it: "2026-11-25 21:40:03 UTC", also as "2026-11-25T21:40Z". */
export function readUtc(text: string): Date | Error {
  const found = /^\s*(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d(?::\d\d)?)\s*(?:UTC|Z)?\s*$/.exec(text);
  const at = new Date(found ? `${found[1]}T${found[2]}Z` : Number.NaN);
  // Date takes 30 February for 2 March.
  if (!found || Number.isNaN(at.getTime()) || !at.toISOString().startsWith(found[1] ?? "")) {
    return new Error(`"${text}" is no instant: write date and time in UTC, such as "${utc(new Date(0))}"`);
  }
  return at;
}

/** As a button says it: " after 10 s". */
export function momentText(moment: Moment): string {
  if (moment.kind === "now") return "";
  return moment.kind === "after" ? ` after ${exactTime(moment.ns)}` : ` at ${utc(moment.utc)}`;
}

export type OneChange = { profile: string } | { forward: Values; back: Values };

const table = (values: Values): string => `{ ${patchLines(values).join(", ")} }`;

/** A scenario with one step: both directions change at one instant of the dataplane's clock. */
export function changeScenario(change: OneChange, afterNs: bigint): string {
  const lines = [stringify({ name: "change-at", description: "A change at an instant, from the web page" }).trim(), "", "[[step]]"];
  lines.push(`at = "${exactTime(afterNs)}"`, 'label = "change"');
  if ("profile" in change) {
    lines.push(stringify({ profile: change.profile }).trim());
  } else {
    if (patchLines(change.forward).length > 0) lines.push(`forward = ${table(change.forward)}`);
    if (patchLines(change.back).length > 0) lines.push(`return = ${table(change.back)}`);
  }
  return `${lines.join("\n")}\n`;
}
