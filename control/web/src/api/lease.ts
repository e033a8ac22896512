// SPDX-License-Identifier: Apache-2.0
//! Leases of links, read again every second: a stream would take one of the six connections that a
//! browser has to a server.

import { signal } from "@preact/signals";
import type { Lease } from "../gen/linkemu/v1/lease_pb";
import { api } from "./client";
import { failure } from "./failure";
import { keepToken, tokens } from "./tokens";

const EVERY_MS = 1_000;

export interface LeaseSeen {
  /** Absent: no active lease. */
  lease: Lease | undefined;
  /** The lease of this page has ended without its doing. */
  isLost: boolean;
}

export const leases = signal<ReadonlyMap<string, LeaseSeen>>(new Map());

/** Grows with each change by this page: an answer to an earlier request is stale. */
let changes = 0;

function show(link: string, seen: LeaseSeen): void {
  leases.value = new Map(leases.peek()).set(link, seen);
}

/** Notes a lease with its token; without a lease, that it has ended. */
export function hold(link: string, lease: Lease | undefined, token: string | undefined): void {
  changes += 1;
  keepToken(link, token);
  show(link, { lease, isLost: false });
}

async function read(link: string): Promise<void> {
  const before = changes;
  let lease: Lease | undefined;
  try {
    lease = await api.leases.getLease({ link });
  } catch (error) {
    // Without an answer the last one stays; the banner says that there are no news.
    if (failure(error).code !== "not_found") return;
  }
  if (before !== changes) return;
  const known = leases.peek().get(link);
  const acquired = (of: Lease | undefined): string => `${of?.acquired?.seconds}.${of?.acquired?.nanos} ${of?.holder}`;
  const isEnded = tokens.peek().has(link) && acquired(lease) !== acquired(known?.lease);
  if (isEnded) keepToken(link, undefined);
  show(link, { lease, isLost: isEnded || (known?.isLost === true && lease === undefined) });
}

/** Reads the lease of a link until the returned function is called. */
export function watchLease(link: string): () => void {
  let timer = 0;
  let isOver = false;
  const again = async (): Promise<void> => {
    if (!document.hidden) await read(link);
    if (!isOver) timer = window.setTimeout(() => void again(), EVERY_MS);
  };
  void again();
  return () => {
    isOver = true;
    clearTimeout(timer);
  };
}
