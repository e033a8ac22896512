// SPDX-License-Identifier: Apache-2.0
//! The lease of the link: who has it, and acquiring, extending and releasing one.

import { timestampDate } from "@bufbuild/protobuf/wkt";
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { may } from "../api/caller";
import { api, requestId } from "../api/client";
import { hold, leases, watchLease } from "../api/lease";
import { tokens } from "../api/tokens";
import type { Lease as Held } from "../gen/linkemu/v1/lease_pb";
import * as command from "../model/command";
import { exactTime, parse, utc } from "../model/units";
import { Command, Refusal, useAction } from "./parts";

const until = (lease: Held): string => (lease.expires ? `until ${utc(timestampDate(lease.expires))}` : "");
const purpose = (lease: Held): string => (lease.purpose ? ` for ${lease.purpose}` : "");

export function Lease({ name }: { name: string }): JSX.Element {
  useEffect(() => watchLease(name), [name]);
  const { lease, isLost } = leases.value.get(name) ?? { lease: undefined, isLost: false };
  const token = tokens.value.get(name);
  const isTaken = lease !== undefined && token === undefined;
  const id = command.linkId(name);
  const none = <>Lease of {id}: none; every operator can change the link</>;
  if (!lease && !isLost && !may("operator")) return <p class="lease" data-lease="none">{none}</p>;
  return (
    <>
      {isLost && (
        <p class="refusal" role="alert">
          <b>The lease of this page has ended:</b> it expired, or was released or revoked elsewhere. Look at the link before you change it.
        </p>
      )}
      <details class={isTaken ? "lease taken" : "lease"} data-lease={token ? "own" : lease ? "other" : "none"}>
        <summary>
          <span role="status">
            {!lease && none}
            {lease && token && (
              <>
                Lease of {id}: <b>yours</b>, as {lease.holder}, {until(lease)}
              </>
            )}
            {isTaken && (
              <>
                Lease of {id}: <b>{lease.holder}</b>
                {purpose(lease)}, {until(lease)}. Changes are refused: wait, or ask the holder.
              </>
            )}
          </span>
        </summary>
        {lease && <p class="note">
          Acquired by {lease.who}. It ends {until(lease).replace(/^until/, "at")} unless it is extended; then{" "}
          {lease.returnProfile ? `the profile ${lease.returnProfile} is set` : "the link stays as it is"}.
        </p>}
        {lease && token && <Own name={name} lease={lease} token={token} />}
        {!(lease && token) && may("operator") && <Acquire name={name} taken={lease} />}
      </details>
    </>
  );
}

function Own({ name, lease, token }: { name: string; lease: Held; token: string }): JSX.Element {
  const { busy, error, run } = useAction();
  const [copied, setCopied] = useState("");
  const extend = (): void => void run(async () => hold(name, await api.leases.renewLease({ link: name, token }), token));
  const release = (): void =>
    void run(async () => {
      await api.leases.releaseLease({ link: name, token });
      hold(name, undefined, undefined);
    });
  const copy = (): void => {
    // Without a secure context there is no clipboard.
    const done = navigator.clipboard ? navigator.clipboard.writeText(token) : Promise.reject(new Error());
    done.then(() => setCopied("copied"), () => setCopied(token));
  };
  return (
    <>
      <p class="note">Only this page has the token, and loses it when it is loaded again. For linkctl, copy it into LINKEMU_LEASE.</p>
      <div class="actions">
        <button type="button" class="primary" disabled={busy} onClick={extend}>
          Extend by {exactTime(lease.ttlNs)} from now
        </button>
        <button type="button" disabled={busy} onClick={release}>
          Release
        </button>
        <button type="button" onClick={copy}>
          Copy the token
        </button>
        <span class="note" role="status">
          {copied}
        </span>
      </div>
      <Refusal of={error} />
      <Command text={[command.lease(name, "renew"), command.lease(name, "release")]} />
    </>
  );
}

function Acquire({ name, taken }: { name: string; taken: Held | undefined }): JSX.Element {
  const [holder, setHolder] = useState("");
  const [what, setWhat] = useState("");
  const [ttl, setTtl] = useState("10 min");
  const [then, setThen] = useState("");
  const [steal, setSteal] = useState(false);
  const [given, setGiven] = useState("");
  const { busy, error, run } = useAction();
  const ttlNs = parse("time", ttl);
  const acquire = (): void => {
    if (ttlNs instanceof Error) return;
    void run(async () => {
      const request = { link: name, holder, purpose: what, ttlNs, returnProfile: then, steal, requestId: requestId() };
      const answer = await api.leases.acquireLease(request);
      hold(name, answer.lease, answer.token);
    });
  };
  // Renewing it is the test of a token.
  const take = (): void => void run(async () => hold(name, await api.leases.renewLease({ link: name, token: given.trim() }), given.trim()));
  const field = (label: string, value: string, set: (value: string) => void, placeholder = ""): JSX.Element => (
    <label>
      {label}
      <input value={value} placeholder={placeholder} onInput={(event) => set(event.currentTarget.value)} />
    </label>
  );
  return (
    <>
      <div class="fields">
        {field("holder", holder, setHolder, "you, or a job")}
        {field("purpose (optional)", what, setWhat)}
        {field("time to live, 1 s to 24 h", ttl, setTtl)}
        {field("profile to set at its end (empty: none)", then, setThen)}
      </div>
      {ttlNs instanceof Error && (
        <p class="wrong" role="alert">
          {ttlNs.message}
        </p>
      )}
      <div class="actions">
        <button type="button" class="primary" disabled={busy || holder === "" || ttlNs instanceof Error || (taken !== undefined && !steal)} onClick={acquire}>
          Acquire the lease
        </button>
        {taken && may("admin") && (
          <label class="inline">
            <input type="checkbox" checked={steal} onChange={(event) => setSteal(event.currentTarget.checked)} /> revoke the lease of {taken.holder}
          </label>
        )}
      </div>
      {!(ttlNs instanceof Error) && holder !== "" && <Command text={command.acquireLease(name, { holder, purpose: what, ttlNs, returnTo: then, steal: taken !== undefined && steal })} />}
      {taken && (
        <div class="actions">
          <label class="inline">
            token of this lease
            <input type="password" autocomplete="off" value={given} onInput={(event) => setGiven(event.currentTarget.value)} />
          </label>
          <button type="button" disabled={busy || given.trim() === ""} onClick={take}>
            Extend it, and use it here
          </button>
        </div>
      )}
      <Refusal of={error} />
    </>
  );
}
