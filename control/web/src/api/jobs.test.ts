// SPDX-License-Identifier: Apache-2.0
import { Code, ConnectError, createRouterTransport } from "@connectrpc/connect";
import { describe, expect, it } from "vitest";
import { JobInput, JobKind, JobState, Jobs } from "../gen/linkemu/v1/jobs_pb";
import { use } from "./client";
import { runJob } from "./jobs";

const MIB = 1 << 20;

/** A linkd that refuses the upload at an offset, if given. */
function linkd(refused?: number) {
  const calls: string[] = [];
  let bytes = 0;
  const job = (state: JobState) => ({ name: "jobs/1", kind: JobKind.FIT, state });
  use(
    createRouterTransport(({ service }) => {
      service(Jobs, {
        createJob: () => job(JobState.WAITING_FOR_INPUT),
        uploadJobInput: ({ input, offset, data }) => {
          calls.push(`${input} ${offset} ${data.length}`);
          if (Number(offset) === refused) throw new ConnectError("too long", Code.ResourceExhausted);
          bytes = Number(offset) + data.length;
          return { bytes: BigInt(bytes) };
        },
        startJob: () => (calls.push("start"), job(JobState.RUNNING)),
        async *watchJob() {
          yield job(JobState.RUNNING);
          yield job(JobState.DONE);
        },
        getJob: () => ({ ...job(JobState.DONE), result: { case: "fit", value: { losses: "none" } } as const }),
        deleteJob: () => (calls.push("delete"), {}),
        cancelJob: () => (calls.push("cancel"), job(JobState.CANCELLED)),
      });
    }),
  );
  return calls;
}

describe("jobs", () => {
  const files = [
    { input: JobInput.BASELINE, file: new Blob([new Uint8Array(2 * MIB + 5)]) },
    { input: JobInput.BASELINE_CERTIFICATE, file: new Blob(["{}"]) },
  ];

  it("files_are_sent_in_parts_and_the_job_is_followed_to_its_result", async () => {
    const calls = linkd();
    const [sent, states]: [number[], JobState[]] = [[], []];
    const done = await runJob({ job: { case: "fit", value: {} } }, files, new AbortController().signal, (bytes) => sent.push(bytes), ({ state }) => states.push(state));
    expect(calls).toEqual([`1 0 ${MIB}`, `1 ${MIB} ${MIB}`, `1 ${2 * MIB} 5`, "2 0 2", "start"]);
    expect(sent).toEqual([MIB, 2 * MIB, 2 * MIB + 5, 2 * MIB + 7]);
    expect(states).toEqual([JobState.WAITING_FOR_INPUT, JobState.RUNNING, JobState.RUNNING, JobState.DONE, JobState.DONE]);
    expect(done.result.value).toMatchObject({ losses: "none" });
  });

  it("job_whose_log_is_refused_is_deleted", async () => {
    const calls = linkd(MIB);
    const run = runJob({ job: { case: "fit", value: {} } }, files, new AbortController().signal, () => undefined, () => undefined);
    await expect(run).rejects.toThrow("too long");
    expect(calls).toEqual([`1 0 ${MIB}`, `1 ${MIB} ${MIB}`, "delete"]);
  });

  it("job_that_is_aborted_while_it_is_created_is_cancelled", async () => {
    const calls = linkd();
    const stop = new AbortController();
    stop.abort();
    const states: JobState[] = [];
    const run = runJob({ job: { case: "fit", value: {} } }, files, stop.signal, () => undefined, ({ state }) => states.push(state));
    await expect(run).rejects.toThrow("abort");
    expect(calls).toEqual(["cancel"]);
    expect(states).toEqual([JobState.WAITING_FOR_INPUT, JobState.CANCELLED]);
  });

  it("job_that_is_aborted_while_its_log_is_sent_is_cancelled", async () => {
    const calls = linkd();
    const stop = new AbortController();
    const states: JobState[] = [];
    const run = runJob({ job: { case: "fit", value: {} } }, files, stop.signal, () => stop.abort(), ({ state }) => states.push(state));
    await expect(run).rejects.toThrow("abort");
    expect(calls.at(-1)).toBe("cancel");
    expect(calls).not.toContain("start");
    expect(states).toEqual([JobState.WAITING_FOR_INPUT, JobState.CANCELLED]);
  });
});
