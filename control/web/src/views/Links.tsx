// SPDX-License-Identifier: Apache-2.0
//! All links, and the path of the chosen one.

import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { currentOf } from "../api/current";
import { type Seen, names, recall, seen, subscribe } from "../api/feed";
import { KINDS, type Flow, contribution, drops as dropSums } from "../model/rates";
import { linkId, top } from "../model/command";
import { count, rate, size, time } from "../model/units";
import { Lane, servingText, write } from "../ui/lane";
import { State } from "../ui/state";
import { Command, Section, Table, numeric } from "../ui/parts";
import { Plot, colour } from "../ui/plot";
import { go, route } from "../ui/route";

const seconds = (at: number): string => new Date(at * 1e3).toISOString().slice(11, 19);

/** Sparklines are drawn this often; figures with each news. */
const SPARK_MS = 500;
/** Width of a sparkline, and the space between its points, in pixels. */
const SPARK_PX = 190;
const SPARK_STEP_PX = 2;
/** Links of which linkd is asked for the last minute at a time: a browser has six connections. */
const RECALLED = 3;

export function Links(): JSX.Element {
  const chosen = names.value.includes(route.value.link) ? route.value.link : names.value[0];
  return (
    <>
      <Section title="All links">
        <List chosen={chosen} />
      </Section>
      {chosen && <Detail key={chosen} name={chosen} />}
    </>
  );
}

function List({ chosen }: { chosen: string | undefined }): JSX.Element {
  const body = useRef<HTMLTableSectionElement>(null);
  useEffect(() => {
    const rows = new Map<string, RowWriter>();
    const seenBy = new Map<Element, (isSeen: boolean) => void>();
    const watch = new IntersectionObserver((changes) => {
      for (const { target, isIntersecting } of changes) seenBy.get(target)?.(isIntersecting);
    });
    let sparks = 0;
    const end = subscribe(() => {
      const table = body.current;
      if (!table) return;
      const now = performance.now();
      const paint = now - sparks >= SPARK_MS ? palette() : undefined;
      if (paint) sparks = now;
      let asked = 0;
      for (const [name, entry] of seen) {
        let writer = rows.get(name);
        if (!writer || !writer.row.isConnected) {
          const row = table.querySelector<HTMLElement>(`[data-link="${CSS.escape(name)}"]`);
          if (!row) continue;
          writer = new RowWriter(row, watch, seenBy);
          rows.set(name, writer);
        }
        writer.show(name, entry, paint);
        // The chosen link asks for itself.
        if (paint && asked < RECALLED && name !== route.value.link && writer.isSeen && entry.history.gap?.isAsked === false) {
          asked += 1;
          void recall(name);
        }
      }
    });
    return () => {
      end();
      watch.disconnect();
    };
  }, []);
  const move = (event: KeyboardEvent, at: number): void => {
    const step = { ArrowDown: 1, ArrowUp: -1, Home: -at, End: names.value.length - 1 - at }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const next = names.value[Math.min(Math.max(at + step, 0), names.value.length - 1)];
    if (!next) return;
    go({ link: next });
    body.current?.querySelector<HTMLElement>(`[data-link="${CSS.escape(next)}"] a`)?.focus();
  };
  return (
    <Table label="all links" class="links" body={body} head={["link", "profile", { text: "path", class: "wide" }, ...["forward", "return", "adds to RTT", "drops/s"].map(numeric)]}>
      {names.value.map((name, at) => {
        const { link } = currentOf(name);
        const profile = link?.profile;
        return (
          <tr key={name} data-link={name} aria-selected={name === chosen} class={name === chosen ? "chosen" : ""}>
            <th scope="row">
              <a
                href={`#/links?link=${encodeURIComponent(name)}`}
                aria-current={name === chosen ? "true" : undefined}
                onKeyDown={(event) => move(event, at)}
              >
                {linkId(name)}
              </a>
            </th>
            <td>{profile?.name ?? "–"}</td>
            <td class="wide">
              <canvas width={260} height={34} data-cell="path" aria-hidden="true" />
            </td>
            <td class="number figure" data-cell="forward" title={servingText(profile?.forwardPipe)}>
              –
            </td>
            <td class="number figure" data-cell="return" title={servingText(profile?.returnPipe)}>
              –
            </td>
            <td class="number figure" data-cell="rtt">
              –
            </td>
            <td class="number figure" data-cell="drops">
              –
            </td>
          </tr>
        );
      })}
    </Table>
  );
}

/** Colours of the sparklines, read once for all of them. */
type Palette = Record<"forward" | "back" | "muted" | "grid" | "bad", string>;

function palette(): Palette {
  const [forward, back, muted, grid, bad] = ["forward", "return", "muted", "grid", "bad"].map(colour) as [string, string, string, string, string];
  return { forward, back, muted, grid, bad };
}

const dropping = (flow: Flow): number | undefined =>
  flow.drops ? KINDS.reduce((sum, kind) => sum + (flow.drops?.[kind] ?? 0), 0) : undefined;

function added(name: string, entry: Seen): string {
  const profile = currentOf(name).link?.profile;
  if (!profile) return "–";
  const { baseNs, forwardQueueNs, returnQueueNs } = contribution(profile.forwardPipe, profile.returnPipe, entry.row);
  const sum = baseNs + (forwardQueueNs ?? 0) + (returnQueueNs ?? 0);
  return Number.isFinite(sum) ? time(sum) : "down";
}

/** Writes the figures of one row. */
class RowWriter {
  private readonly cells: Map<string, HTMLElement>;
  /** The row is on the screen. */
  isSeen = true;

  constructor(
    readonly row: HTMLElement,
    watch: IntersectionObserver,
    seenBy: Map<Element, (isSeen: boolean) => void>,
  ) {
    seenBy.set(row, (isSeen) => (this.isSeen = isSeen));
    watch.observe(row);
    const cells = row.querySelectorAll<HTMLElement>("[data-cell]");
    this.cells = new Map(Array.from(cells, (cell) => [cell.dataset.cell ?? "", cell]));
  }

  show(name: string, entry: Seen, paint: Palette | undefined): void {
    const { forward, back } = entry.row;
    write(this.cells.get("forward"), forward.sentBps === undefined ? "–" : rate(forward.sentBps));
    write(this.cells.get("return"), back.sentBps === undefined ? "–" : rate(back.sentBps));
    write(this.cells.get("rtt"), added(name, entry));
    const [f, b] = [dropping(forward), dropping(back)];
    write(this.cells.get("drops"), f === undefined || b === undefined ? "–" : count(Math.round(f + b)));
    if (paint) this.draw(name, entry, paint);
  }

  /** hosts – queue, last minute – hosts, forward above, return below. */
  private draw(name: string, { row, history }: Seen, paint: Palette): void {
    const canvas = this.cells.get("path");
    if (!(canvas instanceof HTMLCanvasElement) || !this.isSeen) return;
    const context = canvas.getContext("2d");
    if (!context) return;
    const profile = currentOf(name).link?.profile;
    context.clearRect(0, 0, canvas.width, canvas.height);
    const lanes = [
      { y: 2, flow: row.forward, pipe: profile?.forwardPipe, values: history.forward, colour: paint.forward },
      { y: 19, flow: row.back, pipe: profile?.returnPipe, values: history.back, colour: paint.back },
    ];
    for (const lane of lanes) {
      context.fillStyle = paint.muted;
      context.fillRect(0, lane.y + 3, 6, 7);
      context.fillRect(254, lane.y + 3, 6, 7);
      context.strokeStyle = paint.grid;
      context.strokeRect(12.5, lane.y + 0.5, 40, 12);
      const limit = Number(lane.pipe?.queue?.limitBytes ?? 0n);
      const share = limit > 0 ? Math.min(lane.flow.longestBytes / limit, 1) : 0;
      context.fillStyle = lane.colour;
      context.fillRect(13, lane.y + 1, 39 * share, 11);
      context.strokeStyle = lane.colour;
      context.beginPath();
      const most = Math.max(...lane.values.map((value) => value ?? 0), 1);
      const first = history.time[0] ?? 0;
      const last = history.time[history.time.length - 1] ?? 0;
      const width = Math.max(last - first, 60);
      let drawn = Number.NEGATIVE_INFINITY;
      lane.values.forEach((value, at) => {
        const x = 60 + (SPARK_PX * ((history.time[at] ?? 0) - last + width)) / width;
        if (x - drawn < SPARK_STEP_PX) return;
        const y = lane.y + 12 - (11 * (value ?? 0)) / most;
        if (drawn === Number.NEGATIVE_INFINITY) context.moveTo(x, y);
        else context.lineTo(x, y);
        drawn = x;
      });
      context.stroke();
      if ((lane.flow.drops?.OUTAGE ?? 0) > 0) {
        context.fillStyle = paint.bad;
        context.fillRect(244, lane.y, 6, 13);
      }
    }
  }
}

function Detail({ name }: { name: string }): JSX.Element {
  const { link, why } = currentOf(name);
  const profile = link?.profile;
  const lanes = useRef<{ forward?: (flow: Flow) => void; back?: (flow: Flow) => void }>({});
  const plots = useRef<{ rate?: (data: never) => void; queue?: (data: never) => void }>({});
  const figures = useRef<HTMLDivElement>(null);
  useEffect(() => {
    let drawn = 0;
    return subscribe(() => {
      const entry = seen.get(name);
      if (!entry) return;
      void recall(name);
      lanes.current.forward?.(entry.row.forward);
      lanes.current.back?.(entry.row.back);
      const { history } = entry;
      const now = performance.now();
      if (now - drawn >= 200 && !history.gap) {
        drawn = now;
        plots.current.rate?.([history.time, history.forward, history.back] as never);
        const { forwardPipe, returnPipe } = currentOf(name).link?.profile ?? {};
        const limits = [forwardPipe, returnPipe].map((pipe) => history.time.map(() => Number(pipe?.queue?.limitBytes ?? 0n) || null));
        plots.current.queue?.([history.time, history.forwardQueue, history.returnQueue, ...limits] as never);
      }
      showFigures(figures.current, name, entry);
    });
  }, [name]);
  return (
    <section aria-labelledby="chosen">
      <h2 id="chosen">
        {linkId(name)}: {profile?.name ?? "no profile"}
      </h2>
      <p class="note">
        {why || profile?.description}
        {link?.applied && ` (generation ${link.applied.generation})`}
        {link?.applied?.lossy && <strong> Lossy: the emulator itself may lose packets.</strong>}
      </p>
      {link?.remarks.map((remark) => (
        <p class="note" key={remark}>
          Note: {remark}
        </p>
      ))}
      <State name={name} />
      <h3>Forward</h3>
      <Lane way="forward" pipe={profile?.forwardPipe} onReady={(show) => (lanes.current.forward = show)} />
      <h3>Return</h3>
      <Lane way="return" pipe={profile?.returnPipe} onReady={(show) => (lanes.current.back = show)} />
      <div class="figures" ref={figures}>
        <dl>
          <Figure name="rtt" label="adds to a round trip" />
          <Figure name="base" label="configured delay" />
          <Figure name="forwardWait" label="forward queue, longest" />
          <Figure name="returnWait" label="return queue, longest" />
          <Figure name="forwardMean" label="forward queueing, mean of served" />
          <Figure name="returnMean" label="return queueing, mean of served" />
        </dl>
        <Table label="drops" class="drops" caption="Drops since the dataplane started (packets)" head={["direction", ...KINDS.map((kind) => numeric(kind === "OWN" ? "emulator" : kind.toLowerCase()))]}>
          {["forward", "return"].map((way) => (
            <tr key={way}>
              <th scope="row">{way}</th>
              {KINDS.map((kind) => (
                <td class="number figure" key={kind} data-figure={`${way}-${kind}`}>
                  –
                </td>
              ))}
            </tr>
          ))}
        </Table>
      </div>
      <div class="plots">
        <Plot
          label="throughput of the last minute, forward and return"
          formatX={seconds}
          window={60}
          xLabel="UTC"
          height={190}
          format={rate}
          lines={[
            { label: "forward", colour: "forward" },
            { label: "return", colour: "return", dash: [6, 3] },
          ]}
          onReady={(draw) => (plots.current.rate = draw as never)}
        />
        <Plot
          label="longest queue of the last minute, forward and return, below its limit"
          formatX={seconds}
          window={60}
          xLabel="UTC"
          height={190}
          format={size}
          lines={[
            { label: "forward queue", colour: "forward" },
            { label: "return queue", colour: "return", dash: [6, 3] },
            { label: "forward limit", colour: "forward", width: 1 },
            { label: "return limit", colour: "return", dash: [6, 3], width: 1 },
          ]}
          onReady={(draw) => (plots.current.queue = draw as never)}
        />
      </div>
      <Command text={top(name)} note="the same figures in a terminal" />
    </section>
  );
}

function Figure({ name, label }: { name: string; label: string }): JSX.Element {
  return (
    <div>
      <dt>{label}</dt>
      <dd class="figure" data-figure={name}>
        –
      </dd>
    </div>
  );
}

function showFigures(root: HTMLElement | null, name: string, entry: Seen): void {
  if (!root) return;
  const set = (figure: string, text: string): void => write(root.querySelector(`[data-figure="${figure}"]`), text);
  const profile = currentOf(name).link?.profile;
  const known = contribution(profile?.forwardPipe, profile?.returnPipe, entry.row);
  const wait = (ns: number | undefined): string => (ns === undefined ? "–" : Number.isFinite(ns) ? time(ns) : "down");
  set("rtt", added(name, entry));
  set("base", profile ? time(known.baseNs) : "–");
  set("forwardWait", wait(known.forwardQueueNs));
  set("returnWait", wait(known.returnQueueNs));
  set("forwardMean", wait(entry.row.forward.queueDelayNs));
  set("returnMean", wait(entry.row.back.queueDelayNs));
  for (const [way, pipe] of [["forward", entry.figures.forwardSample], ["return", entry.figures.returnSample]] as const) {
    const sums = dropSums(pipe?.drops ?? []);
    for (const kind of KINDS) set(`${way}-${kind}`, count(sums[kind]));
  }
}
