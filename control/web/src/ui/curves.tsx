// SPDX-License-Identifier: Apache-2.0
//! The rate and the packet loss of a scenario over time.

import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import type { Profile } from "../gen/linkemu/v1/model_pb";
import { columns, curves } from "../model/curve";
import { percent, rate, time } from "../model/units";
import { Plot } from "./plot";

/** The least loss of the logarithmic axis: none is shown there. */
const LEAST = 1e-6;

const LINES = [
  { label: "forward", colour: "forward" },
  { label: "return", colour: "return", dash: [6, 3] },
];
const AXIS = { height: 210, stepped: true, xLabel: "time from the start", formatX: (seconds: number): string => time(seconds * 1e9), lines: LINES };

interface CurvesProps {
  toml: string;
  /** The link at its start. */
  link: Profile | undefined;
  profiles: readonly Profile[];
}

export function Curves({ toml, link, profiles }: CurvesProps): JSX.Element {
  const found = useMemo(() => curves(toml, link, new Map(profiles.map((one) => [one.name, one]))), [toml, link, profiles]);
  const rates = useMemo(() => (found instanceof Error ? undefined : columns(found, (point) => point.rate)), [found]);
  const losses = useMemo(() => (found instanceof Error ? undefined : columns(found, (point) => Math.max(point.loss, LEAST))), [found]);
  if (found instanceof Error || !rates || !losses) {
    return (
      <p class="note" role="status">
        No curves: {found instanceof Error ? found.message : ""}.
      </p>
    );
  }
  const isLossless = [...losses[1], ...losses[2]].every((loss) => loss === LEAST);
  const isUnlimited = [...rates[1], ...rates[2]].includes(null);
  return (
    <div data-curves={found.steps} data-length={found.endNs}>
      <div class="plots">
        <Plot {...AXIS} label="rate of the scenario over time, forward and return" format={rate} data={rates} />
        {!isLossless && (
          <Plot
            {...AXIS}
            label="packet loss of the scenario over time, forward and return"
            log
            min={LEAST}
            max={1}
            format={(loss) => (loss <= LEAST ? "none" : Math.log10(loss) % 1 === 0 ? percent(loss) : "")}
            data={losses}
          />
        )}
      </div>
      <p class="note">
        {isLossless && "It sets no packet loss. "}
        {isUnlimited && "Where there is no line, the rate is unlimited. "}
        {found.hasWaits && "Waits for events are drawn as if they took no time. "}
        {found.isCut && `Drawn up to ${time(found.endNs)}. `}
        Without outages, bursts of loss and drops of the queue.
      </p>
    </div>
  );
}
