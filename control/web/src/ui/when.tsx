// SPDX-License-Identifier: Apache-2.0
//! When a change is made.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { Moment } from "../model/moment";
import { parse } from "../model/units";

export function When({ moment, onChange, id }: { moment: Moment; onChange: (moment: Moment) => void; id: string }): JSX.Element {
  const [after, setAfter] = useState("10 s");
  const [at, setAt] = useState(() => new Date(Date.now() + 60_000).toISOString().slice(0, 19));
  const [wrong, setWrong] = useState("");
  const take = (kind: Moment["kind"], afterText = after, atText = at): void => {
    setWrong("");
    if (kind === "now") return onChange({ kind });
    if (kind === "after") {
      const ns = parse("time", afterText);
      if (ns instanceof Error) return setWrong(ns.message);
      return onChange({ kind, ns });
    }
    const utc = new Date(`${atText}Z`);
    if (Number.isNaN(utc.getTime())) return setWrong(`"${atText}" is no date and time`);
    if (utc.getTime() <= Date.now()) setWrong("This instant is over: the change would be made at once.");
    return onChange({ kind, utc });
  };
  const radio = (kind: Moment["kind"], label: string): JSX.Element => (
    <label class="inline">
      <input type="radio" name={id} checked={moment.kind === kind} onChange={() => take(kind)} /> {label}
    </label>
  );
  return (
    <fieldset class="when">
      <legend>Apply</legend>
      {radio("now", "now")}
      <span class="inline">
        {radio("after", "after")}
        <input
          aria-label="time until the change"
          value={after}
          size={8}
          onInput={(event) => {
            setAfter(event.currentTarget.value);
            take("after", event.currentTarget.value);
          }}
        />
      </span>
      <span class="inline">
        {radio("at", "at (UTC)")}
        <input
          type="datetime-local"
          step={1}
          aria-label="instant of the change in UTC"
          value={at}
          onInput={(event) => {
            setAt(event.currentTarget.value);
            take("at", after, event.currentTarget.value);
          }}
        />
      </span>
      {wrong && (
        <span class="wrong" role="alert">
          {wrong}
        </span>
      )}
    </fieldset>
  );
}
