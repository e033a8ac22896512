// SPDX-License-Identifier: Apache-2.0
//! Who the page is to linkd, and the end of the session.

import type { JSX } from "preact";
import { timestampDate } from "@bufbuild/protobuf/wkt";
import { useEffect, useState } from "preact/hooks";
import { caller, readCaller } from "../api/caller";
import { health } from "../api/feed";
import { type Failure, failure } from "../api/failure";
import { utc } from "../model/units";

const RETRY_MS = 2_000;

export function Caller(): JSX.Element | null {
  const [error, setError] = useState<Failure>();
  const { state } = health.value;
  useEffect(() => {
    if (state !== "live") return undefined;
    let timer = 0;
    // Errors of the connection are shown above.
    const read = (): void => void readCaller().catch(() => (timer = window.setTimeout(read, RETRY_MS)));
    read();
    return () => clearTimeout(timer);
  }, [state]);
  const known = caller.value;
  if (!known) return null;
  const leave = async (): Promise<void> => {
    try {
      const answer = await fetch("/logout", { method: "POST", headers: { "Content-Type": "application/json" }, body: "{}" });
      if (!answer.ok) throw new Error(`linkd answered ${answer.status}`);
      location.reload();
    } catch (caught) {
      setError(failure(caught));
    }
  };
  return (
    <span class="caller">
      {known.name}, {known.role}
      {known.role === "viewer" && " (changes nothing)"}
      {known.sessionExpires && (
        <>
          , until <time>{utc(timestampDate(known.sessionExpires))}</time>{" "}
          <button type="button" class="small" onClick={() => void leave()}>
            Log out
          </button>
        </>
      )}
      {error && <span role="alert"> {error.message}</span>}
    </span>
  );
}
