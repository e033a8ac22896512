// SPDX-License-Identifier: Apache-2.0
//! Reports as libtest does, which scripts/test.sh counts.

import type { UserConsoleLog } from "vitest";
import type { Reporter, TestCase, TestModule } from "vitest/node";

export default class Libtest implements Reporter {
  private readonly counts = { passed: 0, failed: 0, ignored: 0 };
  private readonly failures: string[] = [];
  private readonly begin = Date.now();

  onUserConsoleLog(log: UserConsoleLog): void {
    process.stdout.write(log.content);
  }

  onTestCaseResult(test: TestCase): void {
    const { state, errors } = test.result();
    const name = test.fullName.replaceAll(" > ", "::");
    const outcome = state === "passed" ? "ok" : state === "failed" ? "FAILED" : "ignored";
    this.counts[state === "passed" ? "passed" : state === "failed" ? "failed" : "ignored"] += 1;
    const seconds = ((test.diagnostic()?.duration ?? 0) / 1e3).toFixed(1);
    console.log(`test ${name} ... ${outcome}${state === "passed" ? ` (${seconds} s)` : ""}`);
    for (const error of errors ?? []) this.failures.push(`---- ${name} ----\n${error.stack ?? error.message}\n${error.diff ?? ""}`);
  }

  onTestRunEnd(modules: readonly TestModule[], errors: readonly { message?: string; stack?: string }[]): void {
    // Faults outside of tests, such as a file that cannot be read.
    const outside = [...errors, ...modules.flatMap((module) => module.errors())];
    for (const error of outside) this.failures.push(error.stack ?? error.message ?? "unknown error");
    const failed = this.counts.failed + outside.length;
    if (this.failures.length > 0) console.log(`\nfailures:\n\n${this.failures.join("\n\n")}\n`);
    const { passed, ignored } = this.counts;
    const seconds = ((Date.now() - this.begin) / 1e3).toFixed(2);
    console.log(`test result: ${failed > 0 ? "FAILED" : "ok"}. ${passed} passed; ${failed} failed; ${ignored} ignored; finished in ${seconds}s\n`);
  }
}
