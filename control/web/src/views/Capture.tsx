// SPDX-License-Identifier: Apache-2.0
//! A capture: the fate of each packet in a table, and the copies as a pcapng file.

import type { JSX } from "preact";
import { useRef, useState } from "preact/hooks";
import { about, api } from "../api/client";
import { isCanceled } from "../api/failure";
import type { CaptureStart } from "../gen/linkemu/v1/capture_pb";
import { Direction } from "../gen/linkemu/v1/model_pb";
import * as command from "../model/command";
import { type Fate, fates } from "../model/fates";
import { type Copy, pcapng, utcNs } from "../model/pcapng";
import { clock, count, parse, time } from "../model/units";
import { Command, Refusal, Section, save, useAction } from "../ui/parts";
import { route } from "../ui/route";

/** Copies that are kept in the page; a capture ends with them. */
const MOST = 200_000n;
/** Rows of the table. */
const SHOWN = 500;

interface Taken {
  start: CaptureStart;
  copies: Copy[];
  missed: bigint;
}

export function Capture(): JSX.Element {
  const name = route.value.link;
  const [clients, setClients] = useState("");
  const [way, setWay] = useState<command.Way>("both");
  const [duration, setDuration] = useState("3 s");
  const [snaplen, setSnaplen] = useState("128");
  const [taken, setTaken] = useState<Taken>();
  const [only, setOnly] = useState<"all" | "dropped" | "sent">("all");
  const stop = useRef<AbortController>();
  const { busy, error, run } = useAction();
  const durationNs = parse("time", duration);
  const bytes = Number(snaplen);
  const wrong =
    durationNs instanceof Error
      ? durationNs.message
      : !Number.isInteger(bytes) || bytes < 1 || bytes > 10_224
        ? `bytes per packet: "${snaplen}" is not from 1 to 10224`
        : "";
  const list = clients.split(/[\s,]+/).filter((one) => one !== "");
  const begin = (): void => {
    if (wrong || durationNs instanceof Error) return;
    void run(async () => {
      stop.current = new AbortController();
      const request = {
        clients: list,
        direction: { forward: Direction.FORWARD, return: Direction.RETURN, both: Direction.UNSPECIFIED }[way],
        snaplen: bytes,
        count: MOST,
        durationNs,
      };
      let now: Taken | undefined;
      let drawn = 0;
      try {
        for await (const chunk of api.captures.capture(request, about(name, { signal: stop.current.signal }))) {
          now ??= chunk.start && { start: chunk.start, copies: [], missed: 0n };
          if (!now) continue;
          for (const packet of chunk.packets) now.copies.push({ packet, client: chunk.clients[packet.client] ?? "" });
          // Totals since the start.
          if (chunk.missed.length > 0) now.missed = chunk.missed.reduce((sum, one) => sum + one.copies, 0n);
          if (performance.now() - drawn > 250) {
            drawn = performance.now();
            setTaken({ ...now });
          }
        }
      } catch (caught) {
        if (!(stop.current.signal.aborted && isCanceled(caught))) throw caught;
      } finally {
        if (now) setTaken({ ...now });
      }
    });
  };
  const options = { clients: list, way, snaplen: bytes, count: 0n, durationNs: durationNs instanceof Error ? 0n : durationNs, file: "run.pcapng" };
  return (
    <>
      <Section title="Capture packets">
        <p class="note">Copies are taken when a packet arrives, and when it leaves or is dropped. A capture changes no fate. One runs at a time on a box.</p>
        <div class="fields">
          <label>
            clients (empty: all)
            <input value={clients} placeholder="10.0.0.2" onInput={(event) => setClients(event.currentTarget.value)} />
          </label>
          <label>
            direction
            <select value={way} onChange={(event) => setWay(event.currentTarget.value as command.Way)}>
              <option value="both">both</option>
              <option value="forward">forward</option>
              <option value="return">return</option>
            </select>
          </label>
          <label>
            duration
            <input id="capture-duration" value={duration} onInput={(event) => setDuration(event.currentTarget.value)} />
          </label>
          <label>
            bytes per packet
            <input inputMode="numeric" value={snaplen} onInput={(event) => setSnaplen(event.currentTarget.value)} />
          </label>
        </div>
        {wrong && (
          <p class="wrong" role="alert">
            {wrong}
          </p>
        )}
        <div class="actions">
          <button type="button" class="primary" disabled={busy || wrong !== ""} onClick={begin}>
            {busy ? "Capturing" : "Start"}
          </button>
          <button type="button" disabled={!busy} onClick={() => stop.current?.abort()}>
            Stop
          </button>
          <button type="button" disabled={busy || !taken} onClick={() => taken && save("run.pcapng", "application/x-pcapng", pcapng(taken.start, taken.copies))}>
            Download run.pcapng
          </button>
        </div>
        <Refusal of={error} />
        {!wrong && <Command text={command.capture(name, options)} />}
      </Section>
      {taken && (
        <Section title="Fates">
          <Table taken={taken} only={only} onOnly={setOnly} />
        </Section>
      )}
    </>
  );
}

function Table({ taken, only, onOnly }: { taken: Taken; only: "all" | "dropped" | "sent"; onOnly: (only: "all" | "dropped" | "sent") => void }): JSX.Element {
  const all = fates(taken.copies);
  const of = (kind: string): Fate[] => all.filter(({ fate }) => fate.startsWith(kind));
  const [sent, dropped] = [of("sent"), of("dropped")];
  const rows = { all, sent, dropped }[only];
  return (
    <>
      <p role="status" data-copies={taken.copies.length} data-dropped={dropped.length} data-sent={sent.length}>
        {count(all.length)} packets: {count(sent.length)} sent, {count(dropped.length)} dropped, {count(all.length - sent.length - dropped.length)} in the
        link at the end.{" "}
        {taken.missed > 0n && <strong>{count(taken.missed)} copies were not read in time and are missing.</strong>}
      </p>
      <p class="note">
        Profile {taken.start.profile}, generation {taken.start.generation.toString()}.
      </p>
      <label class="inline">
        show
        <select value={only} onChange={(event) => onOnly(event.currentTarget.value as "all")}>
          <option value="all">all</option>
          <option value="dropped">dropped</option>
          <option value="sent">sent</option>
        </select>
      </label>
      <div class="scroll tall" tabIndex={0} role="region" aria-label="fates of packets">
        <table class="fates">
          <thead>
            <tr>
              <th scope="col" class="number">
                packet
              </th>
              <th scope="col">arrived (UTC)</th>
              <th scope="col">direction</th>
              <th scope="col">client</th>
              <th scope="col">frame</th>
              <th scope="col" class="number">
                bytes
              </th>
              <th scope="col">fate</th>
              <th scope="col" class="number">
                in the link
              </th>
            </tr>
          </thead>
          <tbody>
            {rows.slice(0, SHOWN).map((one, at) => (
              <tr key={`${one.way} ${one.number} ${at}`} class={one.fate.startsWith("dropped") ? "failed" : ""}>
                <td class="number">{one.number > 0n ? one.number.toString() : "before"}</td>
                <td>{one.inNs === undefined ? "–" : clock(new Date(Number(utcNs(taken.start, one.inNs) / 1_000_000n)))}</td>
                <td>{one.way}</td>
                <td>{one.client}</td>
                <td>{one.summary}</td>
                <td class="number">{one.length}</td>
                <td>{one.fate}</td>
                <td class="number">{one.inNs !== undefined && one.outNs !== undefined ? time(Number(one.outNs - one.inNs)) : "–"}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {rows.length > SHOWN && <p class="note">The first {SHOWN} of {count(rows.length)}; the file has all.</p>}
    </>
  );
}
