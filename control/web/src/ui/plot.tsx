// SPDX-License-Identifier: Apache-2.0
//! uPlot in a component. It is as wide as its place, and has the colours of the style sheet.

import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";

/** A colour of the style sheet, for a canvas. */
export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

export interface Line {
  label: string;
  /** Custom property of the style sheet. */
  colour: string;
  dash?: number[];
  /** In pixels. */
  width?: number;
}

export interface PlotProps {
  lines: readonly Line[];
  height: number;
  /** What the picture shows, for people who do not see it. */
  label: string;
  /** Length of the x axis, which ends at the last point; else it has all points. */
  window?: number;
  log?: boolean;
  /** Each value holds until the next. */
  stepped?: boolean;
  xLabel?: string;
  format: (value: number) => string;
  formatX?: (value: number) => string;
  min?: number;
  max?: number;
  data?: uPlot.AlignedData;
  /** Gets a function that draws new columns, for data that changes often. */
  onReady?: (draw: (data: uPlot.AlignedData) => void) => void;
}

export function Plot(props: PlotProps): JSX.Element {
  const place = useRef<HTMLDivElement>(null);
  const draw = useRef<(data: uPlot.AlignedData) => void>();
  useEffect(() => {
    const root = place.current;
    if (!root) return undefined;
    let data: uPlot.AlignedData | undefined;
    let plot: uPlot | undefined;
    const make = (): void => {
      plot?.destroy();
      plot = new uPlot(options(props, root.clientWidth), data ?? [[], ...props.lines.map(() => [])], root);
    };
    make();
    draw.current = (next) => {
      data = next;
      plot?.setData(next);
    };
    props.onReady?.(draw.current);
    const resize = new ResizeObserver(() => plot?.setSize({ width: root.clientWidth, height: props.height }));
    resize.observe(root);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", make);
    return () => {
      scheme.removeEventListener("change", make);
      resize.disconnect();
      plot?.destroy();
    };
    // The lines of a plot do not change.
  }, []);
  useEffect(() => {
    if (props.data) draw.current?.(props.data);
  }, [props.data]);
  return (
    <figure class="plot">
      <div ref={place} role="img" aria-label={props.label} />
    </figure>
  );
}

const stepped = uPlot.paths.stepped?.({ align: 1 }) ?? (() => null);

function options(props: PlotProps, width: number): uPlot.Options {
  const axis = {
    stroke: colour("text"),
    grid: { stroke: colour("grid"), width: 1 },
    ticks: { stroke: colour("grid"), width: 1 },
    font: "12px system-ui, sans-serif",
  };
  const scaleY: uPlot.Scale = props.log ? { distr: 3 } : {};
  if (props.min !== undefined || props.max !== undefined) {
    scaleY.range = (_, low, high) => [props.min ?? low, props.max ?? Math.max(high, 1)];
  } else if (!props.log) {
    scaleY.range = (_, __, high) => [0, Math.max(high * 1.1, 1)];
  }
  const scaleX: uPlot.Scale = { time: false };
  const { window } = props;
  if (window !== undefined) scaleX.range = (_, __, last) => [last - window, last];
  const x: uPlot.Axis = { ...axis };
  if (props.formatX) {
    const { formatX } = props;
    x.values = (_, ticks) => ticks.map(formatX);
  }
  if (props.xLabel) {
    Object.assign(x, { label: props.xLabel, labelSize: 20, labelFont: "12px system-ui, sans-serif" });
  }
  return {
    width,
    height: props.height,
    scales: { x: scaleX, y: scaleY },
    axes: [x, { ...axis, size: 92, values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : props.format(tick))) }],
    series: [
      { label: props.xLabel ?? "UTC" },
      ...props.lines.map((line) => ({
        label: line.label,
        stroke: colour(line.colour),
        width: line.width ?? 2,
        ...(line.dash ? { dash: line.dash } : {}),
        points: { show: false },
        ...(props.stepped ? { paths: stepped } : {}),
        value: (_: uPlot, value: number | null) => (value === null ? "–" : props.format(value)),
      })),
    ],
    legend: { live: false },
    cursor: { show: false },
  };
}
