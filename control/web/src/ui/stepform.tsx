// SPDX-License-Identifier: Apache-2.0
//! The fields of a step of a scenario. linkd checks the values: "Check" and "Play" show its answer.

import type { TomlTable } from "smol-toml";
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import * as model from "../model/timeline";
import { exactTime, parse } from "../model/units";

const VALUES = [
  ["rate", "rate", "72 Mbit/s"],
  ["delay.base", "delay", "275 ms"],
  ["queue.limit", "queue limit", "36 MB"],
  ["packet_loss", "packet loss", "1 %"],
] as const;
const RAMPED = ["rate", "delay.base", "delay.slot", "queue.limit", "packet_loss"] as const;

export interface StepFormProps {
  step: model.Step;
  profiles: readonly string[];
  onChange: (step: model.Step) => void;
  onRemove: () => void;
}

export function StepForm({ step, profiles, onChange, onRemove }: StepFormProps): JSX.Element {
  const [wrong, setWrong] = useState("");
  const kind = model.kindOf(step);
  const set = (path: string, value: string): void => onChange({ ...step, rest: model.setKey(step.rest, path, value) });
  const field = (path: string, label: string, placeholder = ""): JSX.Element => (
    <label key={path}>
      {label}
      <input value={model.getKey(step.rest, path)} placeholder={placeholder} spellcheck={false} onChange={(event) => set(path, event.currentTarget.value.trim())} />
    </label>
  );
  const choice = (path: string, label: string, values: readonly string[], empty: string): JSX.Element => (
    <label>
      {label}
      <select value={model.getKey(step.rest, path) || empty} onChange={(event) => set(path, event.currentTarget.value)}>
        {values.map((value) => (
          <option key={value} value={value} selected={value === (model.getKey(step.rest, path) || empty)}>
            {value}
          </option>
        ))}
      </select>
    </label>
  );
  const others = (way: string): string[] => {
    const table = step.rest[way];
    const known: string[] = VALUES.map(([path]) => path);
    return typeof table === "object" && table !== null ? model.flat(table as TomlTable).map(([key]) => key).filter((key) => !known.includes(key)) : [];
  };
  return (
    <fieldset class="stepform">
      <legend>Step at {exactTime(step.atNs)}</legend>
      <div class="fields">
        <label>
          at
          <input
            value={exactTime(step.atNs)}
            aria-invalid={wrong !== ""}
            onChange={(event) => {
              const ns = parse("time", event.currentTarget.value);
              setWrong(ns instanceof Error ? ns.message : "");
              if (!(ns instanceof Error)) onChange({ ...step, atNs: ns });
            }}
          />
          {wrong && (
            <span class="wrong" role="alert">
              {wrong}
            </span>
          )}
        </label>
        {field("label", "label")}
        <label>
          kind
          <select value={kind} onChange={(event) => onChange(model.asKind(step, event.currentTarget.value as model.Kind, profiles[0] ?? "transparent"))}>
            {model.KINDS.map((one) => (
              <option key={one} value={one} selected={one === kind}>
                {one}
              </option>
            ))}
          </select>
        </label>
        {kind === "profile" && choice("profile", "profile", profiles, "")}
        {kind === "ramp" && (
          <>
            {choice("ramp.value", "value", RAMPED, "rate")}
            {choice("ramp.direction", "direction", ["both", "forward", "return"], "both")}
            {field("ramp.from", "from (empty: current)")}
            {field("ramp.to", "to")}
            {field("ramp.over", "over")}
            {field("ramp.every", "every")}
            {choice("ramp.law", "law", ["linear", "exponential"], "linear")}
          </>
        )}
      </div>
      {kind === "values" &&
        (["both", "forward", "return"] as const).map((way) => (
          <div key={way}>
            <h3>{way}</h3>
            <div class="fields">{VALUES.map(([path, label, example]) => field(`${way}.${path}`, `${way} ${label}`, example))}</div>
            {others(way).length > 0 && <p class="note">Also changes {others(way).join(", ")}: see the TOML.</p>}
          </div>
        ))}
      <button type="button" class="small" onClick={onRemove}>
        Remove this step
      </button>
    </fieldset>
  );
}
