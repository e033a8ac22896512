// SPDX-License-Identifier: Apache-2.0
//! Complementary distribution of the delay of a profile.

import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import type uPlot from "uplot";
import { PipeSchema, type Profile } from "../gen/linkemu/v1/model_pb";
import { create } from "@bufbuild/protobuf";
import { type Curve, exceeded, preview } from "../model/delay";
import { percent } from "../model/units";
import { Table, numeric } from "./parts";
import { Plot } from "./plot";

const LEAST = 1e-5;
const SHOWN = [0.5, 0.05, 0.01, 0.001] as const;

/** The curve at each of the delays; null outside of it. */
function at(delays: readonly number[], curve: Curve): (number | null)[] {
  let i = 0;
  return delays.map((ms) => {
    while (i + 1 < curve.ms.length && curve.ms[i + 1]! <= ms) i += 1;
    if (ms < curve.ms[0]!) return 1;
    const value = curve.above[i]!;
    return value >= LEAST ? value : null;
  });
}

export function Preview({ profile }: { profile: Profile }): JSX.Element {
  const curves = useMemo(() => preview(profile.forwardPipe ?? create(PipeSchema), profile.returnPipe ?? create(PipeSchema)), [profile]);
  const data = useMemo(() => {
    const all = [curves.forward, curves.back, curves.both];
    const delays = [...new Set(all.flatMap((curve) => curve.ms.filter((_, i) => i === 0 || curve.above[i]! >= LEAST)))].sort((a, b) => a - b);
    // A step to the left of each curve, where everything is longer.
    const first = delays[0] ?? 0;
    const left = Math.max(first - Math.max(first * 0.05, 1), 0);
    const last = (delays.at(-1) ?? 1) * 1.05 + 1;
    const points = [left, ...delays, last];
    return [points, ...all.map((curve) => at(points, curve))] as uPlot.AlignedData;
  }, [curves]);
  return (
    <>
      <Plot
        label={`delay of ${profile.name} that is exceeded with a probability; the table has the figures`}
        height={210}
        log
        min={LEAST}
        max={1}
        xLabel="one-way delay and round trip, ms"
        format={(value) => (Math.log10(value) % 1 === 0 ? percent(value) : "")}
        lines={[
          { label: "forward", colour: "forward" },
          { label: "return", colour: "return", dash: [6, 3] },
          { label: "round trip", colour: "both", dash: [2, 3] },
        ]}
        data={data}
      />
      <Table label="delays" caption="Delay without the queue, exceeded by" head={["", ...SHOWN.map((p) => numeric(percent(p)))]}>
        {(["forward", "back", "both"] as const).map((which) => (
          <tr key={which}>
            <th scope="row">{{ forward: "forward", back: "return", both: "round trip" }[which]}</th>
            {SHOWN.map((p) => (
              <td key={p} class="number">
                {exceeded(curves[which], p).toFixed(0)} ms
              </td>
            ))}
          </tr>
        ))}
      </Table>
    </>
  );
}
