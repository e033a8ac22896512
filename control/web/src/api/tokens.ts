// SPDX-License-Identifier: Apache-2.0
//! Tokens of the leases that this page holds, by link. They are in memory only: a token is a secret, and
//! a page that is loaded again has none.

import { signal } from "@preact/signals";

export const tokens = signal<ReadonlyMap<string, string>>(new Map());

export function keepToken(link: string, token: string | undefined): void {
  const next = new Map(tokens.peek());
  if (token === undefined) next.delete(link);
  else next.set(link, token);
  tokens.value = next;
}
