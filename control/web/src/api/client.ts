// SPDX-License-Identifier: Apache-2.0
//! Clients of linkd's services. The transport can be replaced, for tests.

import type { MessageInitShape } from "@bufbuild/protobuf";
import { createClient, type CallOptions, type Transport } from "@connectrpc/connect";
import { createGrpcWebTransport } from "@connectrpc/connect-web";
import { Captures } from "../gen/linkemu/v1/capture_pb";
import { Certificates } from "../gen/linkemu/v1/certificate_pb";
import { Doctor } from "../gen/linkemu/v1/doctor_pb";
import { Envelopes } from "../gen/linkemu/v1/envelope_pb";
import { Events } from "../gen/linkemu/v1/event_pb";
import { History } from "../gen/linkemu/v1/history_pb";
import { Jobs } from "../gen/linkemu/v1/jobs_pb";
import { Leases } from "../gen/linkemu/v1/lease_pb";
import { type Link, type LinkUpdateSchema, Linkemu } from "../gen/linkemu/v1/linkemu_pb";
import { Links } from "../gen/linkemu/v1/links_pb";
import { Scenarios } from "../gen/linkemu/v1/scenario_pb";
import { Web } from "../gen/linkemu/v1/web_pb";
import { tokens } from "./tokens";

/** The metadata with the token of a lease. */
const LEASE_METADATA = "linkemu-lease";

function clients(transport: Transport) {
  return {
    linkemu: createClient(Linkemu, transport),
    links: createClient(Links, transport),
    scenarios: createClient(Scenarios, transport),
    certificates: createClient(Certificates, transport),
    captures: createClient(Captures, transport),
    history: createClient(History, transport),
    leases: createClient(Leases, transport),
    events: createClient(Events, transport),
    jobs: createClient(Jobs, transport),
    doctor: createClient(Doctor, transport),
    envelopes: createClient(Envelopes, transport),
    web: createClient(Web, transport),
  };
}

export type Api = ReturnType<typeof clients>;

/** gRPC-Web in binary form, to the server that the page came from, with its session cookie. */
export function gatewayTransport(): Transport {
  return createGrpcWebTransport({
    baseUrl: window.location.origin,
    fetch: (input, init) => fetch(input, { ...init, credentials: "same-origin" }),
  });
}

export let api: Api;

export function use(transport: Transport): void {
  api = clients(transport);
}

/** Options of a request under the lease that this page has of a link. */
export function leased(link: string): CallOptions {
  const token = tokens.peek().get(link);
  return token === undefined ? {} : { headers: { [LEASE_METADATA]: token } };
}

/** A new name for a request, so that a retry is not applied twice. */
export function requestId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return `web-${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

/** Changes one link, unless it has another generation than the given one. Returns the link after it. */
export async function updateLink(name: string, update: MessageInitShape<typeof LinkUpdateSchema>, generation?: bigint): Promise<Link> {
  const expected = generation === undefined ? {} : { expectedGeneration: generation };
  const answer = await api.linkemu.updateLinks({ updates: [{ ...update, ...expected, link: name }], requestId: requestId() }, leased(name));
  const [link] = answer.links;
  if (!link) throw new Error("linkd gave no link back: reload the page");
  return link;
}
