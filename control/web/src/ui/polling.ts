// SPDX-License-Identifier: Apache-2.0
//! Reads of a link that are repeated while a view is shown. A stream would take one of the six connections that
//! a browser has to a server.

import { useEffect } from "preact/hooks";

/** Time between two reads. */
export const EVERY_MS = 2_000;

/** Reads now and every two seconds, but not while the page is hidden. `signal` is aborted when the view closes or
 * shows another link; `read` handles its own errors. */
export function usePolling(link: string, read: (signal: AbortSignal) => Promise<void>): void {
  useEffect(() => {
    const stop = new AbortController();
    let timer = 0;
    const turn = async (): Promise<void> => {
      if (!document.hidden) await read(stop.signal);
      if (!stop.signal.aborted) timer = window.setTimeout(() => void turn(), EVERY_MS);
    };
    void turn();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [link]);
}
