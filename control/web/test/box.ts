// SPDX-License-Identifier: Apache-2.0
//! The box that `bed --web` has made around this program, its linkctl and its hosts, and a browser.

import { type ChildProcess, execFile, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { type BrowserContext, type Page, chromium } from "playwright-core";
import type { Driver } from "./experiment";

const execute = promisify(execFile);

function variable(name: string): string {
  const value = process.env[name];
  if (value === undefined) throw new Error(`${name} is not set: run this as control/web/check.sh does`);
  return value;
}

export const WEB = variable("BED_WEB");
const BIN = variable("LINKEMU_BIN");
const ENV = { ...process.env, PATH: `${BIN}:${process.env.PATH}` };

/** Runs a line in a shell whose PATH has linkctl. */
export async function shell(line: string, directory?: string): Promise<string> {
  const { stdout } = await execute("sh", ["-euc", line], { env: ENV, timeout: 30_000, ...(directory === undefined ? {} : { cwd: directory }) });
  return stdout;
}

export async function linkctl(...words: string[]): Promise<string> {
  const { stdout } = await execute(join(BIN, "linkctl"), words, { timeout: 30_000 });
  return stdout;
}

// linkctl's answers have the shapes of its documentation.
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export async function json(...words: string[]): Promise<any> {
  return JSON.parse(await linkctl("-o", "json", ...words));
}

/** A certificate that fails has exit code 4, and is printed all the same. */
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export async function certificate(...words: string[]): Promise<any> {
  try {
    return await json("certificate", ...words);
  } catch (error) {
    const { code, stdout } = error as { code?: number; stdout?: string };
    if (code !== 4 || !stdout) throw error;
    return JSON.parse(stdout);
  }
}

/** A command on a host of the bed, until `stop`. */
export class Host {
  private readonly children: ChildProcess[] = [];

  start(side: "wan" | "client", ...words: string[]): void {
    const namespace = variable(side === "wan" ? "BED_WAN_NS" : "BED_CLIENT_NS");
    this.children.push(spawn("ip", ["netns", "exec", namespace, ...words], { stdio: "ignore" }));
  }

  async run(side: "wan" | "client", ...words: string[]): Promise<string> {
    const namespace = variable(side === "wan" ? "BED_WAN_NS" : "BED_CLIENT_NS");
    const { stdout } = await execute("ip", ["netns", "exec", namespace, ...words], { timeout: 30_000 });
    return stdout;
  }

  async stop(): Promise<void> {
    const ended = this.children.map((child) => (child.exitCode === null && child.signalCode === null ? new Promise((resolve) => child.once("exit", resolve)) : undefined));
    for (const child of this.children) child.kill();
    await Promise.all(ended);
    this.children.length = 0;
  }
}

export const WAN_IP = variable("BED_WAN_IP");
export const CLIENT_IP = variable("BED_CLIENT_IP");

/** UDP towards the client at a rate, for as long as it is not stopped. */
export function download(host: Host, rate: string): void {
  host.start("client", "iperf3", "--server", "--one-off");
  host.start("wan", "sh", "-c", `until iperf3 --client ${CLIENT_IP} --udp --bitrate ${rate} --length 1200 --time 600; do sleep 0.1; done`);
}

/** The pid of linkd or of the dataplane. */
export function pid(program: "linkd" | "dataplane"): number {
  return Number(readFileSync(join(variable("BED_DIR"), `${program}.pid`), "utf8").trim().split(/\s/)[0]);
}

/** Waits until a check returns something other than undefined or false. */
export async function until<T>(what: string, check: () => Promise<T | undefined | false> | T | undefined | false, seconds = 20): Promise<T> {
  const deadline = Date.now() + seconds * 1_000;
  for (;;) {
    const found = await check();
    if (found !== undefined && found !== false) return found;
    if (Date.now() > deadline) throw new Error(`${seconds} s are over, and not: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];

/** A browser with an empty profile, logged in by a link of `linkctl web`. */
export class Browser {
  private constructor(
    readonly context: BrowserContext,
    private readonly profile: string,
    /** What pages wrote to the console as an error, and exceptions. */
    readonly errors: string[],
  ) {}

  static async start(): Promise<Browser> {
    const profile = mkdtempSync(join(tmpdir(), "linkemu-web-"));
    const context = await chromium.launchPersistentContext(profile, {
      executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
      headless: true,
      args: FLAGS,
      viewport: { width: 1180, height: 900 },
      acceptDownloads: true,
    });
    const errors: string[] = [];
    context.on("console", (message) => {
      if (message.type() === "error") errors.push(message.text());
    });
    context.on("weberror", (error) => errors.push(String(error.error())));
    return new Browser(context, profile, errors);
  }

  async login(): Promise<void> {
    const page = await this.context.newPage();
    const { path } = await json("web");
    await page.goto(`${WEB}${path}`);
    await page.waitForSelector("main h1");
    await page.close();
  }

  async open(fragment: string, width = 1180): Promise<Page> {
    const page = await this.context.newPage();
    await page.setViewportSize({ width, height: 900 });
    await page.goto(`${WEB}/${fragment}`);
    await page.waitForSelector(".banner[role=status] time");
    return page;
  }

  /** Drives one page of this browser. */
  async driver(directory: string, picture: (page: Page, name: string, from?: string) => Promise<void>): Promise<Driver> {
    const page = await this.open("#/links");
    const one = (selector: string, text: string) => page.locator(selector, { hasText: text }).first();
    return {
      directory,
      go: async (fragment) => {
        await page.goto(`${WEB}/${fragment}`);
      },
      texts: (selector) => page.locator(selector).evaluateAll((all) => all.map((element) => element.textContent ?? "")),
      attribute: (selector, name) => page.evaluate(([found, key]) => document.querySelector(found ?? "")?.getAttribute(key ?? "") ?? null, [selector, name]),
      click: (selector, text) => one(selector, text).click(),
      fill: async (selector, text) => {
        await page.locator(selector).fill(text);
        await page.locator(selector).press("Tab");
      },
      select: async (selector, value) => {
        await page.locator(selector).selectOption(value);
      },
      choose: (selector, file) => page.locator(selector).setInputFiles(file),
      download: async (button, name) => {
        const saved = page.waitForEvent("download");
        await one("button", button).click();
        const file = join(directory, `saved-${name}`);
        await (await saved).saveAs(file);
        return file;
      },
      api: async (method, body = {}) => {
        const answer = await this.context.request.post(`${WEB}/linkemu.v1.${method}`, { headers: { Origin: WEB }, data: body });
        if (!answer.ok()) throw new Error(`${method}: ${await answer.text()}`);
        return answer.json();
      },
      picture: (name, from) => picture(page, name, from),
    };
  }

  async stop(): Promise<void> {
    await this.context.close();
    rmSync(this.profile, { recursive: true, force: true });
  }
}

/** The text of the equivalent command in a section. */
export async function commandOf(page: Page, section: string): Promise<string> {
  return (await page.locator(`section:has(h2:text-is("${section}")) [data-command]`).getAttribute("data-command")) ?? "";
}
