// SPDX-License-Identifier: Apache-2.0
//! The verdict on the run since the last mark, its reasons, and the last verdicts of the link.

import { toJsonString } from "@bufbuild/protobuf";
import { timestampDate } from "@bufbuild/protobuf/wkt";
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { may } from "../api/caller";
import { api, leased } from "../api/client";
import { CertificateSchema, type Criterion, type ListedCertificate, type Certificate as Verdict } from "../gen/linkemu/v1/certificate_pb";
import * as command from "../model/command";
import { counted, parse, size, time, utc } from "../model/units";
import { Command, Outcome, Section, Table, numeric, save, useAction } from "../ui/parts";
import { route } from "../ui/route";

/** A figure with its unit; the exact text is that of linkd. */
export function figure(value: bigint, unit: string): string {
  if (unit === "ns") return time(Number(value));
  if (unit === "bytes") return size(Number(value));
  return counted(value, unit);
}

const FIELDS = [
  { key: "latenessNs", label: "most lateness, 99th percentile (empty: that of the link)", initial: "" },
  { key: "stallNs", label: "longest stall (empty: that of the link)", initial: "" },
  { key: "emulatorDrops", label: "most emulator drops", initial: "0" },
  { key: "packets", label: "least packets sent", initial: "1" },
  { key: "memoryPercent", label: "most memory, %", initial: "99" },
  { key: "changes", label: "most changes (empty: any)", initial: "" },
] as const;
type Field = (typeof FIELDS)[number]["key"];

/** Limits that differ from the defaults of linkd; an error names the field. */
export function limitsOf(texts: Record<Field, string>): command.Limits | Error {
  const limits: command.Limits = {};
  for (const { key, label, initial } of FIELDS) {
    const text = texts[key].trim();
    if (text === initial) continue;
    if (key === "latenessNs" || key === "stallNs") {
      const ns = parse("time", text);
      if (ns instanceof Error) return new Error(`${label}: ${ns.message}`);
      limits[key] = ns;
    } else if (!/^\d{1,18}$/.test(text)) {
      return new Error(`${label}: "${text}" is no whole number`);
    } else if (key === "memoryPercent") {
      limits.memoryPercent = Number(text);
    } else {
      limits[key] = BigInt(text);
    }
  }
  return limits;
}

export function Certificate(): JSX.Element {
  const name = route.value.link;
  const [texts, setTexts] = useState(Object.fromEntries(FIELDS.map(({ key, initial }) => [key, initial])) as Record<Field, string>);
  const [verdict, setVerdict] = useState<{ verdict: Verdict; at: Date }>();
  const [listed, setListed] = useState<readonly ListedCertificate[]>([]);
  const { busy, run, ...outcome } = useAction();
  const limits = limitsOf(texts);
  const list = async (): Promise<void> => setListed((await api.certificates.listCertificates({ link: name })).certificates);
  const judge = (mark: boolean): void => {
    if (limits instanceof Error) return;
    void run(async () => {
      const request = {
        link: name,
        mark,
        ...(limits.packets === undefined ? {} : { packets: limits.packets }),
        ...(limits.emulatorDrops === undefined ? {} : { emulatorDrops: limits.emulatorDrops }),
        ...(limits.latenessNs === undefined ? {} : { latenessP99Ns: limits.latenessNs }),
        ...(limits.stallNs === undefined ? {} : { stallNs: limits.stallNs }),
        ...(limits.memoryPercent === undefined ? {} : { memoryPercent: limits.memoryPercent }),
        ...(limits.changes === undefined ? {} : { changes: limits.changes }),
      };
      const answer = await api.certificates.getCertificate(request, leased(name));
      const at = new Date();
      setVerdict({ verdict: answer, at });
      await list();
      if (mark) return `Marked at ${utc(at)}: the next run has begun.`;
    });
  };
  const markRun = (): void => {
    void run(async () => {
      await api.linkemu.getStats({ link: name, mark: true }, leased(name));
      await list();
      return `Marked at ${utc(new Date())}: a run has begun.`;
    });
  };
  const judging = (mark: boolean): string => command.certificate(name, limits instanceof Error ? {} : limits, mark);
  // The verdict on entry; it changes nothing.
  useEffect(() => judge(false), []);
  return (
    <>
      <Section title="Verdict">
        {verdict && <VerdictView {...verdict} name={name} />}
        <div class="actions">
          <button type="button" class="primary" disabled={busy || limits instanceof Error} onClick={() => judge(false)}>
            Judge the run
          </button>
          {may("operator") && (
            <>
              <button type="button" disabled={busy || limits instanceof Error} onClick={() => judge(true)}>
                Judge it, and begin the next one
              </button>
              <button type="button" disabled={busy} onClick={markRun}>
                Mark: begin a run
              </button>
            </>
          )}
        </div>
        <Outcome of={outcome} />
        <Command
          text={may("operator") ? [command.mark(name), judging(false), judging(true)] : judging(false)}
          {...(may("operator") ? { note: "all users share one mark" } : {})}
        />
      </Section>
      <Section title="Limits">
        <div class="fields">
          {FIELDS.map(({ key, label }) => (
            <label key={key}>
              {label}
              <input id={`limit-${key}`} value={texts[key]} onInput={(event) => setTexts({ ...texts, [key]: event.currentTarget.value })} />
            </label>
          ))}
        </div>
        {limits instanceof Error && (
          <p class="wrong" role="alert">
            {limits.message}
          </p>
        )}
      </Section>
      <Section title="History">
        <p class="note">
          The last 100 verdicts that linkd gave on this link, one of each run and set of limits, until linkd or the link ends. Save a certificate with its
          run.
        </p>
        <History listed={listed} />
      </Section>
    </>
  );
}

function VerdictView({ verdict, at, name }: { verdict: Verdict; at: Date; name: string }): JSX.Element {
  const { span, remedies } = verdict;
  const since = span?.sinceUtc && timestampDate(span.sinceUtc);
  const failed = verdict.criteria.filter((one) => !one.holds);
  const json = toJsonString(CertificateSchema, verdict, { alwaysEmitImplicit: true, useProtoFieldName: true });
  return (
    <div class={verdict.holds ? "verdict good" : "verdict bad"} data-holds={verdict.holds}>
      <p class="result" role="status">
        <strong>{verdict.holds ? "PASS" : "FAIL"}</strong>{" "}
        {verdict.holds ? "the emulator was not the bottleneck" : failed.map((one) => one.name).join(", ")}
        {verdict.summary && !verdict.holds && `: ${verdict.summary}`}
      </p>
      <p class="note">
        As of {utc(at)}
        {since && `; run since ${utc(since)}`}
      </p>
      {remedies.length > 0 && (
        <section class="advice" aria-labelledby="advice">
          <h3 id="advice">What to change before the run is repeated</h3>
          <ul>
            {remedies.map((remedy) => (
              <li key={remedy}>{remedy}</li>
            ))}
          </ul>
        </section>
      )}
      <Table label="criteria" head={["criterion", numeric("figure"), "limit", "holds"]}>
        {verdict.criteria.map((one) => (
          <CriterionRow key={one.name} of={one} />
        ))}
      </Table>
      {verdict.remarks.map((remark) => (
        <p class="note" key={remark}>
          Note: {remark}
        </p>
      ))}
      <button type="button" onClick={() => save(`certificate-${command.linkId(name)}-${at.toISOString().slice(0, 19).replaceAll(":", "")}.json`, "application/json", json)}>
        Save as JSON
      </button>
    </div>
  );
}

function CriterionRow({ of }: { of: Criterion }): JSX.Element {
  return (
    <tr data-criterion={of.name} class={of.holds ? "" : "failed"}>
      <th scope="row">{of.name}</th>
      <td class="number" data-value={of.value.toString()}>
        {figure(of.value, of.unit)}
      </td>
      <td>
        {of.atLeast ? "at least" : "at most"} {figure(of.limit, of.unit)}
        {of.reason && <span class="note">, {of.reason}</span>}
      </td>
      <td>{of.holds ? "yes" : <strong>no</strong>}</td>
    </tr>
  );
}

function History({ listed }: { listed: readonly ListedCertificate[] }): JSX.Element {
  if (listed.length === 0) return <p>None yet.</p>;
  const at = (of: ListedCertificate["since"]): string => (of ? utc(timestampDate(of)) : "–");
  return (
    <Table label="last verdicts" tall head={["run since", "until", "ended", "by", "verdict", "reasons"]}>
      {listed.map(({ since, until, marked, who, certificate }, row) => (
        <tr key={row} data-listed={certificate?.holds ? "pass" : "fail"} class={certificate?.holds ? "" : "failed"}>
          <td>{at(since)}</td>
          <td>{at(until)}</td>
          <td>{marked ? "yes" : "no"}</td>
          <td>{who}</td>
          <td>{certificate?.holds ? "PASS" : <strong>FAIL</strong>}</td>
          <td>
            {certificate?.criteria
              .filter((one) => !one.holds)
              .map((one) => one.text)
              .join("; ")}
          </td>
        </tr>
      ))}
    </Table>
  );
}
