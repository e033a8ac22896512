// SPDX-License-Identifier: Apache-2.0
//! Changes of the link: a profile, or single values; now or at an instant; and back again.

import type { JSX } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { about, api, requestId } from "../api/client";
import { currentOf, note } from "../api/current";
import { failure, type Failure } from "../api/failure";
import { Direction, type Pipe, type Profile } from "../gen/linkemu/v1/model_pb";
import type { ChangeResponse, Link } from "../gen/linkemu/v1/linkemu_pb";
import { timestampDate } from "@bufbuild/protobuf/wkt";
import * as command from "../model/command";
import { type Moment, changeScenario, delayOf } from "../model/moment";
import { differences } from "../model/draft";
import { utc } from "../model/units";
import { Command, Refusal, Section, save, useAction } from "../ui/parts";
import { PipeForm } from "../ui/pipeform";
import { Preview } from "../ui/preview";
import { When } from "../ui/when";
import { route } from "../ui/route";

export function Change(): JSX.Element {
  const name = route.value.link;
  const { link, before, why } = currentOf(name);
  const [done, setDone] = useState("");
  const applied = (answer: ChangeResponse): void => {
    const at = answer.applied;
    const when = at?.effectiveUtc ? utc(timestampDate(at.effectiveUtc)) : "";
    setDone([`In force since ${when}, generation ${at?.generation}.`, ...answer.remarks].join(" "));
    if (answer.profile) {
      note(name, { ...(link ?? ({} as Link)), profile: answer.profile, seed: answer.seed, applied: at, remarks: answer.remarks } as Link);
    }
  };
  return (
    <>
      <p role="status" class="done">
        {done}
      </p>
      {why && <p class="note">{why}</p>}
      <ChooseProfile name={name} link={link} onDone={applied} onScheduled={setDone} />
      {link?.profile && <ChangeValues key={String(link.applied?.generation)} name={name} link={link} onDone={applied} onScheduled={setDone} />}
      <Revert name={name} link={link} before={before} onDone={applied} />
    </>
  );
}

interface Actions {
  name: string;
  link: Link | undefined;
  onDone: (answer: ChangeResponse) => void;
  onScheduled: (text: string) => void;
}

/** Starts a scenario of one step, which the dataplane applies at its instant. */
async function schedule(name: string, toml: string, generation: bigint | undefined): Promise<string> {
  const answer = await api.scenarios.runScenario(
    {
      scenario: { case: "toml", value: toml },
      requestId: requestId(),
      ...(generation === undefined ? {} : { expectedGeneration: generation }),
    },
    about(name),
  );
  return `Scheduled as scenario ${answer.scenario?.name}, run ${answer.state?.run}: the view Scenario shows it.`;
}

function useProfiles(): { profiles: Profile[]; error: Failure | undefined } {
  const [profiles, setProfiles] = useState<Profile[]>([]);
  const [error, setError] = useState<Failure>();
  useEffect(() => {
    const stop = new AbortController();
    const read = async (): Promise<void> => {
      const all: Profile[] = [];
      for (let more = true; more; ) {
        const after = all.at(-1)?.name ?? "";
        const answer = await api.linkemu.listProfiles({ after }, { signal: stop.signal });
        all.push(...answer.profiles);
        more = answer.more && answer.profiles.length > 0;
      }
      setProfiles(all);
    };
    read().catch((caught: unknown) => {
      if (!stop.signal.aborted) setError(failure(caught));
    });
    return () => stop.abort();
  }, []);
  return { profiles, error };
}

function ChooseProfile({ name, link, onDone, onScheduled }: Actions): JSX.Element {
  const { profiles, error: listError } = useProfiles();
  const current = link?.profile?.name.replace(/\*$/, "");
  const [picked, setPicked] = useState<string>();
  const [seed, setSeed] = useState("");
  const [moment, setMoment] = useState<Moment>({ kind: "now" });
  const { busy, error, run } = useAction();
  const chosen = picked ?? current ?? "";
  const profile = profiles.find((one) => one.name === chosen);
  const groups = useMemo(() => groupBy(profiles), [profiles]);
  const seedNumber = /^\d+$/.test(seed) ? BigInt(seed) : undefined;
  const generation = link?.applied?.generation;
  const toml = changeScenario({ profile: chosen }, delayOf(moment, Date.now()));
  const apply = (): void => {
    void run(async () => {
      if (moment.kind !== "now") return onScheduled(await schedule(name, toml, generation));
      onDone(
        await api.linkemu.setProfile(
          {
            profile: { case: "name", value: chosen },
            requestId: requestId(),
            ...(seedNumber === undefined ? {} : { seed: seedNumber }),
            ...(generation === undefined ? {} : { expectedGeneration: generation }),
          },
          about(name),
        ),
      );
    });
  };
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
          <label for="seed">Seed (empty: the current one)</label>
          <input id="seed" inputMode="numeric" pattern="[0-9]*" value={seed} onInput={(event) => setSeed(event.currentTarget.value)} />
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
      <When moment={moment} onChange={setMoment} id="profile-when" />
      <div class="actions">
        <button type="button" class="primary" disabled={busy || !profile} onClick={apply}>
          Set profile {chosen}
        </button>
        {moment.kind !== "now" && <SaveScenario toml={toml} />}
      </div>
      <Refusal of={error} />
      {profile && (
        <Command
          text={moment.kind === "now" ? command.setProfile(name, chosen, seedNumber, generation) : command.runScenario(name, "./change-at.toml", { detach: true })}
        />
      )}
    </Section>
  );
}

function groupBy(profiles: readonly Profile[]): Map<string, Profile[]> {
  const groups = new Map<string, Profile[]>();
  for (const profile of profiles) groups.set(profile.group, [...(groups.get(profile.group) ?? []), profile]);
  return groups;
}

function SaveScenario({ toml }: { toml: string }): JSX.Element {
  return (
    <button type="button" onClick={() => save("change-at.toml", "application/toml", toml)}>
      Save change-at.toml
    </button>
  );
}

function ChangeValues({ name, link, onDone, onScheduled }: Actions & { link: Link }): JSX.Element {
  const [forward, setForward] = useState<command.Values>({});
  const [back, setBack] = useState<command.Values>({});
  const [moment, setMoment] = useState<Moment>({ kind: "now" });
  const { busy, error, run } = useAction();
  const generation = link.applied?.generation;
  const profile = link.profile;
  const changes = differences(forward, back);
  const toml = changeScenario({ forward, back }, delayOf(moment, Date.now()));
  const apply = (): void => {
    void run(async () => {
      if (moment.kind !== "now") return onScheduled(await schedule(name, toml, generation));
      let expected = generation;
      let answer: ChangeResponse | undefined;
      for (const { way, values } of changes) {
        const direction = { forward: Direction.FORWARD, return: Direction.RETURN, both: Direction.UNSPECIFIED }[way];
        answer = await api.linkemu.patchLink(
          {
            direction,
            toml: command.patchLines(values).join("\n"),
            requestId: requestId(),
            ...(expected === undefined ? {} : { expectedGeneration: expected }),
          },
          about(name),
        );
        expected = answer.applied?.generation;
      }
      if (answer) onDone(answer);
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
      <When moment={moment} onChange={setMoment} id="values-when" />
      <div class="actions">
        <button type="button" class="primary" disabled={busy || changes.length === 0} onClick={apply}>
          Apply
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
        {moment.kind !== "now" && changes.length > 0 && <SaveScenario toml={toml} />}
        {changes.length > 1 && moment.kind === "now" && (
          <span class="note">Two changes, one after the other. "After" and "At" change both directions at one instant.</span>
        )}
      </div>
      <Refusal of={error} />
      {changes.length > 0 && (
        <Command text={moment.kind === "now" ? commands : command.runScenario(name, "./change-at.toml", { detach: true })} />
      )}
    </Section>
  );
}

function Revert({ name, link, before, onDone }: { name: string; link: Link | undefined; before: readonly Link[]; onDone: (answer: ChangeResponse) => void }): JSX.Element {
  const { busy, error, run } = useAction();
  const generation = link?.applied?.generation;
  const revert = (to: Link): void => {
    void run(async () => {
      if (!to.profile) return;
      onDone(
        await api.linkemu.setProfile(
          {
            profile: { case: "inline", value: to.profile },
            seed: to.seed,
            requestId: requestId(),
            ...(generation === undefined ? {} : { expectedGeneration: generation }),
          },
          about(name),
        ),
      );
    });
  };
  const [last] = before;
  const file = `./generation-${last?.applied?.generation ?? "N"}.toml`;
  return (
    <Section title="Revert">
      <p class="note">
        Earlier generations that this page has seen. A revert sets the whole link of that generation with its seed; random
        processes restart.
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
      <Refusal of={error} />
      <Command
        text={[`${command.show(name)} > ${file}`, command.setProfile(name, file, last?.seed, generation)]}
        note="the first one before the change"
      />
    </Section>
  );
}
