// SPDX-License-Identifier: Apache-2.0
//! Small parts that all views use.

import type { ComponentChildren, JSX } from "preact";
import { useRef, useState } from "preact/hooks";
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

/** Runs requests one at a time, and keeps the error of the last one. */
export function useAction(): {
  busy: boolean;
  error: Failure | undefined;
  run: (action: () => Promise<void>) => Promise<boolean>;
} {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<Failure>();
  const run = async (action: () => Promise<void>): Promise<boolean> => {
    setBusy(true);
    setError(undefined);
    try {
      await action();
      return true;
    } catch (caught) {
      setError(failure(caught));
      return false;
    } finally {
      setBusy(false);
    }
  };
  return { busy, error, run };
}

export interface SliderProps {
  id: string;
  label: string;
  quantity: Quantity;
  value: bigint;
  min: bigint;
  max: bigint;
  /** Largest value of the text field; `max` is that of the slider. */
  most?: bigint;
  /** The current value differs. */
  changed?: boolean;
  onChange: (value: bigint) => void;
  /** Replaces the text for special values, such as "down". */
  special?: { text: string; value: bigint };
  hint?: string;
}

const TICKS = 1000;

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

/** A slider and a text field with a unit for the same value. */
export function Slider(props: SliderProps): JSX.Element {
  const { id, label, quantity, value, min, max, special } = props;
  const [draft, setDraft] = useState<string>();
  const [wrong, setWrong] = useState("");
  const shown = special && value === special.value ? special.text : exactOf(quantity, value);
  const commit = (text: string): void => {
    const parsed = special && text.trim() === special.text ? special.value : parse(quantity, text);
    if (parsed instanceof Error) {
      setWrong(parsed.message);
      return;
    }
    const most = props.most ?? max;
    if (special?.value !== parsed && (parsed < min || parsed > most)) {
      setWrong(`${text} is outside of ${exactOf(quantity, min)} to ${exactOf(quantity, most)}`);
      return;
    }
    setWrong("");
    setDraft(undefined);
    props.onChange(parsed);
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
        value={toTick(value, min, max)}
        aria-label={`${label}, slider`}
        aria-valuetext={shown}
        onInput={(event) => {
          setWrong("");
          setDraft(undefined);
          props.onChange(fromTick(Number(event.currentTarget.value), min, max));
        }}
      />
      <input
        id={`${id}-text`}
        type="text"
        autocomplete="off"
        spellcheck={false}
        value={draft ?? shown}
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
