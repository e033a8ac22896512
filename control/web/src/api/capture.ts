// SPDX-License-Identifier: Apache-2.0
//! A capture as the pcapng file that linkd writes.

import { type MessageInitShape, create, toJsonString } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { errorFromJson } from "@connectrpc/connect/protocol-connect";
import { CaptureRequestSchema } from "../gen/linkemu/v1/capture_pb";
import { leased } from "./client";

/** The bytes of the file, as they arrive. */
export async function* captureFile(link: string, request: MessageInitShape<typeof CaptureRequestSchema>, signal: AbortSignal): AsyncGenerator<Uint8Array<ArrayBuffer>> {
  const answer = await fetch("/linkemu.v1.Captures/Capture", {
    method: "POST",
    headers: { ...leased(link).headers, "Content-Type": "application/json", Accept: "application/x-pcapng" },
    body: toJsonString(CaptureRequestSchema, create(CaptureRequestSchema, { ...request, link })),
    signal,
  });
  if (!answer.ok || !answer.body) {
    const unknown = new ConnectError(`linkd answered ${answer.status}`, Code.Unknown);
    throw errorFromJson(await answer.json(), new Headers(), unknown);
  }
  const reader = answer.body.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    yield value;
  }
}
