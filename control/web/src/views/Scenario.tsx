// SPDX-License-Identifier: Apache-2.0
//! A scenario on a timeline, as text, and its run.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { may } from "../api/caller";
import { api, leased, requestId } from "../api/client";
import { currentOf } from "../api/current";
import { failure, isCanceled, type Failure } from "../api/failure";
import { allProfiles } from "../api/profiles";
import type { Profile } from "../gen/linkemu/v1/model_pb";
import { ScenarioAction, ScenarioPhase, type PlannedStep, type RunScenarioResponse, type Scenario as Known, type ScenarioState } from "../gen/linkemu/v1/scenario_pb";
import * as command from "../model/command";
import { isActive, phaseText } from "../model/run";
import * as timeline from "../model/timeline";
import { exactTime, time } from "../model/units";
import { Curves } from "../ui/curves";
import { type Action, Command, Refusal, Section, Table, numeric, save, useAction } from "../ui/parts";
import { StepForm } from "../ui/stepform";
import { TimelineEditor } from "../ui/timeline";
import { route } from "../ui/route";

const EMPTY = 'name = "mine"\n\n[[step]]\nat = "0 ms"\nlabel = "start"\n\n[[step]]\nat = "1 min"\nlabel = "end"\n';
const RETRY_MS = 2_000;

/** The state of the link's scenario, with the instant at which it was received. */
function useRunState(name: string): { state: ScenarioState | undefined; at: number; error: Failure | undefined } {
  const [seen, setSeen] = useState<{ state: ScenarioState; at: number }>();
  const [error, setError] = useState<Failure>();
  useEffect(() => {
    const stop = new AbortController();
    const follow = async (): Promise<void> => {
      while (!stop.signal.aborted) {
        try {
          for await (const state of api.scenarios.watchScenario({ link: name }, { signal: stop.signal })) {
            setSeen({ state, at: performance.now() });
            setError(undefined);
          }
        } catch (caught) {
          if (stop.signal.aborted && isCanceled(caught)) return;
          setError(failure(caught));
        }
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      }
    };
    void follow();
    return () => stop.abort();
  }, [name]);
  return { state: seen?.state, at: seen?.at ?? 0, error };
}

export function Scenario(): JSX.Element {
  const name = route.value.link;
  const { state, at, error: watchError } = useRunState(name);
  const [{ text, read }, setScenario] = useState(() => ({ text: EMPTY, read: timeline.read(EMPTY) }));
  const [file, setFile] = useState<string>();
  const [chosen, setChosen] = useState<number>();
  const known = useKnown();
  const take = (toml: string): void => setScenario({ text: toml, read: timeline.read(toml) });
  const open = (scenario: string): void => {
    void known.run(async () => {
      const found = await api.scenarios.getScenario({ name: scenario });
      take(found.toml);
      setFile(scenario);
      setChosen(undefined);
    });
  };
  // Steps keep their identity, and their buttons the focus, while they are edited.
  const edit = (next: timeline.Timeline): void => {
    const head = file && next.head.name === file ? { ...next.head, name: `${file}-edited` } : next.head;
    const edited = { head, steps: timeline.sorted(next.steps) };
    setScenario({ text: timeline.write(edited), read: edited });
    setFile(undefined);
  };
  // Steps are identified by their place in the text.
  const steps = read instanceof Error ? [] : read.steps;
  const step = chosen === undefined ? undefined : steps[chosen];
  return (
    <>
      <Run name={name} state={state} at={at} text={text} file={file} />
      <Refusal of={watchError} />
      <Section title="Scenario">
        <div class="actions">
          <label class="inline">
            Open
            <select id="scenario-file" value={file ?? ""} onChange={(event) => event.currentTarget.value && open(event.currentTarget.value)}>
              <option value="">own</option>
              {known.list.map((one) => (
                <option key={one.name} value={one.name} selected={one.name === file}>
                  {one.name}
                </option>
              ))}
            </select>
          </label>
          <button
            type="button"
            onClick={() => {
              take(EMPTY);
              setFile(undefined);
              setChosen(undefined);
            }}
          >
            New
          </button>
          <button type="button" onClick={() => save(`${file ?? nameOf(read)}.toml`, "application/toml", text)}>
            Export TOML
          </button>
        </div>
        <Refusal of={known.error} />
        {known.list.find((one) => one.name === file)?.description && <p class="note">{known.list.find((one) => one.name === file)?.description}</p>}
        {read instanceof Error ? (
          <p class="note" role="status">
            Not on a timeline: {read.message}.
          </p>
        ) : (
          <>
            <TimelineEditor
              timeline={read}
              chosen={chosen}
              onChoose={setChosen}
              onChange={(next, at_) => {
                edit(next);
                setChosen(at_);
              }}
              elapsedNs={isActive(state?.phase) && state?.name === nameOf(read) ? elapsed(state, at) : undefined}
            />
            {step && (
              <StepForm
                step={step}
                profiles={known.profiles.map((one) => one.name)}
                onChange={(changed) => {
                  const next = { ...read, steps: read.steps.map((one) => (one.id === changed.id ? changed : one)) };
                  edit(next);
                  setChosen(timeline.sorted(next.steps).findIndex((one) => one.id === changed.id));
                }}
                onRemove={() => {
                  edit({ ...read, steps: read.steps.filter((one) => one.id !== step.id) });
                  setChosen(undefined);
                }}
              />
            )}
          </>
        )}
        <Curves toml={text} link={currentOf(name).link?.profile} profiles={known.profiles} />
        <details>
          <summary>TOML</summary>
          <textarea
            aria-label="scenario in TOML"
            spellcheck={false}
            value={text}
            onInput={(event) => {
              take(event.currentTarget.value);
              setFile(undefined);
            }}
          />
        </details>
      </Section>
    </>
  );
}

function nameOf(read: timeline.Timeline | Error): string {
  return read instanceof Error || typeof read.head.name !== "string" ? "mine" : read.head.name;
}

/** Elapsed time of the timeline now, from the last state. */
export function elapsed(state: ScenarioState | undefined, at: number): number {
  if (!state) return 0;
  const since = state.phase === ScenarioPhase.RUNNING ? (performance.now() - at) * 1e6 : 0;
  return Number(state.elapsedNs) + since;
}

function useKnown(): { list: Known[]; profiles: Profile[]; error: Failure | undefined; run: Action["run"] } {
  const [list, setList] = useState<Known[]>([]);
  const [profiles, setProfiles] = useState<Profile[]>([]);
  const { error, run } = useAction();
  useEffect(() => {
    void run(async () => {
      const [scenarios, found] = await Promise.all([api.scenarios.listScenarios({}), allProfiles()]);
      setList(scenarios.scenarios);
      setProfiles(found);
    });
  }, []);
  return { list, profiles, error, run };
}

function Run({ name, state, at, text, file }: { name: string; state: ScenarioState | undefined; at: number; text: string; file: string | undefined }): JSX.Element {
  const [plan, setPlan] = useState<RunScenarioResponse>();
  const [tolerate, setTolerate] = useState(false);
  const { busy, error, run } = useAction();
  const [, tick] = useState(0);
  const active = isActive(state?.phase);
  useEffect(() => {
    if (!active) return undefined;
    const timer = setInterval(() => tick((n) => n + 1), 250);
    return () => clearInterval(timer);
  }, [active]);
  const scenario = file === undefined ? ({ case: "toml", value: text } as const) : ({ case: "name", value: file } as const);
  const start = (dryRun: boolean): void => {
    void run(async () => {
      setPlan(undefined);
      const request = { link: name, scenario, dryRun, tolerateChanges: tolerate, ...(dryRun ? {} : { requestId: requestId() }) };
      const answer = await api.scenarios.runScenario(request, leased(name));
      if (dryRun) setPlan(answer);
    });
  };
  const control = (action: ScenarioAction, restore = false): void => {
    void run(async () => void (await api.scenarios.controlScenario({ link: name, action, restore }, leased(name))));
  };
  const argument = file ?? `./${nameOf(timeline.read(text))}.toml`;
  const paused = state?.phase === ScenarioPhase.PAUSED;
  return (
    <Section title="Run">
      {state && (
        <div data-phase={phaseText(state.phase)} data-late={state.lateMaxNs.toString()} data-steps={state.stepsDone.toString()}>
          <p role="status">
            <b>{state.name || "No scenario"}</b>: {phaseText(state.phase)}
            {state.message && ` (${state.message})`}
            {state.run > 0n && ` – run ${state.run}, started by ${state.who || "linkd"}`}
          </p>
          {state.run > 0n && (
            <>
              {state.lengthNs !== undefined && (
                <progress aria-label="elapsed part of the timeline" max={Number(state.lengthNs)} value={Math.min(elapsed(state, at), Number(state.lengthNs))} />
              )}
              <p class="note">
                <span class="figure">{time(elapsed(state, at))}</span> of {state.lengthNs === undefined ? "no fixed length" : exactTime(state.lengthNs)};{" "}
                {state.stepsDone.toString()} of {state.steps?.toString() ?? "endless"} steps done;{" "}
                <span class={state.lateSteps > 0n ? "wrong" : ""}>
                  {state.lateSteps.toString()} more than 1 ms late, at most {time(Number(state.lateMaxNs))}
                </span>
              </p>
              {active && state.next.length > 0 && <Steps title="Next" steps={state.next} />}
            </>
          )}
        </div>
      )}
      {may("operator") && (
        <div class="actions">
          <button type="button" class="primary" disabled={busy || active} onClick={() => start(false)}>
            Play {file ?? "this scenario"}
          </button>
          <button type="button" disabled={busy || !active} onClick={() => control(paused ? ScenarioAction.RESUME : ScenarioAction.PAUSE)}>
            {paused ? "Resume" : "Pause"}
          </button>
          <button type="button" disabled={busy || !active} onClick={() => control(ScenarioAction.STOP)}>
            Stop
          </button>
          <button type="button" disabled={busy || !active} onClick={() => control(ScenarioAction.STOP, true)}>
            Stop and restore the link
          </button>
          <button type="button" disabled={busy} onClick={() => start(true)}>
            Check
          </button>
          <label class="inline">
            <input type="checkbox" checked={tolerate} onChange={(event) => setTolerate(event.currentTarget.checked)} /> go on when others change the link
          </label>
        </div>
      )}
      <Refusal of={error} />
      {plan && (
        <div role="status">
          <p>
            Valid: {plan.scenario?.steps?.toString() ?? "endless"} steps
            {plan.scenario?.lengthNs !== undefined && `, ${exactTime(plan.scenario.lengthNs)}`}. Nothing was changed.
          </p>
          <Steps title="First steps" steps={plan.first} />
        </div>
      )}
      {may("operator") && (
        <Command
          text={
            active
              ? [command.scenario(name, paused ? "resume" : "pause"), command.stopScenario(name, false)]
              : [tolerate ? `${command.runScenario(name, argument, { detach: true })} --tolerate-changes` : command.runScenario(name, argument, { detach: true })]
          }
        />
      )}
    </Section>
  );
}

function Steps({ title, steps }: { title: string; steps: readonly PlannedStep[] }): JSX.Element {
  return (
    <Table label={title} caption={title} head={[numeric("at"), "label", "change"]}>
      {steps.map((one) => (
        <tr key={one.index.toString()}>
          <td class="number">{time(Number(one.afterNs))}</td>
          <td>{one.label}</td>
          <td>{one.action}</td>
        </tr>
      ))}
    </Table>
  );
}
