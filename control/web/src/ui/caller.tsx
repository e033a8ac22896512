// SPDX-License-Identifier: Apache-2.0
//! Who the page is to linkd, and the end of the session.

import type { JSX } from "preact";
import { timestampDate } from "@bufbuild/protobuf/wkt";
import { useEffect, useState } from "preact/hooks";
import { api } from "../api/client";
import { health } from "../api/feed";
import { type Failure, failure } from "../api/failure";
import type { GetCallerResponse } from "../gen/linkemu/v1/web_pb";
import { utc } from "../model/units";

export function Caller(): JSX.Element | null {
  const [caller, setCaller] = useState<GetCallerResponse>();
  const [error, setError] = useState<Failure>();
  const { state } = health.value;
  useEffect(() => {
    if (state !== "live") return;
    // It is of no use without an answer; errors of the connection are shown above.
    api.web.getCaller({}).then(setCaller, () => setCaller(undefined));
  }, [state]);
  if (!caller) return null;
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
      {caller.name}, {caller.role}
      {caller.role === "viewer" && " (changes nothing)"}
      {caller.sessionExpires && (
        <>
          , until <time>{utc(timestampDate(caller.sessionExpires))}</time>{" "}
          <button type="button" class="small" onClick={() => void leave()}>
            Log out
          </button>
        </>
      )}
      {error && <span role="alert"> {error.message}</span>}
    </span>
  );
}
