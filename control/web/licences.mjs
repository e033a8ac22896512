// SPDX-License-Identifier: Apache-2.0
// Writes dist/licences.txt: the licences of the libraries that the page contains.

import { existsSync, readFileSync, readdirSync, writeFileSync } from "node:fs";

const { packages } = JSON.parse(readFileSync("package-lock.json", "utf8"));
const parts = [];
for (const [path, { version, dev, optional, peer }] of Object.entries(packages)) {
  if (path === "" || dev || optional || peer || !existsSync(path)) continue;
  const { license } = JSON.parse(readFileSync(`${path}/package.json`, "utf8"));
  const file = readdirSync(path).find((name) => /^(licen[cs]e|copying)/i.test(name));
  const text = file ? readFileSync(`${path}/${file}`, "utf8").trim() : "";
  parts.push(`${path.replace(/^.*node_modules\//, "")} ${version}, ${license}\n\n${text}`.trim());
}
if (parts.length === 0) throw new Error("package-lock.json has no libraries");
writeFileSync("dist/licences.txt", `${parts.join(`\n\n${"-".repeat(78)}\n\n`)}\n`);
