// SPDX-License-Identifier: Apache-2.0
//! Small parts that all views use.

import type { ComponentChildren, JSX, Ref } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { type Failure, failure } from "../api/failure";
import { tokens } from "../api/tokens";
import { type Quantity, exactOf, parse } from "../model/units";
import { route } from "./route";

/** The equivalent command, with a button that copies it. */
export function Command({ text, note }: { text: string | readonly string[]; note?: string }): JSX.Element {
  const [copied, setCopied] = useState("");
  const code = useRef<HTMLElement>(null);
  const lines = typeof text === "string" ? [text] : text;
  const whole = lines.join("\n");
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(whole);
      setCopied("copied");
    } catch {
      // Without a secure context there is no clipboard: the text is selected.
      if (code.current) getSelection()?.selectAllChildren(code.current);
      setCopied("selected: copy it with the keyboard");
    }
  };
  return (
    <div class="command">
      <code ref={code} data-command={whole} tabIndex={0} role="textbox" aria-readonly="true" aria-multiline="true" aria-label="equivalent command">
        {lines.map((line) => (
          <span key={line}>{line}</span>
        ))}
      </code>
      <button type="button" class="small" onClick={() => void copy()} aria-label="Copy the command">
        Copy
      </button>
      <span class="note" role="status">
        {copied}
      </span>
      {note && <span class="note">{note}</span>}
      {tokens.value.has(route.value.link) && <span class="note">with the token of the lease in LINKEMU_LEASE</span>}
    </div>
  );
}

/** An error of the API: its text, which names the remedy, and the refused fields. */
export function Refusal({ of }: { of: Failure | undefined }): JSX.Element | null {
  if (!of) return null;
  return (
    <div class="refusal" role="alert">
      <p>
        <strong>Refused ({of.code}):</strong> {of.message}
      </p>
      {of.fields.length > 0 && (
        <ul>
          {of.fields.map((one) => (
            <li key={one.field}>
              <code>{one.field}</code>: {one.message}
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

export interface Action {
  busy: boolean;
  error: Failure | undefined;
  /** What the last action has done, if it says so. */
  done: string;
  run: (action: () => Promise<string | void>) => Promise<boolean>;
}

/** Runs requests one at a time, and keeps the outcome of the last one only. */
export function useAction(): Action {
  const [busy, setBusy] = useState(false);
  const [{ error, done }, setOutcome] = useState<{ error?: Failure; done: string }>({ done: "" });
  const run = async (action: () => Promise<string | void>): Promise<boolean> => {
    setBusy(true);
    setOutcome({ done: "" });
    try {
      setOutcome({ done: (await action()) ?? "" });
      return true;
    } catch (caught) {
      setOutcome({ done: "", error: failure(caught) });
      return false;
    } finally {
      setBusy(false);
    }
  };
  return { busy, error, done, run };
}

/** What an action has done, or why it was refused; never both. */
export function Outcome({ of }: { of: Pick<Action, "error" | "done"> }): JSX.Element {
  return (
    <>
      <p role="status" class="done">
        {of.done}
      </p>
      <Refusal of={of.error} />
    </>
  );
}

interface Valued<T> {
  id: string;
  label: string;
  value: T;
  /** The current value differs. */
  changed?: boolean;
  onChange: (value: T) => void;
  hint?: string;
}

export interface ScaleProps<T> extends Valued<T> {
  text: string;
  /** Reads a text; the error says what is accepted. */
  read: (text: string) => T | Error;
  /** From 0 to TICKS, and back. */
  tick: number;
  at: (tick: number) => T;
}

export const TICKS = 1000;

/** A slider and a text field for the same value. */
export function Scale<T extends bigint | number>(props: ScaleProps<T>): JSX.Element {
  const { id, label } = props;
  const [draft, setDraft] = useState<string>();
  const [wrong, setWrong] = useState("");
  const take = (value: T): void => {
    setWrong("");
    setDraft(undefined);
    props.onChange(value);
  };
  const commit = (text: string): void => {
    const value = props.read(text);
    if (value instanceof Error) setWrong(value.message);
    else take(value);
  };
  return (
    <div class={props.changed ? "slider changed" : "slider"}>
      <label for={`${id}-text`}>
        {label}
        {props.changed && <span class="mark"> changed</span>}
      </label>
      <input
        id={`${id}-range`}
        type="range"
        min={0}
        max={TICKS}
        value={props.tick}
        aria-label={`${label}, slider`}
        aria-valuetext={props.text}
        onInput={(event) => take(props.at(Number(event.currentTarget.value)))}
      />
      <input
        id={`${id}-text`}
        type="text"
        autocomplete="off"
        spellcheck={false}
        value={draft ?? props.text}
        aria-invalid={wrong !== ""}
        aria-describedby={wrong ? `${id}-wrong` : undefined}
        onInput={(event) => setDraft(event.currentTarget.value)}
        onChange={(event) => commit(event.currentTarget.value)}
      />
      {props.hint && <span class="note">{props.hint}</span>}
      {wrong && (
        <span class="wrong" id={`${id}-wrong`} role="alert">
          {wrong}
        </span>
      )}
    </div>
  );
}

export interface SliderProps extends Valued<bigint> {
  quantity: Quantity;
  min: bigint;
  max: bigint;
  /** Largest value of the text field; `max` is that of the slider. */
  most?: bigint;
  /** Replaces the text for special values, such as "down". */
  special?: { text: string; value: bigint };
}

/** From 0 to TICKS on a logarithmic scale; zero, if allowed, is at the lower end. */
export function toTick(value: bigint, min: bigint, max: bigint): number {
  const low = Math.max(Number(min), floor(max));
  if (Number(value) <= low) return 0;
  return Math.round((TICKS * Math.log(Number(value) / low)) / Math.log(Number(max) / low));
}

/** The value of a tick, rounded to three digits. */
export function fromTick(tick: number, min: bigint, max: bigint): bigint {
  if (tick <= 0) return min;
  if (tick >= TICKS) return max;
  const low = Math.max(Number(min), floor(max));
  const value = low * (Number(max) / low) ** (tick / TICKS);
  const scale = 10 ** Math.max(Math.floor(Math.log10(value)) - 2, 0);
  const rounded = BigInt(Math.round(value / scale)) * BigInt(scale);
  return rounded < min ? min : rounded > max ? max : rounded;
}

/** The least value above zero of a scale: five decades. */
function floor(max: bigint): number {
  return Math.max(Number(max) / 1e5, 1);
}

/** A quantity with its unit, on a logarithmic scale. */
export function Slider({ quantity, min, max, most = max, special, ...rest }: SliderProps): JSX.Element {
  const read = (text: string): bigint | Error => {
    if (special && text.trim() === special.text) return special.value;
    const value = parse(quantity, text);
    if (value instanceof Error || value === special?.value || (value >= min && value <= most)) return value;
    return new Error(`${text} is outside of ${exactOf(quantity, min)} to ${exactOf(quantity, most)}`);
  };
  const text = special && rest.value === special.value ? special.text : exactOf(quantity, rest.value);
  return <Scale {...rest} text={text} read={read} tick={toTick(rest.value, min, max)} at={(tick) => fromTick(tick, min, max)} />;
}

type Head = string | { text: string; class: string };

/** The head of a column with numbers. */
export const numeric = (text: string): Head => ({ text, class: "number" });

export interface TableProps {
  /** Of the region that scrolls on small screens. */
  label: string;
  head: readonly Head[];
  caption?: string;
  class?: string;
  tall?: boolean;
  body?: Ref<HTMLTableSectionElement>;
  children: ComponentChildren;
}

/** Columns that fit beside each other on a phone. Rows of wider tables are stacked there, by the style sheet. */
const PHONE_COLUMNS = 3;

export function Table({ label, head, caption, tall, body, children, ...rest }: TableProps): JSX.Element {
  const root = useRef<HTMLDivElement>(null);
  const texts = head.map((one) => (typeof one === "string" ? one : one.text));
  const isStacked = head.length > PHONE_COLUMNS;
  // The head of its column, for a cell in a stack.
  useLayoutEffect(() => {
    if (!isStacked) return;
    for (const row of root.current?.querySelectorAll("tbody tr") ?? []) {
      Array.from(row.children).forEach((cell, at) => {
        const text = texts[at] ?? "";
        if (cell instanceof HTMLElement && cell.dataset.label !== text) cell.dataset.label = text;
      });
    }
  });
  return (
    <div ref={root} class={tall ? "scroll tall" : "scroll"} tabIndex={0} role="region" aria-label={label}>
      <table class={[rest.class, isStacked && "stack"].filter(Boolean).join(" ")}>
        {caption && <caption>{caption}</caption>}
        <thead>
          <tr>
            {head.map((one, at) => {
              const text = texts[at];
              return text === "" ? (
                <td key={text} />
              ) : (
                <th scope="col" class={typeof one === "string" ? undefined : one.class} key={text}>
                  {text}
                </th>
              );
            })}
          </tr>
        </thead>
        <tbody {...(body ? { ref: body } : {})}>{children}</tbody>
      </table>
    </div>
  );
}

export function Section({ title, children, id }: { title: string; children: ComponentChildren; id?: string }): JSX.Element {
  return (
    <section aria-labelledby={id ?? title.replaceAll(" ", "-")}>
      <h2 id={id ?? title.replaceAll(" ", "-")}>{title}</h2>
      {children}
    </section>
  );
}

/** Saves bytes as a file of the browser. */
export function save(name: string, type: string, content: BlobPart | Blob): void {
  const url = URL.createObjectURL(new Blob([content], { type }));
  const anchor = document.createElement("a");
  anchor.href = url;
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
