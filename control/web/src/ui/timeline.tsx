// SPDX-License-Identifier: Apache-2.0
//! Steps as buttons on a line of time. They are dragged, or moved with the arrow keys.

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import * as model from "../model/timeline";
import { exactTime, time } from "../model/units";

/** Rows of the picture, so that steps close to each other do not cover each other. */
const ROWS = 3;
const ROW_PX = 28;

export interface TimelineProps {
  timeline: model.Timeline;
  /** Place of the chosen step in order of time. */
  chosen: number | undefined;
  onChoose: (at: number | undefined) => void;
  onChange: (timeline: model.Timeline, chosen: number | undefined) => void;
  elapsedNs: number | undefined;
}

export function TimelineEditor({ timeline, chosen, onChoose, onChange, elapsedNs }: TimelineProps): JSX.Element {
  const root = useRef<HTMLDivElement>(null);
  /** While a step is dragged: the timeline with it in its new place. */
  const [drag, setDrag] = useState<model.Timeline>();
  const shown = drag ?? timeline;
  const steps = model.sorted(shown.steps);
  const end = timeline.steps.reduce((most, step) => (model.endOf(step) > most ? model.endOf(step) : most), 10_000_000_000n);
  // Space to the right, to drag the last step to.
  const span = (Number(end) * 1.12) as number;
  const grid = model.gridOf(end);
  const share = (ns: number): number => (100 * ns) / span;

  // Positions are set by script: the content security policy allows no style in HTML.
  useEffect(() => {
    const element = root.current;
    if (!element) return;
    for (const child of element.querySelectorAll<HTMLElement>("[data-left]")) {
      child.style.left = `${child.dataset.left}%`;
      if (child.dataset.width) child.style.width = `max(24px, ${child.dataset.width}%)`;
      if (child.dataset.top) child.style.top = `${child.dataset.top}px`;
    }
  });

  const place = (next: model.Timeline, id: number): number => model.sorted(next.steps).findIndex((step) => step.id === id);
  const commit = (next: model.Timeline, id: number): void => {
    const at = place(next, id);
    onChange(next, at);
    // A button that gets another place loses the focus.
    requestAnimationFrame(() => root.current?.querySelectorAll<HTMLElement>(".step")[at]?.focus());
  };

  const key = (event: KeyboardEvent, step: model.Step): void => {
    const many = event.shiftKey ? 10n : 1n;
    const by = { ArrowLeft: -grid * many, ArrowRight: grid * many }[event.key];
    if (by !== undefined) {
      event.preventDefault();
      const next = event.altKey ? model.stretched(timeline, step.id, model.lengthOf(step) + by, grid) : model.moved(timeline, step.id, step.atNs + by, grid);
      commit(next, step.id);
    } else if (event.key === "Delete") {
      event.preventDefault();
      onChange({ ...timeline, steps: timeline.steps.filter(({ id }) => id !== step.id) }, undefined);
    }
  };

  const down = (event: PointerEvent, step: model.Step): void => {
    const target = event.currentTarget as HTMLElement;
    const width = root.current?.clientWidth ?? 1;
    const box = target.getBoundingClientRect();
    // The end of a ramp changes its duration.
    const end_ = model.kindOf(step) === "ramp" && box.right - event.clientX < 10;
    const from = event.clientX;
    let next: model.Timeline | undefined;
    target.setPointerCapture(event.pointerId);
    const move = (moved: PointerEvent): void => {
      const dx = moved.clientX - from;
      if (Math.abs(dx) < 3 && !next) return;
      const ns = BigInt(Math.round((dx / width) * span));
      next = end_ ? model.stretched(timeline, step.id, model.lengthOf(step) + ns, grid) : model.moved(timeline, step.id, step.atNs + ns, grid);
      setDrag(next);
    };
    const up = (): void => {
      target.removeEventListener("pointermove", move);
      setDrag(undefined);
      if (next) commit(next, step.id);
    };
    target.addEventListener("pointermove", move);
    target.addEventListener("pointerup", up, { once: true });
    target.addEventListener("pointercancel", up, { once: true });
  };

  const add = (): void => {
    const step = model.newStep(end, { label: "new step" });
    const next = { ...timeline, steps: [...timeline.steps, step] };
    commit(next, step.id);
  };

  const ticks = [0, 0.25, 0.5, 0.75, 1].map((part) => part * Number(end));
  return (
    <>
      <div class="timeline" ref={root} role="group" aria-label="timeline of the scenario">
        {steps.map((step, at) => {
          const ramp = model.kindOf(step) === "ramp";
          const label = model.labelOf(step) || model.actionOf(step);
          return (
            <button
              key={step.id}
              type="button"
              class={ramp ? "step ramp" : "step"}
              data-left={share(Number(step.atNs))}
              data-width={ramp ? share(Number(model.lengthOf(step))) : undefined}
              data-top={4 + (at % ROWS) * ROW_PX}
              data-at={exactTime(step.atNs)}
              aria-pressed={at === chosen}
              aria-label={`${exactTime(step.atNs)}: ${label}; ${model.actionOf(step)}`}
              onClick={() => onChoose(at)}
              onKeyDown={(event) => key(event, step)}
              onPointerDown={(event) => down(event, step)}
            >
              {label}
            </button>
          );
        })}
        {ticks.map((ns) => (
          <span class={ns === 0 ? "tick first" : "tick"} key={ns} data-left={share(ns)}>
            {time(ns)}
          </span>
        ))}
        {elapsedNs !== undefined && <span class="head" data-left={Math.min(share(elapsedNs), 100)} />}
      </div>
      <p class="note">
        Drag a step, or the right end of a ramp. Keys: ← → move by {exactTime(grid)}, with Shift by ten times as much, with Alt the
        duration of a ramp; Delete removes.
      </p>
      {model.overlaps(shown.steps).map((step) => (
        <p class="wrong" role="alert" key={step.id}>
          "{model.labelOf(step) || model.actionOf(step)}" at {exactTime(step.atNs)} begins before the ramp before it has ended: move one of
          them.
        </p>
      ))}
      <button type="button" onClick={add}>
        Add a step
      </button>
    </>
  );
}
