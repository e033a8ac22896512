// SPDX-License-Identifier: Apache-2.0
//! Fits and verifications on the machine of linkd.

import type { MessageInitShape } from "@bufbuild/protobuf";
import { type CreateJobRequestSchema, type Job, JobInput, JobState } from "../gen/linkemu/v1/jobs_pb";
import { api } from "./client";

/** Bytes of a request, of 2 MiB that it may have. */
const CHUNK = 1 << 20;

export interface JobFile {
  input: JobInput;
  file: Blob;
}

export const hasEnded = ({ state }: Pick<Job, "state">): boolean => state === JobState.DONE || state === JobState.FAILED || state === JobState.CANCELLED;

/** Sends a file in parts; `onSent` gets the number of bytes that linkd has of it. */
export async function upload(job: string, { input, file }: JobFile, signal: AbortSignal, onSent: (bytes: number) => void): Promise<void> {
  for (let offset = 0; offset < file.size; offset += CHUNK) {
    const data = new Uint8Array(await file.slice(offset, offset + CHUNK).arrayBuffer());
    const { bytes } = await api.jobs.uploadJobInput({ job, input, offset: BigInt(offset), data }, { signal });
    onSent(Number(bytes));
  }
}

/** Follows a job to its end, and reads its result. */
export async function follow(name: string, signal: AbortSignal, onChange: (job: Job) => void): Promise<Job> {
  for await (const job of api.jobs.watchJob({ name }, { signal })) onChange(job);
  const job = await api.jobs.getJob({ name }, { signal });
  onChange(job);
  return job;
}

/** Creates a job, sends its files, starts it, and follows it. One whose files cannot be sent is deleted; aborted before it is started, it is cancelled. */
export async function runJob(
  request: MessageInitShape<typeof CreateJobRequestSchema>,
  files: readonly JobFile[],
  signal: AbortSignal,
  onSent: (bytes: number) => void,
  onChange: (job: Job) => void,
): Promise<Job> {
  // Not aborted: the name of a job that linkd may have created would be lost.
  const job = await api.jobs.createJob(request);
  onChange(job);
  try {
    signal.throwIfAborted();
    let before = 0;
    for (const one of files) {
      await upload(job.name, one, signal, (bytes) => onSent(before + bytes));
      before += one.file.size;
    }
    onChange(await api.jobs.startJob({ name: job.name }, { signal }));
  } catch (error) {
    const { name } = job;
    // It would expire by itself.
    await (signal.aborted ? api.jobs.cancelJob({ name }).then(onChange) : api.jobs.deleteJob({ name })).catch(() => undefined);
    throw error;
  }
  return follow(job.name, signal, onChange);
}
