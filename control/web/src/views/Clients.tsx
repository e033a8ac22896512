// SPDX-License-Identifier: Apache-2.0
//! Clients with their accounts, their definitions, and the rules that assign traffic to links.

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { create } from "@bufbuild/protobuf";
import { may } from "../api/caller";
import { api, leased, updateLink } from "../api/client";
import { failure, type Failure } from "../api/failure";
import { names } from "../api/feed";
import { BeamSchema, ClientKind, ClientSchema, ClientsSchema, type Client, type ClientAccount, type ClientState, type Clients as Definitions } from "../gen/linkemu/v1/clients_pb";
import type { LinkRules, NamedLink } from "../gen/linkemu/v1/links_pb";
import { clientsToml, items, matchText, vlans } from "../model/clients";
import * as command from "../model/command";
import { count, exactRate, exactSize, parse, size, utc } from "../model/units";
import { Command, Outcome, Refusal, Section, Table, numeric, save, useAction } from "../ui/parts";
import { EVERY_MS, usePolling } from "../ui/polling";
import { MAIN, route } from "../ui/route";

/** Rows of the table. */
const SHOWN = 500;

export function Clients(): JSX.Element {
  const name = route.value.link;
  return (
    <>
      <Accounts name={name} />
      <DefinitionsForm name={name} />
      <Rules name={name} />
    </>
  );
}

const KIND: Record<ClientKind, string> = {
  [ClientKind.UNSPECIFIED]: "",
  [ClientKind.NAMED]: "named",
  [ClientKind.AUTOMATIC]: "automatic",
  [ClientKind.DEFAULT]: "default",
  [ClientKind.BYPASS]: "bypass",
};

function Accounts({ name }: { name: string }): JSX.Element {
  const [clients, setClients] = useState<{ list: ClientState[]; at: Date }>();
  const [error, setError] = useState<Failure>();
  usePolling(name, async (signal) => {
    try {
      const list: ClientState[] = [];
      for await (const some of api.linkemu.listClients({ link: name }, { signal })) list.push(...some.clients);
      setClients({ list, at: new Date() });
      setError(undefined);
    } catch (caught) {
      if (!signal.aborted) setError(failure(caught));
    }
  });
  const packets = (account: ClientAccount | undefined, of: "received" | "sent" | "dropped" | "held"): string =>
    count(account?.[of]?.packets ?? 0n);
  return (
    <Section title="Accounts">
      <p class="note">
        Packets since the dataplane started: received + duplicated + generated = sent + dropped + held.
        {clients && ` Read at ${utc(clients.at)}, every ${EVERY_MS / 1_000} s.`}
      </p>
      <Refusal of={error} />
      <Table label="clients" head={["client", "kind", "direction", ...["received", "sent", "dropped", "held"].map(numeric)]}>
        {clients?.list.slice(0, SHOWN).flatMap((one) =>
          ([["forward", one.forwardAccount], ["return", one.returnAccount]] as const).map(([way, account]) => (
            <tr key={`${one.client} ${way}`} data-client={one.client} data-way={way}>
              <th scope="row">{one.client}</th>
              <td>
                {KIND[one.kind]}
                {one.removed && ", removed"}
                {one.beam && `, beam ${one.beam}`}
              </td>
              <td>{way}</td>
              <td class="number figure">{packets(account, "received")}</td>
              <td class="number figure">{packets(account, "sent")}</td>
              <td class="number figure">{packets(account, "dropped")}</td>
              <td class="number figure">{packets(account, "held")}</td>
            </tr>
          )),
        )}
      </Table>
      {clients && clients.list.length > SHOWN && <p class="note">The first {SHOWN} of {count(clients.list.length)}.</p>}
      <Command text={command.listClients(name)} />
    </Section>
  );
}

function DefinitionsForm({ name }: { name: string }): JSX.Element {
  const [draft, setDraft] = useState<Definitions>();
  const [generation, setGeneration] = useState<bigint>();
  const { busy, run, ...outcome } = useAction();
  const load = (): void => {
    void run(async () => {
      const answer = await api.linkemu.getClients({ link: name });
      setDraft(answer.clients ?? create(ClientsSchema));
      setGeneration(answer.applied?.generation);
    });
  };
  useEffect(load, [name]);
  const change = (at: number, to: Partial<Client>): void => {
    if (!draft) return;
    const clients = draft.clients.map((one, i) => (i === at ? { ...one, ...to } : one));
    setDraft({ ...draft, clients });
  };
  const apply = (): void => {
    if (!draft) return;
    void run(async () => {
      const link = await updateLink(name, { clients: draft }, generation);
      setGeneration(link.applied?.generation);
      return [`Applied, generation ${link.applied?.generation}.`, ...link.remarks].join(" ");
    });
  };
  return (
    <Section title="Definitions">
      <p class="note">Addresses without a definition are clients of their own. A MAC goes before a VLAN, that before the longest prefix; matches go first.</p>
      {draft?.clients.map((one, at) => (
        <fieldset key={at} class="definition" disabled={!may("operator")}>
          <legend>{one.name || "new client"}</legend>
          <div class="fields">
            <TextField label="name" value={one.name} onChange={(text) => change(at, { name: text })} />
            <TextField label="prefixes" value={one.prefixes.join(" ")} onChange={(text) => change(at, { prefixes: items(text) })} />
            <TextField
              label="VLANs"
              value={one.vlans.join(" ")}
              onChange={(text) => {
                const found = vlans(text);
                if (!(found instanceof Error)) change(at, { vlans: found });
                return found instanceof Error ? found.message : "";
              }}
            />
            <TextField label="MACs" value={one.macs.join(" ")} onChange={(text) => change(at, { macs: items(text) })} />
            <TextField label="beam" value={one.beam} onChange={(text) => change(at, { beam: text })} />
            <TextField
              label="weight (empty: 1)"
              value={one.weight ? String(one.weight) : ""}
              onChange={(text) => {
                if (text !== "" && !/^\d{1,4}$/.test(text)) return `"${text}" is no weight from 1 to 1000`;
                change(at, { weight: Number(text) });
                return "";
              }}
            />
          </div>
          {one.matches.length > 0 && (
            <p class="note">
              Matches: {one.matches.map(matchText).join("; or ")}. They stay as they are.
            </p>
          )}
          {may("operator") && (
            <button type="button" class="small" onClick={() => draft && setDraft({ ...draft, clients: draft.clients.filter((_, i) => i !== at) })}>
              Remove {one.name}
            </button>
          )}
        </fieldset>
      ))}
      {draft?.beams.map((one, at) => (
        <fieldset key={at} class="definition" disabled={!may("operator")}>
          <legend>beam {one.name}</legend>
          <div class="fields">
            {(["forwardRateBps", "returnRateBps"] as const).map((key) => (
              <TextField
                key={key}
                label={`${key === "forwardRateBps" ? "forward" : "return"} rate (empty: no limit)`}
                value={one[key] === undefined ? "" : one[key] === 0n ? "down" : exactRate(one[key])}
                onChange={(text) => {
                  const bps = text === "" ? undefined : text === "down" ? 0n : parse("rate", text);
                  if (bps instanceof Error) return bps.message;
                  const { [key]: _, ...rest } = one;
                  const next = create(BeamSchema, bps === undefined ? rest : { ...rest, [key]: bps });
                  setDraft({ ...draft, beams: draft.beams.map((beam, i) => (i === at ? next : beam)) });
                  return "";
                }}
              />
            ))}
          </div>
          {may("operator") && (
            <button type="button" class="small" onClick={() => setDraft({ ...draft, beams: draft.beams.filter((_, i) => i !== at) })}>
              Remove beam {one.name}
            </button>
          )}
        </fieldset>
      ))}
      <div class="actions">
        {may("operator") && (
          <>
            <button type="button" disabled={!draft} onClick={() => draft && setDraft({ ...draft, clients: [...draft.clients, create(ClientSchema, { name: `client${draft.clients.length + 1}` })] })}>
              Add a client
            </button>
            <button type="button" disabled={!draft} onClick={() => draft && setDraft({ ...draft, beams: [...draft.beams, create(BeamSchema, { name: `beam${draft.beams.length + 1}`, forwardRateBps: 100_000_000n })] })}>
              Add a beam
            </button>
            <button type="button" class="primary" disabled={busy || !draft} onClick={apply}>
              Apply definitions
            </button>
          </>
        )}
        <button type="button" disabled={busy} onClick={load}>
          {may("operator") ? "Discard and read again" : "Read again"}
        </button>
        <button type="button" disabled={!draft} onClick={() => draft && save("clients.toml", "application/toml", clientsToml(draft))}>
          Save clients.toml
        </button>
      </div>
      <Outcome of={outcome} />
      {may("operator") && <Command text={command.setClients(name, "clients.toml")} />}
    </Section>
  );
}

/** A text that is taken when the field is left; `onChange` may return why it is refused. */
function TextField({ label, value, onChange }: { label: string; value: string; onChange: (text: string) => string | void }): JSX.Element {
  const [wrong, setWrong] = useState("");
  return (
    <label>
      {label}
      <input value={value} spellcheck={false} aria-invalid={wrong !== ""} onChange={(event) => setWrong(onChange(event.currentTarget.value.trim()) ?? "")} />
      {wrong && (
        <span class="wrong" role="alert">
          {wrong}
        </span>
      )}
    </label>
  );
}

function Rules({ name }: { name: string }): JSX.Element {
  const [rules, setRules] = useState<LinkRules>();
  const [links, setLinks] = useState<readonly NamedLink[]>([]);
  const [prefixes, setPrefixes] = useState("");
  const [vlanText, setVlanText] = useState("");
  const [macs, setMacs] = useState("");
  /** The fields have input that is not applied yet: they are not overwritten. */
  const edited = useRef(false);
  const [added, setAdded] = useState("");
  const [memory, setMemory] = useState("");
  const { busy, error, run } = useAction();
  const read = async (): Promise<void> => {
    const [found, listed] = await Promise.all([api.links.getLinkRules({}), api.links.listLinks({})]);
    setRules(found);
    setLinks(listed.links);
    if (edited.current) return;
    const own = found.rules.filter(({ link }) => link === name);
    setPrefixes(own.flatMap((rule) => rule.prefixes).join(" "));
    setVlanText(own.flatMap((rule) => rule.vlans).join(" "));
    setMacs(own.flatMap((rule) => rule.macs).join(" "));
  };
  const all = names.value.join();
  useEffect(() => void run(read), [name, all]);
  const edit = (set: (text: string) => void) => (event: JSX.TargetedInputEvent<HTMLInputElement>): void => {
    edited.current = true;
    set(event.currentTarget.value);
  };
  const matches = (rules?.rules ?? []).filter(({ link }) => link === name).flatMap((rule) => rule.matches);
  const ids = vlans(vlanText);
  const rule = { prefixes: items(prefixes), vlans: ids instanceof Error ? [] : ids, macs: items(macs) };
  const bytes = memory === "" ? undefined : parse("size", memory);
  const assign = (): void => {
    void run(async () => {
      const empty = rule.prefixes.length + rule.vlans.length + rule.macs.length + matches.length === 0;
      await api.links.setLinkRules(
        { link: name, rules: empty ? [] : [{ ...rule, matches }], ...(rules ? { expectedGeneration: rules.generation } : {}) },
        leased(name),
      );
      edited.current = false;
      await read();
    });
  };
  return (
    <>
      <Section title="Rules of links">
        <p class="note">Traffic without a rule belongs to main.</p>
        <Table label="links and their rules" head={["link", "profile", numeric("memory"), "lease", "rules"]}>
          {links.map((link) => (
            <tr key={link.name} data-rules={link.name}>
              <th scope="row">{command.linkId(link.name)}</th>
              <td>{link.profile}</td>
              <td class="number">{size(Number(link.memoryBytes))}</td>
              <td>{link.holder || "none"}</td>
              <td>
                {(rules?.rules ?? [])
                  .filter((one) => one.link === link.name)
                  .map((one) => [...one.prefixes, ...one.vlans.map((id) => `VLAN ${id}`), ...one.macs, ...one.matches.map(matchText)].join(", "))
                  .join("; ") || (link.name === MAIN ? "everything else" : "none")}
              </td>
            </tr>
          ))}
        </Table>
        <Refusal of={error} />
      </Section>
      {!may("operator") ? null : name === MAIN ? (
        <Section title="Add a link">
          <div class="fields">
            <label>
              name
              <input value={added} onInput={(event) => setAdded(event.currentTarget.value)} />
            </label>
            <label>
              memory (empty: an eighth of the box)
              <input value={memory} placeholder="512 MB" onInput={(event) => setMemory(event.currentTarget.value)} />
              {bytes instanceof Error && <span class="wrong" role="alert">{bytes.message}</span>}
            </label>
          </div>
          <div class="actions">
            <button
              type="button"
              class="primary"
              disabled={busy || added === "" || bytes instanceof Error}
              onClick={() =>
                void run(async () => {
                  await api.links.createLink({ linkId: added, link: bytes === undefined || bytes instanceof Error ? {} : { memoryBytes: bytes } });
                  setAdded("");
                  await read();
                })
              }
            >
              Add link {added}
            </button>
          </div>
          {added && !(bytes instanceof Error) && <Command text={command.addLink(added, bytes)} {...(bytes === undefined ? {} : { note: exactSize(bytes) })} />}
          <p class="note">Choose another link at the top to assign traffic to it.</p>
        </Section>
      ) : (
        <Section title={`Traffic of ${command.linkId(name)}`}>
          <div class="fields">
            <label>
              prefixes
              <input id="rule-prefixes" value={prefixes} placeholder="10.1.0.0/24" onInput={edit(setPrefixes)} />
            </label>
            <label>
              VLANs
              <input value={vlanText} onInput={edit(setVlanText)} />
            </label>
            <label>
              MACs
              <input value={macs} onInput={edit(setMacs)} />
            </label>
          </div>
          {ids instanceof Error && (
            <p class="wrong" role="alert">
              {ids.message}
            </p>
          )}
          {matches.length > 0 && <p class="note">Matches stay as they are: {matches.map(matchText).join("; ")}</p>}
          <div class="actions">
            <button type="button" class="primary" disabled={busy || ids instanceof Error} onClick={assign}>
              Assign
            </button>
            <button type="button" disabled={busy} onClick={() => void run(() => api.links.deleteLink({ name }, leased(name)).then(() => undefined))}>
              Remove link {command.linkId(name)}
            </button>
          </div>
          <Command text={[command.assignLink(name, { ...rule, matches: matches.map(matchText) }), command.removeLink(name)]} />
        </Section>
      )}
    </>
  );
}
