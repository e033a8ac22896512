// SPDX-License-Identifier: Apache-2.0
//! Changed values of both directions as changes of the link.

import { type Values, type Way, patchLines } from "./command";

export interface DirectedChange {
  way: Way;
  values: Values;
}

/** One change of both directions if they have the same new values, else one for each. */
export function differences(forward: Values, back: Values): DirectedChange[] {
  const [f, b] = [patchLines(forward), patchLines(back)];
  if (f.length > 0 && f.join("\n") === b.join("\n")) return [{ way: "both", values: forward }];
  const changes: DirectedChange[] = [];
  if (f.length > 0) changes.push({ way: "forward", values: forward });
  if (b.length > 0) changes.push({ way: "return", values: back });
  return changes;
}
