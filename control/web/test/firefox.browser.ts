// SPDX-License-Identifier: Apache-2.0
//! A short form of the tests in Firefox, driven over WebDriver BiDi, which it speaks itself.

import { existsSync } from "node:fs";
import puppeteer, { type Browser, type Page } from "puppeteer-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Host, WAN_IP, WEB, json, linkctl, until } from "./box";

const FIREFOX = process.env.FIREFOX ?? "/usr/bin/firefox-esr";
const wanted = process.env.WEB_LONG === "1" && existsSync(FIREFOX);

const host = new Host();
let browser: Browser;
let page: Page;
const errors: string[] = [];

beforeAll(async () => {
  if (!wanted) return;
  await linkctl("set", "profile", "transparent");
  browser = await puppeteer.launch({ browser: "firefox", executablePath: FIREFOX, headless: true });
  page = await browser.newPage();
  page.on("pageerror", (error) => errors.push(String(error)));
  const { path } = await json("web");
  await page.goto(`${WEB}${path}`);
  await page.waitForSelector(".banner[role=status] time");
});

afterAll(async () => {
  await host.stop();
  await browser?.close();
});

const text = (selector: string): Promise<string> => page.$eval(selector, (element) => element.textContent ?? "");

test.runIf(wanted)("firefox_shows_live_figures_and_sets_a_profile", async () => {
  host.start("client", "ping", "-q", "-i", "0.02", WAN_IP);
  await until("the throughput is shown", async () => /bit\/s/.test(await text('[data-link="links/main"] [data-cell="forward"]')));
  await page.goto(`${WEB}/#/change`);
  await page.waitForSelector('#profile option[value="viasat2"]');
  await page.select("#profile", "viasat2");
  await page.evaluate(() => {
    const buttons = [...document.querySelectorAll("button")];
    buttons.find((button) => button.textContent === "Set profile viasat2")?.click();
  });
  await until("the profile is set", async () => (await json("show")).profile === "viasat2");
  await page.waitForSelector(".done:not(:empty)");
});

test.runIf(wanted)("firefox_shows_the_certificate", async () => {
  await page.goto(`${WEB}/#/certificate`);
  await page.waitForSelector(".verdict [data-criterion]");
  expect(await text(".verdict .result")).toMatch(/^(PASS|FAIL)/);
  expect(errors).toEqual([]);
});
