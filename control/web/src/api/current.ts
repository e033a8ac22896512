// SPDX-License-Identifier: Apache-2.0
//! The current link of each link's name, read again when its generation changes, and the ones
//! before, to return to.

import { effect, signal } from "@preact/signals";
import type { Link } from "../gen/linkemu/v1/linkemu_pb";
import { api } from "./client";
import { failure } from "./failure";
import { generations } from "./feed";

/** Earlier configurations of a link that are kept. */
const KEPT = 20;

export interface Current {
  link: Link | undefined;
  /** The ones before, the latest first. */
  before: readonly Link[];
  /** Why it could not be read. */
  why: string;
}

const NONE: Current = { link: undefined, before: [], why: "" };

export const current = signal<ReadonlyMap<string, Current>>(new Map());

export const currentOf = (name: string): Current => current.value.get(name) ?? NONE;

const reading = new Set<string>();

/** Notes a configuration; the one before is kept if the generation changed. */
export function note(name: string, link: Link): void {
  const known = currentOf(name);
  const [old, now] = [known.link?.applied?.generation, link.applied?.generation];
  const changed = known.link !== undefined && old !== now;
  const before = changed && known.link ? [known.link, ...known.before].slice(0, KEPT) : known.before;
  current.value = new Map(current.value).set(name, { link, before, why: "" });
}

async function read(name: string): Promise<void> {
  if (reading.has(name)) return;
  reading.add(name);
  try {
    note(name, await api.linkemu.getLink({ name }));
  } catch (error) {
    const known = current.peek().get(name) ?? NONE;
    current.value = new Map(current.peek()).set(name, { ...known, why: failure(error).message });
  } finally {
    reading.delete(name);
  }
  // It may have changed meanwhile.
  const [now, read_] = [generations.peek().get(name), current.peek().get(name)?.link?.applied?.generation];
  if (now !== undefined && read_ !== undefined && now > read_) await read(name);
}

/** Keeps `current` up to date with the feed. */
export function keepCurrent(): () => void {
  return effect(() => {
    for (const [name, generation] of generations.value) {
      if (current.peek().get(name)?.link?.applied?.generation !== generation) void read(name);
    }
    const gone = [...current.peek().keys()].filter((name) => !generations.value.has(name));
    if (gone.length > 0) {
      const left = new Map(current.peek());
      for (const name of gone) left.delete(name);
      current.value = left;
    }
  });
}
