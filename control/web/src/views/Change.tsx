// SPDX-License-Identifier: Apache-2.0
//! Changes of the link: a profile, or single values; now or at an instant; and back again.

import type { JSX } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { may } from "../api/caller";
import { api, leased, requestId, updateLink } from "../api/client";
import { currentOf, note } from "../api/current";
import { failure, type Failure } from "../api/failure";
import { allProfiles } from "../api/profiles";
import { Direction, type Pipe, type Profile } from "../gen/linkemu/v1/model_pb";
import type { Link } from "../gen/linkemu/v1/linkemu_pb";
import { timestampDate } from "@bufbuild/protobuf/wkt";
import * as command from "../model/command";
import { type Moment, changeScenario, delayOf, momentText } from "../model/moment";
import { differences } from "../model/draft";
import { utc } from "../model/units";
import { type Action, Command, Outcome, Refusal, Section, save, useAction } from "../ui/parts";
import { PipeForm } from "../ui/pipeform";
import { Preview } from "../ui/preview";
import { When } from "../ui/when";
import { route } from "../ui/route";

export function Change(): JSX.Element {
  const name = route.value.link;
  const { link, before, why } = currentOf(name);
  const [moment, setMoment] = useState<Moment | Error>({ kind: "now" });
  // One for all sections: an outcome replaces the one before, wherever that is shown.
  const action = useAction();
  const [section, setSection] = useState("");
  const changes = (title: string): Changes => ({
    name,
    link,
    moment,
    busy: action.busy,
    outcome: section === title ? action : NO_OUTCOME,
    run: (work) => {
      setSection(title);
      void action.run(work);
    },
  });
  return (
    <>
      {why && <p class="note">{why}</p>}
      {may("operator") && <When onChange={setMoment} />}
      <ChooseProfile {...changes("Profile")} />
      {may("operator") && link?.profile && <ChangeValues key={String(link.applied?.generation)} {...changes("Values")} link={link} />}
      {may("operator") && <Revert {...changes("Revert")} before={before} />}
    </>
  );
}

const NO_OUTCOME = { done: "", error: undefined };

interface Changes {
  name: string;
  link: Link | undefined;
  /** An error says why the input is no moment. */
  moment: Moment | Error;
  busy: boolean;
  outcome: Pick<Action, "error" | "done">;
  run: (work: () => Promise<string>) => void;
}

/** Notes the link after a change, and says so. */
function applied(name: string, link: Link): string {
  const at = link.applied;
  if (link.profile) note(name, link);
  const when = at?.effectiveUtc ? utc(timestampDate(at.effectiveUtc)) : "";
  return [`Applied at ${when}, generation ${at?.generation}.`, ...link.remarks].join(" ");
}

/** Starts a scenario of one step, which the dataplane applies at its instant. */
async function schedule(name: string, toml: string, generation: bigint | undefined): Promise<string> {
  const answer = await api.scenarios.runScenario(
    {
      link: name,
      scenario: { case: "toml", value: toml },
      requestId: requestId(),
      ...(generation === undefined ? {} : { expectedGeneration: generation }),
    },
    leased(name),
  );
  return `Scheduled as scenario ${answer.scenario?.name}, run ${answer.state?.run}: the view Scenario shows it.`;
}

function useProfiles(): { profiles: Profile[]; error: Failure | undefined } {
  const [profiles, setProfiles] = useState<Profile[]>([]);
  const [error, setError] = useState<Failure>();
  useEffect(() => {
    const stop = new AbortController();
    allProfiles(stop.signal).then(setProfiles, (caught: unknown) => {
      if (!stop.signal.aborted) setError(failure(caught));
    });
    return () => stop.abort();
  }, []);
  return { profiles, error };
}

function ChooseProfile({ name, link, moment, busy, outcome, run }: Changes): JSX.Element {
  const { profiles, error: listError } = useProfiles();
  const current = link?.profile?.name.replace(/\*$/, "");
  const [picked, setPicked] = useState<string>();
  const [seed, setSeed] = useState("");
  const chosen = picked ?? current ?? "";
  const profile = profiles.find((one) => one.name === chosen);
  const groups = useMemo(() => groupBy(profiles), [profiles]);
  const seedNumber = /^\d+$/.test(seed) ? BigInt(seed) : undefined;
  const generation = link?.applied?.generation;
  const apply = (): void => {
    if (moment instanceof Error) return;
    run(async () => {
      if (moment.kind !== "now") return schedule(name, tomlOf(moment), generation);
      const profile = { profile: { case: "name" as const, value: chosen }, ...(seedNumber === undefined ? {} : { seed: seedNumber }) };
      return applied(name, await updateLink(name, { profile }, generation));
    });
  };
  const tomlOf = (of: Moment): string => changeScenario({ profile: chosen }, delayOf(of, Date.now()));
  return (
    <Section title="Profile">
      <Refusal of={listError} />
      <div class="columns">
        <div>
          <label for="profile">Profile</label>
          <select id="profile" size={9} value={chosen} onChange={(event) => setPicked(event.currentTarget.value)}>
            {[...groups].map(([group, members]) => (
              <optgroup key={group} label={group || "other"}>
                {members.map((one) => (
                  <option key={one.name} value={one.name} selected={one.name === chosen}>
                    {one.name}
                    {one.name === current ? " (current)" : ""}
                  </option>
                ))}
              </optgroup>
            ))}
          </select>
          {may("operator") && (
            <>
              <label for="seed">Seed (empty: the current one)</label>
              <input id="seed" inputMode="numeric" pattern="[0-9]*" value={seed} onInput={(event) => setSeed(event.currentTarget.value)} />
            </>
          )}
        </div>
        <div>
          {profile && (
            <>
              <p>
                <b>{profile.description}</b>
              </p>
              <p class="note source">Source: {profile.source || "none given"}</p>
              <Preview profile={profile} />
            </>
          )}
        </div>
      </div>
      {may("operator") && (
        <>
          <div class="actions">
            <button type="button" class="primary" disabled={busy || !profile || moment instanceof Error} onClick={apply}>
              Set profile {chosen}
              {later(moment)}
            </button>
            <SaveScenario moment={moment} toml={tomlOf} />
          </div>
          <Outcome of={outcome} />
          {profile && <ChangeCommand name={name} moment={moment} now={command.setProfile(name, chosen, seedNumber, generation)} />}
        </>
      )}
    </Section>
  );
}

function groupBy(profiles: readonly Profile[]): Map<string, Profile[]> {
  const groups = new Map<string, Profile[]>();
  for (const profile of profiles) groups.set(profile.group, [...(groups.get(profile.group) ?? []), profile]);
  return groups;
}

const later = (moment: Moment | Error): string => (moment instanceof Error ? "" : momentText(moment));

interface SaveScenarioProps {
  moment: Moment | Error;
  toml: (moment: Moment) => string;
}

/** Saves the scenario that makes a later change; nothing for one that is made now. */
function SaveScenario({ moment, toml }: SaveScenarioProps): JSX.Element | null {
  if (moment instanceof Error || moment.kind === "now") return null;
  return (
    <button type="button" onClick={() => save("change-at.toml", "application/toml", toml(moment))}>
      Save change-at.toml
    </button>
  );
}

function ChangeCommand({ name, moment, now }: { name: string; moment: Moment | Error; now: string | readonly string[] }): JSX.Element | null {
  if (moment instanceof Error) return null;
  return <Command text={moment.kind === "now" ? now : command.runScenario(name, "./change-at.toml", { detach: true })} />;
}

function ChangeValues({ name, link, moment, busy, outcome, run }: Changes & { link: Link }): JSX.Element {
  const [forward, setForward] = useState<command.Values>({});
  const [back, setBack] = useState<command.Values>({});
  const generation = link.applied?.generation;
  const profile = link.profile;
  const changes = differences(forward, back);
  const tomlOf = (of: Moment): string => changeScenario({ forward, back }, delayOf(of, Date.now()));
  const apply = (): void => {
    if (moment instanceof Error) return;
    run(async () => {
      if (moment.kind !== "now") return schedule(name, tomlOf(moment), generation);
      const pipes = changes.map(({ way, values }) => ({
        direction: { forward: Direction.FORWARD, return: Direction.RETURN, both: Direction.UNSPECIFIED }[way],
        toml: command.patchLines(values).join("\n"),
      }));
      return applied(name, await updateLink(name, { pipes }, generation));
    });
  };
  let expected = generation;
  const commands = changes.map(({ way, values }) => {
    const text = command.setValues(name, way, values, expected);
    expected = expected === undefined ? undefined : expected + 1n;
    return text;
  });
  return (
    <Section title="Values">
      <p class="note">
        Of {profile?.name}, generation {generation?.toString()}. Random processes with unchanged parameters continue. Packets in
        flight are neither dropped nor reordered.
      </p>
      <div class="columns">
        <PipeForm way="forward" pipe={profile?.forwardPipe as Pipe} values={forward} onChange={setForward} />
        <PipeForm way="return" pipe={profile?.returnPipe as Pipe} values={back} onChange={setBack} />
      </div>
      <div class="actions">
        <button type="button" class="primary" disabled={busy || changes.length === 0 || moment instanceof Error} onClick={apply}>
          Apply values
          {later(moment)}
        </button>
        <button
          type="button"
          disabled={changes.length === 0}
          onClick={() => {
            setForward({});
            setBack({});
          }}
        >
          Discard
        </button>
        {changes.length > 0 && <SaveScenario moment={moment} toml={tomlOf} />}
        {changes.length > 1 && later(moment) === "" && (
          <span class="note">Both directions change at one instant. The commands change one after the other.</span>
        )}
      </div>
      <Outcome of={outcome} />
      {changes.length > 0 && <ChangeCommand name={name} moment={moment} now={commands} />}
    </Section>
  );
}

function Revert({ name, link, before, busy, outcome, run }: Changes & { before: readonly Link[] }): JSX.Element {
  const generation = link?.applied?.generation;
  const revert = (to: Link): void => {
    run(async () => {
      if (!to.profile) return "";
      const profile = { profile: { case: "inline" as const, value: to.profile }, seed: to.seed };
      return applied(name, await updateLink(name, { profile }, generation));
    });
  };
  const [last] = before;
  const file = `./generation-${last?.applied?.generation ?? "N"}.toml`;
  return (
    <Section title="Revert">
      <p class="note">
        Earlier generations that this page has seen. A revert sets the whole link of that generation with its seed; random
        processes restart. It is made at once.
      </p>
      {before.length === 0 && <p>No earlier generation has been seen since this page was loaded.</p>}
      <ul class="plain">
        {before.map((old) => (
          <li key={String(old.applied?.generation)}>
            <button type="button" disabled={busy} onClick={() => revert(old)}>
              Revert to generation {old.applied?.generation.toString()}
            </button>{" "}
            {old.profile?.name}
            {old.applied?.effectiveUtc && <span class="note"> in force from {utc(timestampDate(old.applied.effectiveUtc))}</span>}
          </li>
        ))}
      </ul>
      <Outcome of={outcome} />
      <Command
        text={[`${command.show(name)} > ${file}`, command.setProfile(name, file, last?.seed, generation)]}
        note="the first one before the change"
      />
    </Section>
  );
}
