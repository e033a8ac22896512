// SPDX-License-Identifier: Apache-2.0
//! When a change is made.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { type Moment, readUtc } from "../model/moment";
import { parse, utc } from "../model/units";

/** The instant in the field at first is so long from now. */
const AHEAD_MS = 60_000;

export function When({ onChange }: { onChange: (moment: Moment | Error) => void }): JSX.Element {
  const [kind, setKind] = useState<Moment["kind"]>("now");
  const [after, setAfter] = useState("10 s");
  const [at, setAt] = useState(() => utc(new Date(Date.now() + AHEAD_MS)));
  const [wrong, setWrong] = useState("");
  const take = (next: Moment["kind"], afterText = after, atText = at): void => {
    setKind(next);
    const read = { now: () => ({ kind: "now" }) as const, after: () => readAfter(afterText), at: () => readAt(atText) }[next]();
    const isOver = !(read instanceof Error) && read.kind === "at" && read.utc.getTime() <= Date.now();
    setWrong(read instanceof Error ? read.message : isOver ? "This instant is over: the change would be made at once." : "");
    onChange(read);
  };
  const radio = (of: Moment["kind"], label: string): JSX.Element => (
    <label class="inline">
      <input type="radio" name="when" checked={kind === of} onChange={() => take(of)} /> {label}
    </label>
  );
  return (
    <fieldset class="when">
      <legend>Changes are made</legend>
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
        {radio("at", "at")}
        <input
          aria-label="instant of the change in UTC"
          spellcheck={false}
          size={24}
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

function readAfter(text: string): Moment | Error {
  const ns = parse("time", text);
  return ns instanceof Error ? ns : { kind: "after", ns };
}

function readAt(text: string): Moment | Error {
  const read = readUtc(text);
  return read instanceof Error ? read : { kind: "at", utc: read };
}
