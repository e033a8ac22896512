// SPDX-License-Identifier: Apache-2.0
//! Sliders for the values of one direction. Their ranges are those of the schema, cut to what a
//! slider can show; the text field takes all of the schema's range.

import type { JSX } from "preact";
import type { Pipe } from "../gen/linkemu/v1/model_pb";
import type { Values } from "../model/command";
import { serving } from "../model/rates";
import { LIMITS } from "../model/schema";
import { parsePercent, percent } from "../model/units";
import { Scale, Slider, TICKS } from "./parts";

export function PipeForm({ way, pipe, values, onChange }: { way: "forward" | "return"; pipe: Pipe; values: Values; onChange: (values: Values) => void }): JSX.Element {
  const set = (change: Values): void => {
    const next = { ...values, ...change };
    // A value that is the current one is no change.
    if (next.rateBps !== undefined && next.rateBps === (pipe.rateTrace ? undefined : (pipe.rateBps ?? "unlimited"))) delete next.rateBps;
    if (next.baseNs === (pipe.delay?.baseNs ?? 0n)) delete next.baseNs;
    if (next.slotNs === (pipe.delay?.slotNs ?? 0n)) delete next.slotNs;
    if (next.limitBytes === (pipe.queue?.limitBytes ?? 0n)) delete next.limitBytes;
    if (next.packetLoss === pipe.packetLoss) delete next.packetLoss;
    onChange(next);
  };
  const serves = serving(pipe);
  const rate = values.rateBps ?? pipe.rateBps ?? "unlimited";
  const shown = typeof rate === "bigint" ? rate : LIMITS.rate.sliderMax;
  return (
    <fieldset class="pipe">
      <legend>{way === "forward" ? "Forward, towards the clients" : "Return, from the clients"}</legend>
      <Slider
        id={`${way}-rate`}
        label="rate"
        quantity="rate"
        value={shown}
        min={LIMITS.rate.min}
        max={LIMITS.rate.sliderMax > shown ? LIMITS.rate.sliderMax : shown}
        most={LIMITS.rate.max}
        changed={values.rateBps !== undefined}
        special={rate === "unlimited" ? { text: "unlimited", value: shown } : { text: "down", value: 0n }}
        onChange={(rateBps) => set({ rateBps })}
        {...(pipe.rateTrace ? { hint: "currently a trace; a constant rate replaces it" } : {})}
        {...(typeof serves === "object" && serves.mean && !pipe.rateTrace ? { hint: "the peak: it varies" } : {})}
      />
      <div class="quick" role="group" aria-label={`${way} rate`}>
        <button type="button" class="small" disabled={typeof rate !== "bigint" || rate < 2n * LIMITS.rate.min} onClick={() => typeof rate === "bigint" && set({ rateBps: rate / 2n })}>
          halve
        </button>
        <button type="button" class="small" disabled={typeof rate !== "bigint" || rate === 0n} onClick={() => typeof rate === "bigint" && set({ rateBps: rate * 2n })}>
          double
        </button>
        <button type="button" class="small" onClick={() => set({ rateBps: 0n })}>
          down
        </button>
        <button type="button" class="small" onClick={() => set({ rateBps: "unlimited" })}>
          unlimited
        </button>
      </div>
      <Slider
        id={`${way}-delay`}
        label="delay"
        quantity="time"
        value={values.baseNs ?? pipe.delay?.baseNs ?? 0n}
        min={LIMITS.delay.min}
        max={LIMITS.delay.sliderMax}
        most={LIMITS.delay.max}
        changed={values.baseNs !== undefined}
        onChange={(baseNs) => set({ baseNs })}
      />
      <Slider
        id={`${way}-slot`}
        label="slot"
        quantity="time"
        value={values.slotNs ?? pipe.delay?.slotNs ?? 0n}
        min={LIMITS.slot.min}
        max={LIMITS.slot.sliderMax}
        most={LIMITS.slot.max}
        changed={values.slotNs !== undefined}
        onChange={(slotNs) => set({ slotNs })}
      />
      <Slider
        id={`${way}-queue`}
        label="queue limit"
        quantity="size"
        value={values.limitBytes ?? pipe.queue?.limitBytes ?? 0n}
        min={LIMITS.queue.min}
        max={LIMITS.queue.sliderMax}
        most={LIMITS.queue.max}
        changed={values.limitBytes !== undefined}
        onChange={(limitBytes) => set({ limitBytes })}
      />
      <Loss way={way} value={values.packetLoss ?? pipe.packetLoss} changed={values.packetLoss !== undefined} onChange={(packetLoss) => set({ packetLoss })} />
    </fieldset>
  );
}

/** The least loss above zero of the slider. */
const LEAST = 1e-6;

function Loss({ way, ...rest }: { way: string; value: number; changed: boolean; onChange: (value: number) => void }): JSX.Element {
  const { value } = rest;
  return (
    <Scale
      {...rest}
      id={`${way}-loss`}
      label="packet loss"
      text={percent(value)}
      read={parsePercent}
      tick={value <= LEAST ? 0 : Math.round(TICKS * (1 - Math.log(value) / Math.log(LEAST)))}
      at={(tick) => (tick === 0 ? 0 : Number((LEAST ** (1 - tick / TICKS)).toPrecision(2)))}
    />
  );
}
