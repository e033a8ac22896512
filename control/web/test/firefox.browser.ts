// SPDX-License-Identifier: Apache-2.0
//! The whole experiment in Firefox, driven over WebDriver BiDi, which it speaks itself.

import { existsSync, mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import puppeteer, { type Browser, type ElementHandle, type Page } from "puppeteer-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Host, WEB, json, linkctl, until } from "./box";
import { type Driver, capturePackets, fitLog, halveTheRate, judgeRuns, pingLog, playRainFade } from "./experiment";

const FIREFOX = process.env.FIREFOX ?? "/usr/bin/firefox-esr";
const wanted = process.env.WEB_LONG === "1" && existsSync(FIREFOX);

const host = new Host();
let browser: Browser;
let page: Page;
let directory: string;
const errors: string[] = [];

beforeAll(async () => {
  if (!wanted) return;
  directory = mkdtempSync(join(tmpdir(), "linkemu-web-firefox-"));
  await linkctl("set", "profile", "transparent", "--seed", "1");
  browser = await puppeteer.launch({
    browser: "firefox",
    executablePath: FIREFOX,
    headless: true,
    defaultViewport: { width: 1180, height: 900 },
    extraPrefsFirefox: { "browser.download.dir": directory, "browser.download.folderList": 2, "browser.download.useDownloadDir": true },
  });
  page = await browser.newPage();
  page.on("pageerror", (error) => errors.push(String(error)));
  const { path } = await json("web");
  await page.goto(`${WEB}${path}`);
  await page.waitForSelector(".banner[role=status] time");
});

afterAll(async () => {
  await host.stop();
  await browser?.close();
  if (directory) rmSync(directory, { recursive: true, force: true });
});

async function one(selector: string, text = ""): Promise<ElementHandle<Element>> {
  return until(`there is ${selector} with "${text}"`, async () => {
    const found = await page.evaluateHandle((what, has) => [...document.querySelectorAll(what)].find((element) => element.textContent?.includes(has)), selector, text);
    return (found.asElement() as ElementHandle<Element> | null) ?? false;
  });
}

/** A button that is disabled takes no click: it is waited for. */
async function click(selector: string, text: string): Promise<void> {
  const found = await one(selector, text);
  await until(`"${text}" can be clicked`, () => found.evaluate((element) => !(element as HTMLButtonElement).disabled));
  await found.click();
}

const driver = (): Driver => ({
  directory,
  go: async (fragment) => {
    await page.evaluate((hash) => (location.hash = hash), fragment);
    const view = fragment.slice(2);
    await page.waitForSelector(`nav a[aria-current="page"][href^="#/${view}"]`);
  },
  texts: (selector) => page.$$eval(selector, (all) => all.map((element) => element.textContent ?? "")),
  attribute: (selector, name) => page.evaluate((what, key) => document.querySelector(what)?.getAttribute(key) ?? null, selector, name),
  click,
  fill: async (selector, text) => {
    const field = await one(selector);
    await field.evaluate((element) => (element as HTMLInputElement).select());
    await field.focus();
    await page.keyboard.type(text);
    await page.keyboard.press("Tab");
  },
  select: async (selector, value) => {
    await one(selector);
    await page.select(selector, value);
  },
  choose: async (selector, file) => {
    await ((await one(selector)) as ElementHandle<HTMLInputElement>).uploadFile(file);
  },
  download: async (button, name) => {
    const file = join(directory, name);
    rmSync(file, { force: true });
    await click("button", button);
    // Firefox makes an empty file first, and writes another one.
    await until(`${name} is saved`, () => existsSync(file) && statSync(file).size > 0 && !existsSync(`${file}.part`));
    return file;
  },
  api: (method, body = {}) =>
    page.evaluate(
      async (name, content) => {
        const answer = await fetch(`/linkemu.v1.${name}`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(content) });
        if (!answer.ok) throw new Error(`${name}: ${await answer.text()}`);
        return answer.json();
      },
      method,
      body,
    ),
  picture: async () => undefined,
});

test.runIf(wanted)("firefox_whole_experiment_shows_the_figures_of_the_api", { timeout: 600_000 }, async () => {
  await halveTheRate(driver(), host);
  await playRainFade(driver(), false);
  await judgeRuns(driver(), host);
  const log = join(directory, "train.log");
  pingLog(log, 6_000);
  await fitLog(driver(), log, "train");
  await capturePackets(driver(), host);
  expect(errors).toEqual([]);
});
