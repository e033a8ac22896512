// SPDX-License-Identifier: Apache-2.0
//! From a measured log to a profile: the log is chosen, fitted by linkd, and the profile verified
//! against it.

import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { timestampDate } from "@bufbuild/protobuf/wkt";
import type uPlot from "uplot";
import { may } from "../api/caller";
import { api, leased } from "../api/client";
import { isCanceled } from "../api/failure";
import { type JobFile, follow, hasEnded, runJob } from "../api/jobs";
import { type FitResult, type Job, JobInput, JobKind, JobState, type Plot as Curves, PlotKind, Verdict, type VerifyResult } from "../gen/linkemu/v1/jobs_pb";
import * as model from "../model/job";
import { count, percent, size, utc } from "../model/units";
import { Command, Outcome, Refusal, Section, Table, numeric, save, useAction } from "../ui/parts";
import { Plot } from "../ui/plot";
import { route } from "../ui/route";

const STATE: Record<JobState, string> = {
  [JobState.UNSPECIFIED]: "unknown",
  [JobState.WAITING_FOR_INPUT]: "waits for its log",
  [JobState.QUEUED]: "waits for another job",
  [JobState.RUNNING]: "running",
  [JobState.DONE]: "done",
  [JobState.FAILED]: "failed",
  [JobState.CANCELLED]: "cancelled",
};
const VERDICT: Record<Verdict, string> = {
  [Verdict.UNSPECIFIED]: "unknown",
  [Verdict.PASS]: "PASS",
  [Verdict.FAIL]: "FAIL",
  [Verdict.UNDECIDED]: "UNDECIDED",
};
const LISTED_MS = 3_000;

/** What was chosen, kept while other views are shown. */
const kept: { log?: File; certificate?: File; texts: model.Texts; fit?: Job; verify?: Job } = { texts: {} };

export function Fit(): JSX.Element {
  const [log, setLog] = useState(kept.log);
  const [certificate, setCertificate] = useState(kept.certificate);
  const [texts, setTexts] = useState(kept.texts);
  const [fit, setFit] = useState(kept.fit);
  const [verify, setVerify] = useState(kept.verify);
  Object.assign(kept, { log, certificate, texts, fit, verify });
  const [sent, setSent] = useState(0);
  const stop = useRef<AbortController>();
  const { busy, error, run } = useAction();
  // The job continues without this view, and is in the list.
  useEffect(() => () => stop.current?.abort(), []);
  const options = model.options(texts);
  const files: JobFile[] = [
    ...(log ? [{ input: JobInput.BASELINE, file: log }] : []),
    ...(certificate ? [{ input: JobInput.BASELINE_CERTIFICATE, file: certificate }] : []),
  ];
  const take = (job: Job): void => (job.kind === JobKind.VERIFY ? setVerify(job) : setFit(job));
  const within = (work: (signal: AbortSignal) => Promise<unknown>): void => {
    void run(async () => {
      stop.current = new AbortController();
      const { signal } = stop.current;
      setSent(0);
      try {
        await work(signal);
      } catch (caught) {
        if (!(signal.aborted && isCanceled(caught))) throw caught;
      }
    });
  };
  const start = (): void => {
    if (!log || options instanceof Error) return;
    const request = { job: { case: "fit", value: { ...options.fit, log: { ...options.log, fileName: log.name } } } } as const;
    setVerify(undefined);
    within((signal) => runJob(request, files, signal, setSent, take));
  };
  const result = fit?.result.case === "fit" ? fit.result.value : undefined;
  const check = (): void => {
    if (!log || options instanceof Error || !result?.profile) return;
    const link = { case: "inline", value: result.profile } as const;
    const request = { job: { case: "verify", value: { log: { ...options.log, fileName: log.name }, link } } } as const;
    within((signal) => runJob(request, files, signal, setSent, take));
  };
  const cancel = (job: Job | undefined): void => {
    // A log that is on its way is no longer sent.
    if (!job || job.state === JobState.WAITING_FOR_INPUT) return stop.current?.abort();
    void api.jobs.cancelJob({ name: job.name }).then(take, () => undefined);
  };
  const active = [verify, fit].find((job) => job && !hasEnded(job));
  const written = `${result?.profile?.name || texts.name || (log?.name ?? "log").replace(/\.[^.]*$/, "")}.toml`;
  const total = files.reduce((sum, { file }) => sum + file.size, 0);
  return (
    <>
      {may("operator") && (
        <Section title="Log">
          <Choose log={log} onLog={setLog} certificate={certificate} onCertificate={setCertificate} />
          <Options texts={texts} onChange={setTexts} />
          {options instanceof Error && (
            <p class="wrong" role="alert">
              {options.message}
            </p>
          )}
          <div class="actions">
            <button type="button" class="primary" disabled={busy || !log || options instanceof Error} onClick={start}>
              Fit a profile
            </button>
            <button type="button" disabled={!busy} onClick={() => cancel(active)}>
              Cancel
            </button>
          </div>
          {log && !(options instanceof Error) && (
            <Command text={model.fitCommand(log.name, certificate?.name ?? "", options, written)} note="a log may have 256 MiB here; rate traces and TCP traffic are for linkctl only" />
          )}
        </Section>
      )}
      <Refusal of={error} />
      {busy && <Progress job={active} sent={sent} total={total} />}
      {[fit, verify].map((job) => job && hasEnded(job) && job.state !== JobState.DONE && <Ended key={job.name} job={job} />)}
      {result && <Fitted key={fit?.name} result={result} written={written} />}
      {result && may("operator") && (
        <Section title="Verification">
          <p class="note">The profile is played in virtual time, and each figure compared with that of the log.</p>
          <div class="actions">
            <button type="button" class="primary" disabled={busy || !log} onClick={check}>
              Verify it against {log?.name ?? "the log"}
            </button>
          </div>
          {verify?.result.case === "verify" && <Verified result={verify.result.value} />}
          {log && !(options instanceof Error) && <Command text={model.verifyCommand(log.name, certificate?.name ?? "", options, `./${written}`)} />}
        </Section>
      )}
      {!(result && may("operator")) && verify?.result.case === "verify" && (
        <Section title="Verification">
          <Verified result={verify.result.value} />
        </Section>
      )}
      <Jobs onShow={(job) => within((signal) => follow(job.name, signal, take))} />
    </>
  );
}

interface ChooseProps {
  log: File | undefined;
  onLog: (file: File | undefined) => void;
  certificate: File | undefined;
  onCertificate: (file: File | undefined) => void;
}

function Choose({ log, onLog, certificate, onCertificate }: ChooseProps): JSX.Element {
  const [over, setOver] = useState(false);
  const drop = (event: DragEvent): void => {
    event.preventDefault();
    setOver(false);
    const file = event.dataTransfer?.files[0];
    if (file) onLog(file);
  };
  return (
    <>
      <div
        class={over ? "drop over" : "drop"}
        onDragOver={(event) => {
          event.preventDefault();
          setOver(true);
        }}
        onDragLeave={() => setOver(false)}
        onDrop={drop}
      >
        <label for="log">Drop a log of round trips here, or choose one</label>
        <input id="log" type="file" onChange={(event) => onLog(event.currentTarget.files?.[0])} />
        <p class="note" role="status">
          {log ? `${log.name}, ${size(log.size)}` : "Of linkctl probe, ping, fping or irtt, a table, or published figures in TOML; also packed with gzip."}
        </p>
      </div>
      <div class="fields">
        <label>
          certificate of the run, if the log was recorded over an emulator
          <input type="file" accept=".json,application/json" onChange={(event) => onCertificate(event.currentTarget.files?.[0])} />
          {certificate && <span>{certificate.name}</span>}
        </label>
      </div>
    </>
  );
}

function Options({ texts, onChange }: { texts: model.Texts; onChange: (texts: model.Texts) => void }): JSX.Element {
  const field = ({ key, label, choices, placeholder }: model.Option): JSX.Element => {
    const set = (text: string): void => onChange({ ...texts, [key]: text });
    return (
      <label key={key}>
        {label}
        {choices ? (
          <select id={`fit-${key}`} value={texts[key] ?? choices[0]} onChange={(event) => set(event.currentTarget.value)}>
            {choices.map((one) => (
              <option key={one} value={one}>
                {one}
              </option>
            ))}
          </select>
        ) : (
          <input id={`fit-${key}`} value={texts[key] ?? ""} placeholder={placeholder} spellcheck={false} onInput={(event) => set(event.currentTarget.value)} />
        )}
      </label>
    );
  };
  return (
    <>
      <div class="fields">{model.OPTIONS.slice(0, 4).map(field)}</div>
      <details>
        <summary>More options</summary>
        <div class="fields">{model.OPTIONS.slice(4).map(field)}</div>
      </details>
    </>
  );
}

function Progress({ job, sent, total }: { job: Job | undefined; sent: number; total: number }): JSX.Element {
  const uploading = !job || job.state === JobState.WAITING_FOR_INPUT;
  const share = uploading ? sent / Math.max(total, 1) : job.progress;
  return (
    <div data-progress={share}>
      <progress aria-label="progress" max={1} value={share} />
      <p class="note" role="status">
        {uploading ? `Sending the log: ${size(sent)} of ${size(total)}` : `${STATE[job.state]}${job.step ? `: ${job.step}` : ""}, ${Math.floor(share * 100)} %`}
      </p>
    </div>
  );
}

function Ended({ job }: { job: Job }): JSX.Element {
  const what = job.kind === JobKind.VERIFY ? "The verification" : "The fit";
  return (
    <p class={job.state === JobState.FAILED ? "refusal" : "note"} role="alert" data-ended={STATE[job.state]}>
      {what} {job.state === JobState.FAILED ? "failed" : "was cancelled"}
      {job.message && `: ${job.message}`}
    </p>
  );
}

/** The share of round trips that are longer, of the log and of the profile. */
function Exceedance({ plots, label }: { plots: readonly Curves[]; label: string }): JSX.Element | null {
  const curves = plots.find(({ kind }) => kind === PlotKind.EXCEEDANCE);
  const data = useMemo(() => curves && (model.steps(curves.baseline, curves.link) as uPlot.AlignedData), [curves]);
  if (!curves || !data) return null;
  return (
    <Plot
      label={`${label}: share of longer round trips, of the log and of the profile`}
      height={240}
      log
      max={1}
      xLabel="round trip, ms"
      format={(value) => (Math.log10(value) % 1 === 0 ? percent(value) : "")}
      lines={[
        { label: "log", colour: "forward" },
        { label: "profile", colour: "return", dash: [6, 3] },
      ]}
      data={data}
    />
  );
}

function Fitted({ result, written }: { result: FitResult; written: string }): JSX.Element {
  const [name, setName] = useState(result.profile?.name ?? "");
  const [replace, setReplace] = useState(false);
  const { busy, run, ...outcome } = useAction();
  const store = (): void => {
    if (!result.profile) return;
    const profile = { ...result.profile, name };
    void run(async () => {
      const answer = await api.linkemu.putProfile({ profile, replace }, leased(route.value.link));
      return `Stored as ${answer.profile?.name}${answer.replaced ? ", in place of another one" : ""}. The view Change sets it.`;
    });
  };
  return (
    <Section title="Profile">
      <Table label="summary of the fit" head={["part", "estimate"]}>
        {result.summary.map((line, at) => (
          <tr key={at} data-summary={line.name}>
            <th scope="row">{line.name}</th>
            <td>{line.text}</td>
          </tr>
        ))}
      </Table>
      <Exceedance plots={result.plots} label="fit" />
      {may("operator") && (
        <>
          <div class="fields">
            <label>
              name in linkd
              <input value={name} spellcheck={false} onInput={(event) => setName(event.currentTarget.value)} />
            </label>
          </div>
          <div class="actions">
            <button type="button" class="primary" disabled={busy || name === ""} onClick={store}>
              Store the profile
            </button>
            <label class="inline">
              <input type="checkbox" checked={replace} onChange={(event) => setReplace(event.currentTarget.checked)} /> replace a stored one
            </label>
          </div>
          <Outcome of={outcome} />
        </>
      )}
      <div class="actions">
        <button type="button" onClick={() => save(written, "application/toml", result.toml)}>
          Save {written}
        </button>
        <button type="button" onClick={() => save(written.replace(/toml$/, "json"), "application/json", result.json)}>
          Save the report as JSON
        </button>
      </div>
      {may("operator") && <Command text={model.putCommand(written, replace)} {...(name === result.profile?.name ? {} : { note: "with this name in the file" })} />}
      <details>
        <summary>Whole report</summary>
        <pre tabIndex={0}>{result.text}</pre>
      </details>
      <details>
        <summary>TOML</summary>
        <pre tabIndex={0}>{result.toml}</pre>
      </details>
    </Section>
  );
}

const KIND_OF: Record<Verdict, string> = { [Verdict.UNSPECIFIED]: "", [Verdict.PASS]: "good", [Verdict.FAIL]: "bad", [Verdict.UNDECIDED]: "" };

function Verified({ result }: { result: VerifyResult }): JSX.Element {
  return (
    <div class={`verdict ${KIND_OF[result.verdict]}`} data-verdict={VERDICT[result.verdict]}>
      <p class="result" role="status">
        <strong>{VERDICT[result.verdict]}</strong> {result.text.replace(/^[A-Z]+: /, "")}
      </p>
      <p class="note">
        {result.profile} {result.played}; against {result.baseline}, SHA-256 {result.sha256.slice(0, 16)}…
        {result.neededS !== undefined && `; logs of ${model.value(result.neededS / 3_600)} h would decide all figures`}
      </p>
      <Exceedance plots={result.plots} label="verification" />
      {[...model.groups(result.figures)].map(([group, figures]) => (
        <Table key={group} label={group} caption={group} head={["figure", numeric("log"), numeric("profile"), numeric("tolerance"), numeric("uncertainty"), "verdict"]}>
          {figures.map((one) => (
            <tr key={one.figure} data-figure={`${group}: ${one.figure}`} class={one.verdict === Verdict.FAIL ? "failed" : ""}>
              <th scope="row" title={one.because}>
                {one.figure}
              </th>
              {[one.baseline, one.link, one.tolerance, one.error].map((number, column) => (
                <td class="number" key={column} data-value={number}>
                  {column > 1 && "± "}
                  {model.value(number, one.unit)}
                </td>
              ))}
              <td>{one.verdict === Verdict.PASS ? "PASS" : <strong>{VERDICT[one.verdict]}</strong>}</td>
            </tr>
          ))}
        </Table>
      ))}
      {result.remarks.map((remark) => (
        <p class="note" key={remark}>
          Note: {remark}
        </p>
      ))}
      <div class="actions">
        <button type="button" onClick={() => save(`verify-${result.profile}.json`, "application/json", result.json)}>
          Save the verification as JSON
        </button>
      </div>
    </div>
  );
}

/** Jobs of all users: one of this page that was left is found here. */
function Jobs({ onShow }: { onShow: (job: Job) => void }): JSX.Element {
  const [jobs, setJobs] = useState<readonly Job[]>([]);
  const { busy, error, run } = useAction();
  const read = async (): Promise<void> => setJobs((await api.jobs.listJobs({})).jobs);
  useEffect(() => {
    void run(read);
    const timer = setInterval(() => {
      if (!document.hidden) read().catch(() => undefined);
    }, LISTED_MS);
    return () => clearInterval(timer);
  }, []);
  const act = (action: () => Promise<unknown>): void => void run(() => action().then(read));
  return (
    <Section title="Jobs">
      <p class="note">Fits and verifications of all users of this box, {count(jobs.length)} of at most 8. One runs at a time, at the lowest priority of the machine.</p>
      <Refusal of={error} />
      {jobs.length > 0 && (
        <Table label="jobs" head={["created", "kind", "log", "profile", "by", "state", "actions"]}>
          {jobs.map((job) => (
            <tr key={job.name} data-job={job.name}>
              <td>{job.created ? utc(timestampDate(job.created)) : "–"}</td>
              <td>{job.kind === JobKind.VERIFY ? "verify" : "fit"}</td>
              <td>{job.baseline}</td>
              <td>{job.subject}</td>
              <td>{job.who}</td>
              <td>
                {STATE[job.state]}
                {job.state === JobState.RUNNING && `, ${Math.floor(job.progress * 100)} %`}
              </td>
              <td>
                <button type="button" class="small" disabled={busy} aria-label={`Show ${job.baseline}, ${job.name}`} onClick={() => onShow(job)}>
                  Show
                </button>
                {may("operator") && (
                  <>
                    {" "}
                    {!hasEnded(job) && (
                      <button type="button" class="small" disabled={busy} aria-label={`Cancel ${job.baseline}, ${job.name}`} onClick={() => act(() => api.jobs.cancelJob({ name: job.name }))}>
                        Cancel
                      </button>
                    )}{" "}
                    <button type="button" class="small" disabled={busy} aria-label={`Delete ${job.baseline}, ${job.name}`} onClick={() => act(() => api.jobs.deleteJob({ name: job.name }))}>
                      Delete
                    </button>
                  </>
                )}
              </td>
            </tr>
          ))}
        </Table>
      )}
    </Section>
  );
}
