// SPDX-License-Identifier: Apache-2.0
//! When a change is made, and the scenario of one step that makes it at an instant.

import { stringify } from "smol-toml";
import { type Values, patchLines } from "./command";
import { exactTime } from "./units";

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
