// SPDX-License-Identifier: Apache-2.0
//! Verdicts that this browser has seen, per link, in its local storage.

export interface Kept {
  at: string;
  holds: boolean;
  failed: string[];
}

const KEPT = 50;
const key = (link: string): string => `linkemu verdicts ${link}`;

function isKept(value: unknown): value is Kept {
  if (typeof value !== "object" || value === null) return false;
  const { at, holds, failed } = value as Partial<Kept>;
  return typeof at === "string" && typeof holds === "boolean" && Array.isArray(failed) && failed.every((one) => typeof one === "string");
}

type Store = Pick<Storage, "getItem" | "setItem">;

/** The latest first. What another program left there is ignored. */
export function readVerdicts(store: Store, link: string): readonly Kept[] {
  try {
    const found: unknown = JSON.parse(store.getItem(key(link)) ?? "[]");
    return Array.isArray(found) ? found.filter(isKept).slice(0, KEPT) : [];
  } catch {
    return [];
  }
}

export function addVerdict(store: Store, link: string, verdict: Kept): readonly Kept[] {
  const all = [verdict, ...readVerdicts(store, link)].slice(0, KEPT);
  try {
    store.setItem(key(link), JSON.stringify(all));
  } catch {
    // A full or forbidden storage keeps nothing; the page still shows the verdicts.
  }
  return all;
}
