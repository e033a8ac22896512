// SPDX-License-Identifier: Apache-2.0
//! A capture: the pcapng file of linkd, and the fate of each packet in it as a table.

import type { JSX } from "preact";
import { useRef, useState } from "preact/hooks";
import { may } from "../api/caller";
import { captureFile } from "../api/capture";
import { isCanceled } from "../api/failure";
import { Direction } from "../gen/linkemu/v1/model_pb";
import * as command from "../model/command";
import { type Fate, Fates } from "../model/fates";
import { Reader } from "../model/pcapng";
import { clock, count, parse, time } from "../model/units";
import { Command, Refusal, Section, Table, numeric, save, useAction } from "../ui/parts";
import { route } from "../ui/route";

/** A capture ends after so many copies: the page keeps their fates. */
const MOST = 200_000n;
/** Rows of the table. */
const SHOWN = 500;

const REDRAW_MS = 250;

interface Taken {
  fates: Fates;
  file: Blob;
  reader: Reader;
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
      const now: Taken = { fates: new Fates(), file: new Blob(), reader: new Reader() };
      let pieces: Uint8Array<ArrayBuffer>[] = [];
      let drawn = 0;
      const draw = (): void => {
        drawn = performance.now();
        // A blob can leave the memory of the page.
        now.file = new Blob([now.file, ...pieces]);
        pieces = [];
        setTaken({ ...now });
      };
      try {
        for await (const piece of captureFile(name, request, stop.current.signal)) {
          pieces.push(piece);
          for (const copy of now.reader.take(piece)) now.fates.add(copy);
          if (performance.now() - drawn > REDRAW_MS) draw();
        }
      } catch (caught) {
        if (!(stop.current.signal.aborted && isCanceled(caught))) throw caught;
      } finally {
        if (now.fates.copies > 0 || now.reader.isWhole) draw();
      }
    });
  };
  if (!may("operator")) return <p>A capture holds the packets of others: it needs the role operator.</p>;
  const options = { clients: list, way, snaplen: bytes, count: 0n, durationNs: durationNs instanceof Error ? 0n : durationNs, file: "run.pcapng" };
  return (
    <>
      <Section title="Capture packets">
        <p class="note">
          Copies are taken when a packet arrives, and when it leaves or is dropped. A capture changes no fate. One runs at a time on a box. The file
          is linkd's, and holds the copies of the table, which come a second late, in the order of their times.
        </p>
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
          <button type="button" disabled={busy || !taken} onClick={() => taken && save("run.pcapng", "application/x-pcapng", taken.file)}>
            Download run.pcapng
          </button>
        </div>
        <Refusal of={error} />
        {!wrong && <Command text={command.capture(name, options)} />}
      </Section>
      {taken && (
        <Section title="Fates">
          <FateTable taken={taken} running={busy} only={only} onOnly={setOnly} />
        </Section>
      )}
    </>
  );
}

function FateTable({ taken, running, only, onOnly }: { taken: Taken; running: boolean; only: "all" | "dropped" | "sent"; onOnly: (only: "all" | "dropped" | "sent") => void }): JSX.Element {
  const { all, copies } = taken.fates;
  const { about, isWhole, missed } = taken.reader;
  const of = (kind: string): Fate[] => all.filter(({ fate }) => fate.startsWith(kind));
  const [sent, dropped] = [of("sent"), of("dropped")];
  const rows = { all, sent, dropped }[only];
  return (
    <>
      <p role="status" data-copies={copies} data-dropped={dropped.length} data-sent={sent.length}>
        {count(all.length)} packets: {count(sent.length)} sent, {count(dropped.length)} dropped, {count(all.length - sent.length - dropped.length)} in the
        link at the end.{" "}
        {missed > 0n && <strong>{count(missed)} copies were not read in time and are missing.</strong>}
        {!running && !isWhole && <strong>The capture was stopped before its end: the last second, and the number of missing copies, are not known.</strong>}
      </p>
      <p class="note">{about}</p>
      <label class="inline">
        show
        <select value={only} onChange={(event) => onOnly(event.currentTarget.value as "all")}>
          <option value="all">all</option>
          <option value="dropped">dropped</option>
          <option value="sent">sent</option>
        </select>
      </label>
      <Table label="fates of packets" class="fates" tall head={[numeric("packet"), "arrived (UTC)", "direction", "client", "frame", numeric("bytes"), "fate", numeric("in the link")]}>
        {rows.slice(0, SHOWN).map((one, at) => (
          <tr key={`${one.way} ${one.number} ${at}`} class={one.fate.startsWith("dropped") ? "failed" : ""}>
            <td class="number">{one.number > 0n ? one.number.toString() : "before"}</td>
            <td>{one.inNs === undefined ? "–" : clock(new Date(Number(one.inNs / 1_000_000n)))}</td>
            <td>{one.way}</td>
            <td>{one.client}</td>
            <td>{one.summary}</td>
            <td class="number">{one.length}</td>
            <td>{one.fate}</td>
            <td class="number">{one.inNs !== undefined && one.outNs !== undefined ? time(Number(one.outNs - one.inNs)) : "–"}</td>
          </tr>
        ))}
      </Table>
      {rows.length > SHOWN && <p class="note">The first {SHOWN} of {count(rows.length)}; the file has all of them.</p>}
    </>
  );
}
