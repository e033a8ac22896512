// SPDX-License-Identifier: Apache-2.0
//! The path of one direction as a row of stages: queue, shaper, channel, delay. The configuration
//! is drawn by Preact; figures are written straight into the elements ten times per second.

import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import type { Pipe } from "../gen/linkemu/v1/model_pb";
import { type Flow, aqmName, serving, threshold } from "../model/rates";
import { exactTime, percent, rate, size, time } from "../model/units";

/** Writes text only where it differs. */
export function write(element: Element | null | undefined, text: string): void {
  if (element && element.textContent !== text) element.textContent = text;
}

export function servingText(pipe: Pipe | undefined): string {
  const serves = serving(pipe);
  if (serves === undefined) return "–";
  if (typeof serves === "string") return serves;
  return `${serves.mean ? "≤ " : ""}${rate(serves.at)}`;
}

/** The parts of the delay beside the constant one, in words. */
function delayParts(pipe: Pipe): string[] {
  const { delay } = pipe;
  const parts: string[] = [];
  if (pipe.access) parts.push(`superframe ${time(Number(pipe.access.superframeNs))}`);
  if (delay?.slotNs) parts.push(`slot ${time(Number(delay.slotNs))}`);
  if (delay?.body) parts.push("body");
  if (delay?.excursions.length) parts.push(`${delay.excursions.length} × excursions`);
  if (pipe.reconfiguration) parts.push("reconfiguration");
  if (pipe.pathTrace) parts.push("path trace");
  if (pipe.reorder) parts.push("reordering");
  return parts;
}

/** What the channel loses, in words. */
function lossParts(pipe: Pipe): string[] {
  const parts: string[] = [];
  if (pipe.packetLoss > 0) parts.push(`loss ${percent(pipe.packetLoss)}`);
  if (pipe.gilbertElliott) parts.push("Gilbert-Elliott");
  if (pipe.fourStateLoss) parts.push("4-state loss");
  if (pipe.dropRun) parts.push("drop run");
  for (const outage of pipe.outages) {
    parts.push(`${time(Number(outage.durationNs))} outage per ${duration(outage.intervalNs)}`);
  }
  if (pipe.fade) parts.push("fades");
  return parts.length > 0 ? parts : ["no loss"];
}

function duration(ns: bigint): string {
  const seconds = Number(ns) / 1e9;
  if (seconds >= 5_400) return `${(seconds / 3_600).toFixed(1)} h`;
  if (seconds >= 90) return `${(seconds / 60).toFixed(1)} min`;
  return time(Number(ns));
}

export interface LaneProps {
  way: "forward" | "return";
  pipe: Pipe | undefined;
  /** Gets a function that writes figures. */
  onReady: (show: (flow: Flow) => void) => void;
}

export function Lane({ way, pipe, onReady }: LaneProps): JSX.Element {
  const root = useRef<HTMLOListElement>(null);
  const limit = Number(pipe?.queue?.limitBytes ?? 0n);
  const aqm = threshold(pipe);
  const marker = useRef<HTMLSpanElement>(null);
  useEffect(() => {
    const share = aqm !== undefined && limit > 0 ? aqm / limit : 0;
    marker.current?.style.setProperty("left", `${share * 100}%`);
  }, [aqm, limit]);
  useEffect(() => {
    const list = root.current;
    if (!list) return;
    const find = (name: string): HTMLElement | null => list.querySelector(`[data-part="${name}"]`);
    const parts = { fill: find("fill"), queue: find("queue"), sent: find("sent"), lost: find("lost"), meter: find("meter"), channel: find("channel"), received: find("received"), demand: find("demand") };
    let asked = 0;
    onReady((flow) => {
      const share = limit > 0 ? Math.min(flow.longestBytes / limit, 1) : 0;
      parts.fill?.style.setProperty("transform", `scaleX(${share.toFixed(4)})`);
      const over = aqm !== undefined && flow.longestBytes > aqm ? "over" : "under";
      if (parts.fill && parts.fill.dataset.level !== over) parts.fill.dataset.level = over;
      write(parts.queue, size(flow.longestBytes));
      write(parts.sent, flow.sentBps === undefined ? "–" : rate(flow.sentBps));
      write(parts.received, flow.receivedBps === undefined ? "–" : rate(flow.receivedBps));
      const { demand } = flow;
      write(parts.demand, demand ? `${rate(demand.requestedBps)}, ${rate(demand.assignedBps)}, ${rate(demand.usedBps)}` : "–");
      const outage = (flow.drops?.OUTAGE ?? 0) > 0;
      const loss = (flow.drops?.LOSS ?? 0) > 0;
      const state = outage ? "outage" : loss ? "loss" : "clear";
      if (parts.channel && parts.channel.dataset.state !== state) parts.channel.dataset.state = state;
      write(parts.lost, outage ? "OUTAGE" : loss ? "loses packets" : "clear");
      // Assistive technology is told once a second.
      if (performance.now() - asked > 1_000) {
        asked = performance.now();
        parts.meter?.setAttribute("aria-valuenow", String(Math.round(share * 100)));
        parts.meter?.setAttribute("aria-valuetext", `${size(flow.longestBytes)} of ${size(limit)}`);
      }
    });
  }, [limit, aqm, way]);
  const [from, to] = way === "forward" ? ["servers", "clients"] : ["clients", "servers"];
  return (
    <ol class="lane" ref={root} aria-label={`${way}: ${from} to ${to}`}>
      <li class="host">
        <b>{from}</b>
        <span class="note">offer</span>
        <span class="figure" data-part="received">
          –
        </span>
      </li>
      <li class="stage queue">
        <b>queue</b>
        <div class="meter" data-part="meter" role="meter" aria-label={`longest ${way} queue`} aria-valuemin={0} aria-valuemax={100} aria-valuenow={0}>
          <span class="fill" data-part="fill" />
          <span class="marker" ref={marker} hidden={aqm === undefined} />
        </div>
        <span>
          <span class="figure" data-part="queue">
            –
          </span>{" "}
          of {pipe ? size(limit) : "–"}
        </span>
        <span class="note">
          {aqmName(pipe)}
          {aqm !== undefined && ` above ${size(aqm)}`}
        </span>
      </li>
      <li class="stage">
        <b>rate</b>
        <span>{servingText(pipe)}</span>
        {pipe?.access && (
          <span class="note">
            requested, assigned, used{" "}
            <span class="figure" data-part="demand">
              –
            </span>
          </span>
        )}
        {pipe?.crossTraffic && <span class="note">cross traffic {rate(Number(pipe.crossTraffic.rateBps))}</span>}
      </li>
      <li class="stage channel" data-part="channel" data-state="clear">
        <b>channel</b>
        <span class="figure" data-part="lost">
          –
        </span>
        {pipe && lossParts(pipe).map((part) => <span class="note" key={part}>{part}</span>)}
      </li>
      <li class="stage">
        <b>delay</b>
        <span>{pipe ? exactTime(pipe.delay?.baseNs ?? 0n) : "–"}</span>
        {pipe && delayParts(pipe).map((part) => <span class="note" key={part}>{part}</span>)}
      </li>
      <li class="host">
        <b>{to}</b>
        <span class="note">get</span>
        <span class="figure" data-part="sent">
          –
        </span>
      </li>
    </ol>
  );
}
