// SPDX-License-Identifier: Apache-2.0
//! The machine: whether it is fit to run linkemu, and what the link can hold.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { api } from "../api/client";
import { type DiagnoseResponse, FindingLevel } from "../gen/linkemu/v1/doctor_pb";
import { type Envelope, type EnvelopeBound, EnvelopeLimit } from "../gen/linkemu/v1/envelope_pb";
import * as command from "../model/command";
import { count, counted, exactRate, rate, size, time } from "../model/units";
import { Command, Refusal, Section, Table, numeric, useAction } from "../ui/parts";
import { route } from "../ui/route";

export function Box(): JSX.Element {
  return (
    <>
      <Checks />
      <Room name={route.value.link} />
    </>
  );
}

const LEVEL: Record<FindingLevel, string> = {
  [FindingLevel.UNSPECIFIED]: "unknown",
  [FindingLevel.OK]: "ok",
  [FindingLevel.WARNING]: "warning",
  [FindingLevel.BAD]: "bad",
};
const ROW: Record<FindingLevel, string> = { [FindingLevel.UNSPECIFIED]: "", [FindingLevel.OK]: "", [FindingLevel.WARNING]: "warning", [FindingLevel.BAD]: "failed" };

function Checks(): JSX.Element {
  const [found, setFound] = useState<DiagnoseResponse>();
  const { busy, error, run } = useAction();
  const check = (): void => void run(async () => setFound(await api.doctor.diagnose({})));
  useEffect(check, []);
  return (
    <Section title="Checks">
      <p class="note">Of the machine of linkd, with the privileges of linkd. They change nothing.</p>
      <div class="actions">
        <button type="button" disabled={busy} onClick={check}>
          Check again
        </button>
        {found && (
          <span role="status">
            {counted(found.checks.length, "checks")}: {count(found.bad)} bad, {counted(found.warnings, "warnings")}
          </span>
        )}
      </div>
      <Refusal of={error} />
      {found && (
        <Table label="checks of the machine" head={["check", "result", "found", "why, and what to do"]}>
          {found.checks.map((one, at) => (
            <tr key={at} data-check={one.check} data-level={LEVEL[one.level]} class={ROW[one.level]}>
              <th scope="row">{one.check}</th>
              <td>{one.level === FindingLevel.OK ? "ok" : <strong>{LEVEL[one.level]}</strong>}</td>
              <td>{one.found}</td>
              <td>
                {one.why}
                {one.remedy && (
                  <>
                    {" "}
                    <code>{one.remedy}</code>
                  </>
                )}
              </td>
            </tr>
          ))}
        </Table>
      )}
      <Command text={command.doctor()} note="on that machine" />
    </Section>
  );
}

function bound(of: EnvelopeBound | undefined, text: (value: bigint) => string): string {
  if (!of) return "–";
  if (of.limit === EnvelopeLimit.NOTHING) return "no value fits";
  if (of.limit === EnvelopeLimit.ANY) return "any";
  if (of.value !== undefined) return `at most ${text(of.value)}`;
  const parts = [
    ...(of.forwardValue === undefined ? [] : [`forward at most ${text(of.forwardValue)}`]),
    ...(of.returnValue === undefined ? [] : [`return at most ${text(of.returnValue)}`]),
  ];
  return parts.join(", ") || "–";
}

function Room({ name }: { name: string }): JSX.Element {
  const [envelope, setEnvelope] = useState<Envelope>();
  const { busy, error, run } = useAction();
  const read = (): void => void run(async () => setEnvelope(await api.envelopes.getEnvelope({ link: name })));
  useEffect(read, [name]);
  const profile = envelope?.profile;
  const frames = envelope?.rows[0]?.delays.map((delay) => delay.frames) ?? [];
  return (
    <Section title="Envelope">
      <p class="note">Delays, rates and queues that the dataplane can hold without loss, by the rules by which it accepts a link.</p>
      <div class="actions">
        <button type="button" disabled={busy} onClick={read}>
          Read again
        </button>
      </div>
      <Refusal of={error} />
      {profile && (
        <>
          <p role="status" data-fits={profile.fits}>
            {profile.name} <b>{profile.fits ? "fits" : "does not fit"}</b>: it needs {size(Number(profile.neededBytes))} of{" "}
            {size(Number(envelope?.room?.memoryBytes ?? 0n))} packet memory.
          </p>
          {[...profile.excesses, ...profile.remarks].map((text) => (
            <p class="note" key={text}>
              {text}
            </p>
          ))}
          <Table label="largest values" caption="With the other parameters unchanged" head={["parameter", "fits"]}>
            {(
              [
                ["clients", bound(profile.clients, count)],
                ["delay", bound(profile.delayNs, (ns) => time(Number(ns)))],
                ["queue of a client", bound(profile.queueBytes, (bytes) => size(Number(bytes)))],
                ["rate of a client", bound(profile.rateBps, (bps) => rate(Number(bps)))],
              ] as const
            ).map(([what, text]) => (
              <tr key={what} data-bound={what}>
                <th scope="row">{what}</th>
                <td>{text}</td>
              </tr>
            ))}
          </Table>
        </>
      )}
      {envelope && (
        <Table label="longest delays" caption="Longest delay, forward and return together, if both directions carry the rate" head={["rate", ...frames.map(numeric)]}>
          {envelope.rows.map((row, at) => (
            <tr key={at} data-rate={row.rateBps.toString()}>
              <th scope="row">
                {exactRate(row.rateBps)}
                {row.port && " (port)"}
              </th>
              {row.delays.map((delay) => (
                <td class="number" key={delay.frames}>
                  {time(Number(delay.delayNs))}
                </td>
              ))}
            </tr>
          ))}
        </Table>
      )}
      <Command text={command.envelope(name)} />
    </Section>
  );
}
