// SPDX-License-Identifier: Apache-2.0
//! The `linkctl` command that does the same as an action of the page.

import { exactRate, exactSize, exactTime, percent } from "./units";

/** The name of a link without "links/". */
export const linkId = (name: string): string => name.replace(/^links\//, "");

/** A word for a POSIX shell, quoted if it needs it. */
export function quote(word: string): string {
  return /^[A-Za-z0-9_.,:/@%+=-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

export function shell(words: readonly string[]): string {
  return words.map(quote).join(" ");
}

/** `linkctl`, with `--link` unless it is about main. */
export function linkctl(link: string, ...words: string[]): string {
  const id = linkId(link);
  return shell(["linkctl", ...(id === "main" || id === "" ? [] : ["--link", id]), ...words]);
}

export type Way = "forward" | "return" | "both";

/** Quantities without the space, as linkctl's arguments usually are. */
const tight = (text: string): string => text.replaceAll(" ", "");

/** New values of one direction. An absent one stays. */
export interface Values {
  /** bit/s; 0: down; "unlimited". */
  rateBps?: bigint | "unlimited";
  baseNs?: bigint;
  slotNs?: bigint;
  limitBytes?: bigint;
  /** 0 to 1. */
  packetLoss?: number;
}

/** The lines of TOML that a patch has, as in a profile. */
export function patchLines(values: Values): string[] {
  const lines: string[] = [];
  if (values.rateBps !== undefined) lines.push(`rate = "${rateText(values.rateBps)}"`);
  if (values.baseNs !== undefined) lines.push(`delay.base = "${exactTime(values.baseNs)}"`);
  if (values.slotNs !== undefined) lines.push(`delay.slot = "${exactTime(values.slotNs)}"`);
  if (values.limitBytes !== undefined) lines.push(`queue.limit = "${exactSize(values.limitBytes)}"`);
  if (values.packetLoss !== undefined) lines.push(`packet_loss = "${percent(values.packetLoss)}"`);
  return lines;
}

export function rateText(bps: bigint | "unlimited"): string {
  return bps === "unlimited" ? bps : bps === 0n ? "down" : exactRate(bps);
}

function directed(way: Way): string[] {
  return way === "both" ? [] : ["--direction", way];
}

/** `linkctl set rate`, `set delay` or `set queue` for one value, else `set part`. */
export function setValues(link: string, way: Way, values: Values, generation?: bigint): string {
  const expected = generation === undefined ? [] : ["--expect-generation", generation.toString()];
  const given = Object.keys(values).filter((key) => values[key as keyof Values] !== undefined);
  const rest = [...directed(way), ...expected];
  if (given.length === 1 && values.rateBps !== undefined) {
    return linkctl(link, "set", "rate", tight(rateText(values.rateBps)), ...rest);
  }
  if (given.length === 1 && values.baseNs !== undefined) {
    return linkctl(link, "set", "delay", tight(exactTime(values.baseNs)), ...rest);
  }
  if (given.length === 1 && values.limitBytes !== undefined) {
    return linkctl(link, "set", "queue", tight(exactSize(values.limitBytes)), ...rest);
  }
  return linkctl(link, "set", "part", ...patchLines(values), ...rest);
}

export function setProfile(link: string, profile: string, seed?: bigint, generation?: bigint): string {
  const words = ["set", "profile", profile];
  if (seed !== undefined) words.push("--seed", seed.toString());
  if (generation !== undefined) words.push("--expect-generation", generation.toString());
  return linkctl(link, ...words);
}

/** A scenario by name, or a file. */
export function runScenario(link: string, scenario: string, options: { detach?: boolean; dryRun?: boolean } = {}): string {
  const words = ["scenario", "run", scenario];
  if (options.dryRun) words.push("--dry-run");
  if (options.detach) words.push("--detach");
  return linkctl(link, ...words);
}

export const scenario = (link: string, verb: "pause" | "resume" | "status" | "watch"): string =>
  linkctl(link, "scenario", verb);
export const stopScenario = (link: string, restore: boolean): string =>
  linkctl(link, "scenario", "stop", ...(restore ? ["--restore"] : []));

export interface Limits {
  packets?: bigint;
  emulatorDrops?: bigint;
  latenessNs?: bigint;
  stallNs?: bigint;
  memoryPercent?: number;
  changes?: bigint;
}

export function certificate(link: string, limits: Limits, mark: boolean): string {
  const words = ["certificate"];
  if (mark) words.push("--mark");
  if (limits.packets !== undefined) words.push("--min-packets", limits.packets.toString());
  if (limits.emulatorDrops !== undefined) words.push("--max-drops", limits.emulatorDrops.toString());
  if (limits.latenessNs !== undefined) words.push("--max-lateness", tight(exactTime(limits.latenessNs)));
  if (limits.stallNs !== undefined) words.push("--max-stall", tight(exactTime(limits.stallNs)));
  if (limits.memoryPercent !== undefined) words.push("--max-memory", limits.memoryPercent.toString());
  if (limits.changes !== undefined) words.push("--max-changes", limits.changes.toString());
  return linkctl(link, ...words);
}

export const mark = (link: string): string => linkctl(link, "stats", "--mark");

export function capture(
  link: string,
  options: { clients: readonly string[]; way: Way; snaplen: number; count: bigint; durationNs: bigint; file: string },
): string {
  const words = ["capture"];
  for (const client of options.clients) words.push("--client", client);
  if (options.way !== "both") words.push("--direction", options.way);
  if (options.snaplen !== 128) words.push("--snaplen", `${options.snaplen}B`);
  if (options.count > 0n) words.push("--count", options.count.toString());
  if (options.durationNs > 0n) words.push("--duration", tight(exactTime(options.durationNs)));
  return linkctl(link, ...words, "--write", options.file);
}

export const lease = (link: string, verb: "renew" | "release"): string => linkctl(link, "lease", verb);

export interface LeaseTerms {
  holder: string;
  purpose: string;
  ttlNs: bigint;
  /** Empty: the link stays. */
  returnTo: string;
  steal: boolean;
}

export function acquireLease(link: string, terms: LeaseTerms): string {
  const words = ["lease", "acquire", "--holder", terms.holder];
  if (terms.purpose !== "") words.push("--purpose", terms.purpose);
  words.push("--ttl", tight(exactTime(terms.ttlNs)));
  if (terms.returnTo !== "") words.push("--return-to", terms.returnTo);
  if (terms.steal) words.push("--steal");
  return linkctl(link, ...words);
}

export const doctor = (): string => "linkctl doctor";
export const envelope = (link: string): string => linkctl(link, "envelope");
export const show = (link: string): string => linkctl(link, "show");
export const top = (link: string): string => linkctl(link, "top");
export const listClients = (link: string): string => linkctl(link, "clients", "list");
export const setClients = (link: string, file: string): string => linkctl(link, "clients", "set", file);

/** A rule by its simple conditions; other matches as their TOML. */
export interface Rule {
  prefixes: readonly string[];
  vlans: readonly number[];
  macs: readonly string[];
  matches?: readonly string[];
}

function ruleWords(rule: Rule): string[] {
  return [
    ...rule.prefixes.flatMap((prefix) => ["--prefix", prefix]),
    ...rule.vlans.flatMap((vlan) => ["--vlan", vlan.toString()]),
    ...rule.macs.flatMap((mac) => ["--mac", mac]),
    ...(rule.matches ?? []).flatMap((match) => ["--match", match]),
  ];
}

export const addLink = (name: string, memory?: bigint, clients?: number): string =>
  shell([
    "linkctl",
    "link",
    "add",
    name,
    ...(memory === undefined ? [] : ["--memory", tight(exactSize(memory))]),
    ...(clients === undefined ? [] : ["--clients", clients.toString()]),
  ]);
export const removeLink = (name: string): string => shell(["linkctl", "link", "remove", linkId(name)]);
export const assignLink = (name: string, rule: Rule): string =>
  shell(["linkctl", "link", "assign", linkId(name), ...ruleWords(rule)]);
