// SPDX-License-Identifier: Apache-2.0
//! A whole experiment in the page, in any browser: a profile, traffic, half of the rate, a rain fade, a
//! passing and a failing certificate, a fit of a measured log, and a capture. Each figure is compared with
//! that of the API.

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect } from "vitest";
import { rate, utc } from "../src/model/units";
import { Host, WAN_IP, certificate, download, json, linkctl, pid, shell, until } from "./box";

// Answers have the shapes of the API's documentation.
// eslint-disable-next-line @typescript-eslint/no-explicit-any
type Json = any;

/** What both drivers of browsers can do with a page. */
export interface Driver {
  /** Where files are saved. */
  directory: string;
  /** Goes to a view of the page that is open. */
  go(fragment: string): Promise<void>;
  /** The text of each element, in order of the page. */
  texts(selector: string): Promise<string[]>;
  attribute(selector: string, name: string): Promise<string | null>;
  /** Clicks the first element with a text. */
  click(selector: string, text: string): Promise<void>;
  /** Replaces the text of a field, and leaves it. */
  fill(selector: string, text: string): Promise<void>;
  select(selector: string, value: string): Promise<void>;
  /** Chooses a file of this machine. */
  choose(selector: string, file: string): Promise<void>;
  /** Clicks a button that saves a file; returns its path. */
  download(button: string, name: string): Promise<string>;
  /** Calls a method of linkemu.v1 as JSON, with the session of the page. */
  api(method: string, body?: unknown): Promise<Json>;
  /** A picture for the documentation, which begins with an element. */
  picture(name: string, from?: string): Promise<void>;
}

const MAIN = '[data-link="links/main"]';
const mbps = (text: string | undefined): number => Number(/^([\d.]+) Mbit\/s$/.exec(text ?? "")?.[1] ?? Number.NaN);

/** Bits per second to the clients, by linkctl over a second. */
async function sent(): Promise<number> {
  const bytes = (stats: Json): number => stats.clients.reduce((sum: number, one: Json) => sum + one.forward_pipe.sent.bytes, 0);
  const a = await json("stats");
  await new Promise((resolve) => setTimeout(resolve, 1_000));
  const b = await json("stats");
  return ((bytes(b) - bytes(a)) * 8e9) / (b.time_ns - a.time_ns);
}

const command = async (driver: Driver, heading: string): Promise<string> =>
  (await driver.attribute(`section[aria-labelledby="${heading}"] [data-command]`, "data-command")) ?? "";

const first = async (driver: Driver, selector: string): Promise<string> => (await driver.texts(selector))[0] ?? "";

async function wait(driver: Driver, selector: string, text = "", seconds = 20): Promise<string> {
  return until(`${selector} has "${text}"`, async () => (await driver.texts(selector)).find((one) => one.includes(text)), seconds);
}

/** The link is viasat2 without its variation; the page halves its rate under traffic, and reverts it. */
export async function halveTheRate(driver: Driver, host: Host): Promise<void> {
  await driver.go("#/change");
  await wait(driver, "#profile option", "viasat2");
  await driver.select("#profile", "viasat2");
  await driver.click("button", "Set profile viasat2");
  await wait(driver, ".done", "generation");
  expect((await json("show")).profile.name).toBe("viasat2");
  // Without the variation of the profile, to compare rates.
  await linkctl("set", "part", 'capacity = "none"', "outages = []", "--direction", "forward");
  download(host, "100M");

  await driver.go("#/links");
  const shown = async (): Promise<number> => mbps(await first(driver, `${MAIN} [data-cell="forward"]`));
  await until("the download is shown", async () => (await shown()) > 80);
  const full = (await sent()) / 1e6;
  await until("the page shows the rate of linkctl", async () => Math.abs((await shown()) - full) < 0.1 * full);

  await driver.go("#/change");
  const { generation } = (await json("show")).applied;
  await driver.click('[aria-label="forward rate"] button', "halve");
  expect(await command(driver, "Values")).toBe(`linkctl set rate 72Mbit/s --direction forward --expect-generation ${generation}`);
  await driver.click("button", "Apply");
  await until("the rate is set", async () => (await json("show")).applied.generation === generation + 1);
  expect((await json("show")).profile.forward_pipe.rate_bps).toBe(72_000_000);
  await driver.go("#/links");
  await wait(driver, ".lane", rate(72e6));
  await until("the throughput falls", async () => (await shown()) < 72);
  const half = (await sent()) / 1e6;
  // Frames that were late at the begin of the second are sent within it.
  expect(half).toBeLessThan(1.05 * 72);
  await until("the page shows the lower rate of linkctl", async () => Math.abs((await shown()) - half) < 0.1 * half);
  // The queue fills: its fill level is drawn.
  await until("the queue is shown", async () => Number(await driver.attribute('[role=meter][aria-label="longest forward queue"]', "aria-valuenow")) > 3);
  await driver.picture("links");

  await driver.go("#/change");
  await driver.click("button", `Revert to generation ${generation}`);
  await until("the link is reverted", async () => (await json("show")).profile.forward_pipe.rate_bps === 144_000_000);
  await host.stop();
}

/** Plays rain-fade: to its end, or in the short form until its first step. */
export async function playRainFade(driver: Driver, isLong: boolean): Promise<void> {
  const { name: profile } = (await json("show")).profile;
  await driver.go("#/scenario");
  await wait(driver, "#main option", "rain-fade");
  await driver.select("#scenario-file", "rain-fade");
  await wait(driver, ".timeline .step", "rain grows");
  expect(await command(driver, "Run")).toBe("linkctl scenario run rain-fade --detach");
  await driver.click("button", "Check");
  await wait(driver, "[role=status]", "Valid:");
  await driver.click("button", "Play rain-fade");
  await wait(driver, '[data-phase="running"]');
  await until("the first step is done", async () => (await json("scenario", "status")).steps_done > 0);
  if (isLong) {
    await wait(driver, '[data-phase="finished"]', "", 330);
  } else {
    await driver.click("button", "Pause");
    await wait(driver, '[data-phase="paused"]');
  }
  const state = await json("scenario", "status");
  expect([state.name, state.phase]).toEqual(["rain-fade", isLong ? "SCENARIO_PHASE_FINISHED" : "SCENARIO_PHASE_PAUSED"]);
  expect(await driver.attribute("[data-phase]", "data-steps")).toBe(String(state.steps_done));
  expect(await driver.attribute("[data-phase]", "data-late")).toBe(String(state.late_max_ns));
  if (isLong) return;
  // The shown command resumes it.
  await shell(`${(await command(driver, "Run")).split("\n")[0] ?? ""} >&2`);
  await wait(driver, '[data-phase="running"]');
  await driver.click("button", "Stop and restore the link");
  await wait(driver, '[data-phase="stopped"]');
  expect((await json("show")).profile.name).toBe(profile);
}

/** A run that passes, and one that does not since the emulator stood still. */
export async function judgeRuns(driver: Driver, host: Host): Promise<void> {
  await linkctl("set", "profile", "transparent");
  await driver.go("#/certificate");
  await wait(driver, ".verdict");
  await driver.click("button", "Mark: begin a run");
  await wait(driver, "[role=status]", "a run has begun");
  await host.run("client", "ping", "-q", "-c", "20", "-i", "0.01", WAN_IP);
  await driver.fill("#limit-latenessNs", "10 s");
  await driver.fill("#limit-stallNs", "10 s");
  await driver.click("button", "Judge the run");
  await wait(driver, '.verdict[data-holds="true"] .result', "PASS");
  const passing = await certificate("--max-lateness", "10s", "--max-stall", "10s");
  expect(passing.holds).toBe(true);
  expect(await first(driver, ".verdict .note")).toContain(`run since ${utc(new Date(passing.span.since_utc))}`);
  await driver.picture("certificate");

  process.kill(pid("dataplane"), "SIGSTOP");
  await new Promise((resolve) => setTimeout(resolve, 300));
  process.kill(pid("dataplane"), "SIGCONT");
  await driver.fill("#limit-stallNs", "100 ms");
  await driver.click("button", "Judge the run");
  await wait(driver, '.verdict[data-holds="false"] .result', "stall");
  const failing = await certificate("--max-lateness", "10s", "--max-stall", "100ms");
  expect(failing.holds).toBe(false);
  for (const one of failing.criteria) {
    const value = await driver.attribute(`[data-criterion="${one.name}"] [data-value]`, "data-value");
    expect([one.name, Number(value)]).toEqual([one.name, one.value]);
  }
  expect(await command(driver, "Verdict")).toContain("linkctl certificate --max-lateness 10s --max-stall 100ms");

  // The history is linkd's. A mark by linkctl ends the run.
  await linkctl("stats", "--mark");
  await driver.click("button", "Judge the run");
  const { certificates } = await until("the new run is listed", async () => {
    const all = await driver.api("Certificates/ListCertificates");
    return all.certificates[0].since !== all.certificates[1].since && all;
  });
  expect(certificates[1].marked).toBe(true);
  const expected = certificates.map(({ certificate: { holds, criteria } }: Json) => (holds ? "PASS" : "FAIL") + criteria.filter((one: Json) => !one.holds).map((one: Json) => one.text).join("; "));
  await until("the history has the certificates of linkd", async () => (await driver.texts("[data-listed]")).length === expected.length);
  expect((await driver.texts("[data-listed]")).map((text) => text.replace(/^.*(?=PASS|FAIL)/s, ""))).toEqual(expected);
  expect(new Set(expected.map((text: string) => text.slice(0, 4)))).toEqual(new Set(["PASS", "FAIL"]));
}

/** The superframe of the return direction in ms, which a fit finds. */
const SLOT = 41.47;

/** A log of ping at 10 probes per second over a link with a round trip of 560 ms, a slot, and a loss of 1 %. The seed is fixed. */
export function pingLog(file: string, probes: number): void {
  let state = 1;
  const random = (): number => {
    state = (state * 48_271) % 2_147_483_647;
    return state / 2_147_483_647;
  };
  const lines = ["PING 10.0.0.2 (10.0.0.2) 56(84) bytes of data."];
  for (let sequence = 1; sequence <= probes; sequence++) {
    const rtt = 560 + SLOT - ((100 * sequence) % SLOT);
    if (random() > 0.01) lines.push(`[${(1_750_000_000 + 0.1 * sequence + rtt / 1e3).toFixed(6)}] 64 bytes from 10.0.0.2: icmp_seq=${sequence} ttl=64 time=${rtt.toFixed(0)} ms`);
  }
  writeFileSync(file, `${lines.join("\n")}\n`);
}

/** Fits a log, stores the profile, and verifies it. */
export async function fitLog(driver: Driver, log: string, name: string): Promise<void> {
  await driver.go("#/fit");
  await driver.choose("#log", log);
  await driver.fill("#fit-name", name);
  await driver.fill("#fit-like", "viasat2");
  await driver.select("#fit-lossesIn", "forward");
  const fit = await command(driver, "Log");
  expect(fit).toBe(`linkctl fit ${log.split("/").at(-1)} --name ${name} --like viasat2 --losses-in forward --write ${name}.toml`);
  await driver.click("button", "Fit a profile");
  await wait(driver, "[data-summary]", "", 60);
  const { jobs } = await driver.api("Jobs/ListJobs");
  const job = await driver.api("Jobs/GetJob", { name: jobs.at(-1).name });
  expect(job.state).toBe("JOB_STATE_DONE");
  expect(await driver.texts("[data-summary]")).toEqual(job.fit.summary.map((line: Json) => line.name + line.text));
  expect((await driver.texts("[data-summary]")).join("\n")).toContain(`capacity on demand each ${SLOT} ms`);
  // The shown command writes the same profile; dates and paths differ.
  await shell(`${fit} >&2`, driver.directory);
  const written = readFileSync(join(driver.directory, `${name}.toml`), "utf8");
  const values = (toml: string): string[] => toml.split("\n").filter((line) => /^(rate|delay|queue|packet_loss|interval|duration|quantiles|base|slot|scale|\[)/.test(line));
  expect(values(job.fit.toml)).toEqual(values(written));
  const saved = readFileSync(await driver.download(`Save ${name}.toml`, `${name}.toml`), "utf8");
  expect(saved).toBe(job.fit.toml);

  await driver.click("button", "Store the profile");
  await wait(driver, "[role=status]", `Stored as ${name}`);
  const stored = await driver.api("Linkemu/GetProfile", { name });
  for (const way of ["forwardPipe", "returnPipe"]) expect(stored[way]).toEqual(job.fit.profile[way]);
  expect((await json("profile", "list")).stored).toContain(name);

  await driver.click("button", "Verify it against");
  await wait(driver, "[data-verdict]", "", 120);
  const all = await driver.api("Jobs/ListJobs");
  const { verify } = await driver.api("Jobs/GetJob", { name: all.jobs.at(-1).name });
  expect(await driver.attribute("[data-verdict]", "data-verdict")).toBe(verify.verdict.replace("VERDICT_", ""));
  expect(await driver.texts("[data-figure] th")).toEqual(verify.figures.map((one: Json) => one.figure));
  for (const one of verify.figures) {
    const cells = `[data-figure="${one.group}: ${one.figure}"]`;
    expect([one.figure, Number(await driver.attribute(`${cells} [data-value]`, "data-value"))]).toEqual([one.figure, Number(one.baseline ?? 0)]);
    expect([one.figure, Number(await driver.attribute(`${cells} td:nth-child(3)`, "data-value"))]).toEqual([one.figure, Number(one.link ?? 0)]);
    expect([one.figure, await first(driver, `${cells} td:last-child`)]).toEqual([one.figure, one.verdict.replace("VERDICT_", "")]);
  }
  await driver.picture("fit", "#Profile");
  await linkctl("profile", "delete", name);
}

/** Captures lossy traffic; tshark reads what the table shows. */
export async function capturePackets(driver: Driver, host: Host): Promise<void> {
  await linkctl("set", "profile", "transparent");
  await linkctl("set", "loss", "50%", "--direction", "forward");
  await driver.go("#/capture");
  await wait(driver, "#capture-duration");
  await driver.fill("#capture-duration", "2 s");
  await driver.click("button", "Start");
  await host.run("client", "ping", "-q", "-c", "60", "-i", "0.01", "-W", "1", WAN_IP).catch(() => undefined);
  await wait(driver, "button", "Start");
  const number = async (name: string): Promise<number> => Number(await driver.attribute("[data-copies]", `data-${name}`));
  const [copies, dropped] = [await number("copies"), await number("dropped")];
  expect(dropped).toBeGreaterThan(5);
  const file = await driver.download("Download run.pcapng", "run.pcapng");
  const lines = (await shell(`tshark -r ${file} -T fields -e frame.interface_name -e frame.packet_id -e icmp.type -e frame.comment`)).trim().split("\n");
  expect(lines.length).toBe(copies);
  expect(lines.filter((line) => line.startsWith("forward-drop")).length).toBe(dropped);
  expect(lines.filter((line) => line.includes("dropped: loss")).length).toBe(dropped);
  expect(lines.filter((line) => line.includes("\t8\t") || line.includes("\t0\t")).length).toBeGreaterThan(60);
  // A packet is one row, with the number that it has in the file.
  const numbers = new Set(lines.map((line) => line.split("\t")).map(([at, number]) => `${at?.split("-")[0]} ${number}`));
  const rows = await driver.texts(".fates tr td:nth-child(1)");
  const ways = await driver.texts(".fates tr td:nth-child(3)");
  expect(new Set(rows.map((row, at) => `${ways[at]} ${row}`))).toEqual(numbers);
}
