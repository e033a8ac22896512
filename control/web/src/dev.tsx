// SPDX-License-Identifier: Apache-2.0
//! The page on invented answers, for work on its looks without a box. Not part of the build.

import { ConnectError, Code, createRouterTransport } from "@connectrpc/connect";
import { create } from "@bufbuild/protobuf";
import { timestampFromMs, timestampNow } from "@bufbuild/protobuf/wkt";
import { render } from "preact";
import { keepCurrent } from "./api/current";
import { use } from "./api/client";
import { follow } from "./api/feed";
import { App } from "./app";
import { Certificates } from "./gen/linkemu/v1/certificate_pb";
import { ClientKind } from "./gen/linkemu/v1/clients_pb";
import { Doctor, FindingLevel } from "./gen/linkemu/v1/doctor_pb";
import { EnvelopeLimit, Envelopes } from "./gen/linkemu/v1/envelope_pb";
import { History, LinkSampleSchema } from "./gen/linkemu/v1/history_pb";
import { type Job, JobKind, JobState, Jobs, PlotKind, Verdict } from "./gen/linkemu/v1/jobs_pb";
import { Leases } from "./gen/linkemu/v1/lease_pb";
import { Linkemu } from "./gen/linkemu/v1/linkemu_pb";
import { Links } from "./gen/linkemu/v1/links_pb";
import { DropReason, DurationLaw, ProfileSchema } from "./gen/linkemu/v1/model_pb";
import { ScenarioPhase, Scenarios } from "./gen/linkemu/v1/scenario_pb";
import { Web } from "./gen/linkemu/v1/web_pb";
import { followRoute } from "./ui/route";
import "uplot/dist/uPlot.min.css";
import "./app.css";

const MS = 1_000_000n;
const pipe = (rateBps: bigint, baseNs: bigint) => ({
  rateBps,
  queue: { limitBytes: 36_000_000n, randomDrop: { thresholdBytes: 18_000_000n, probabilityAtLimit: 0.1 } },
  outages: [{ intervalNs: 10_980_000n * MS, durationNs: 321n * MS, law: DurationLaw.EXPONENTIAL }],
  delay: { baseNs, slotNs: 41_470_000n, excursions: [{ intervalNs: 15_860n * MS, durationNs: 100n * MS, scaleNs: 82n * MS, shape: -0.4, maxNs: 770n * MS }] },
});
const profile = (name: string, group: string) =>
  create(ProfileSchema, {
    name,
    group,
    description: `${name}: an invented description`,
    source: "invented, for the looks of this page",
    forwardPipe: pipe(144_000_000n, 275n * MS),
    returnPipe: pipe(12_000_000n, 300n * MS),
  });
const profiles = [profile("viasat2", "satellite"), profile("lte", "mobile"), profile("transparent", "")];
const count = Number(new URLSearchParams(location.search).get("links") ?? 3);
const names = Array.from({ length: count }, (_, i) => (i === 0 ? "links/main" : `links/lab${i}`));
const started = Date.now();
const curve = (shift: number) => Array.from({ length: 40 }, (_, i) => ({ x: 550 + shift + 8 * i, y: Math.exp(-i / 4) }));
const plots = [{ kind: PlotKind.EXCEEDANCE, baseline: curve(0), link: curve(3) }];
const jobs = new Map<string, { job: Partial<Job>; at: number }>();
const running = { phase: ScenarioPhase.RUNNING, name: "rain-fade", run: 3n, elapsedNs: 21n * 1000n * MS, lengthNs: 60n * 1000n * MS, stepsDone: 1n, steps: 3n, lateSteps: 1n, lateMaxNs: 1_200_000n };
const jobOf = (name: string) => {
  const { job, at } = jobs.get(name) ?? { job: {}, at: 0 };
  const progress = at === 0 ? 0 : Math.min((Date.now() - at) / 4e3, 1);
  const state = at === 0 ? JobState.WAITING_FOR_INPUT : progress < 1 ? JobState.RUNNING : JobState.DONE;
  return { ...job, name, baseline: "train.csv", subject: "train", who: "dev", step: "fitting delays", progress, state } as Job;
};
const wanted = new Map<string, bigint>();
/** The figures of a link at a time. */
const figures = (at: number, i: number) => {
  const seconds = (at - started) / 1e3 + 100;
  const load = 1 + Math.sin(seconds / 5 + i);
  const bytes = BigInt(Math.round(1e7 * (seconds + 5 * Math.sin(seconds / 5 + i))));
  const queue = BigInt(Math.round(1e7 * load));
  const one = {
    received: { packets: bytes / 1500n, bytes },
    sent: { packets: bytes / 1500n, bytes },
    queue: { packets: queue / 1500n, bytes: queue },
    longestQueueBytes: queue,
    queueDelayCount: bytes / 1500n,
    queueDelaySumNs: (bytes / 1500n) * 40n * MS,
    drops: [{ reason: DropReason.OUTAGE, count: { packets: BigInt(Math.floor(seconds / 7)), bytes: 0n } }],
  };
  return create(LinkSampleSchema, { link: names[i] ?? "", timeNs: BigInt(Math.round(seconds * 1e9)), utc: timestampFromMs(at), generation: 7n, forwardSample: one, returnSample: one });
};

use(
  createRouterTransport(({ service }) => {
    service(History, {
      // Later than the stream, as in a network.
      getHistory: async ({ link, afterNs }) => {
        const at = names.indexOf(link);
        await new Promise((resolve) => setTimeout(resolve, 300));
        const all = Array.from({ length: 62 }, (_, i) => figures(Date.now() - 1e3 * (62 - i), at));
        return { samples: all.filter(({ timeNs }) => timeNs > afterNs) };
      },
      async *watchLinks() {
        for (;;) {
          yield { samples: names.map((_, i) => figures(Date.now(), i)) };
          await new Promise((resolve) => setTimeout(resolve, 100));
        }
      },
    });
    service(Links, {
      getLinkRules: () => ({ generation: 1n, rules: [{ link: "links/lab1", prefixes: ["10.1.0.0/24"] }] }),
      listLinks: () => ({ links: names.map((name) => ({ name, memoryBytes: 1_000_000_000n, clients: 16, profile: "viasat2" })) }),
    });
    service(Linkemu, {
      listProfiles: () => ({ profiles }),
      getLink: () => ({ profile: profiles[0]!, seed: 7n, applied: { generation: 7n, effectiveUtc: timestampNow() } }),
      getStats: () => ({}),
      getClients: () => ({ clients: { clients: [{ name: "alice", prefixes: ["10.1.0.0/24"], vlans: [7], weight: 2 }] } }),
      async *listClients() {
        const account = { received: { packets: 10n, bytes: 100n }, sent: { packets: 9n, bytes: 90n }, dropped: { packets: 1n, bytes: 10n } };
        yield { clients: [{ client: "alice", kind: ClientKind.NAMED, forwardAccount: account, returnAccount: account }] };
      },
      updateLinks: () => {
        throw new ConnectError("the link is leased to job b until 22:00; wait, or ask its holder", Code.FailedPrecondition);
      },
    });
    service(Leases, {
      getLease: () => {
        throw new ConnectError("no lease", Code.NotFound);
      },
    });
    service(Jobs, {
      createJob: ({ job }) => {
        const name = `jobs/${jobs.size + 1}`;
        jobs.set(name, { job: { kind: job.case === "verify" ? JobKind.VERIFY : JobKind.FIT }, at: 0 });
        return jobOf(name);
      },
      uploadJobInput: ({ offset, data }) => ({ bytes: offset + BigInt(data.length) }),
      startJob: ({ name }) => {
        jobs.set(name, { job: jobs.get(name)?.job ?? {}, at: Date.now() });
        return jobOf(name);
      },
      listJobs: () => ({ jobs: [...jobs.keys()].map(jobOf) }),
      async *watchJob({ name }) {
        for (let job = jobOf(name); ; job = jobOf(name)) {
          yield job;
          if (job.state === JobState.DONE) return;
          await new Promise((resolve) => setTimeout(resolve, 200));
        }
      },
      getJob: ({ name }) => {
        const fit = { profile: profiles[0]!, toml: 'name = "train"\n', summary: [{ name: "losses", text: "isolated losses, 0.01 %" }], text: "an invented report", json: "{}", plots };
        const figure = { group: "Round-trip quantiles", figure: "p99.9", unit: "ms", baseline: 700, link: 712.3, tolerance: 31, error: 8.1, verdict: Verdict.PASS, because: "invented" };
        const verify = { verdict: Verdict.UNDECIDED, text: "UNDECIDED: 1 of 2 figures", played: "in virtual time, seed 1", baseline: "train.csv", sha256: "0".repeat(64), profile: "train", figures: [figure, { ...figure, figure: "p99.99", error: Number.POSITIVE_INFINITY, verdict: Verdict.UNDECIDED }], neededS: 7_200, plots, json: "{}" };
        const job = jobOf(name);
        return { ...job, result: job.kind === JobKind.VERIFY ? { case: "verify", value: verify } : { case: "fit", value: fit } } as Job;
      },
    });
    service(Doctor, {
      diagnose: () => ({ bad: 1, warnings: 1, checks: [
        { check: "hugepages", level: FindingLevel.OK, found: "2048 of 2 MB" },
        { check: "cores", level: FindingLevel.WARNING, found: "no isolated core", why: "other work delays packets", remedy: "isolcpus=2" },
        { check: "link", level: FindingLevel.BAD, found: "wan is down", why: "no packets arrive", remedy: "ip link set wan up" },
      ] }),
    });
    service(Envelopes, {
      getEnvelope: () => ({
        room: { memoryBytes: 4_000_000_000n },
        profile: { name: "viasat2", fits: true, neededBytes: 90_000_000n, clients: { limit: EnvelopeLimit.UP_TO, value: 41n }, delayNs: { limit: EnvelopeLimit.UP_TO, forwardValue: 9_000n * MS, returnValue: 9_000n * MS }, rateBps: { limit: EnvelopeLimit.ANY } },
        rows: [1_000_000_000n, 10_000_000_000n].map((rateBps, at) => ({ rateBps, port: at === 1, delays: ["64 B", "1518 B", "ANY"].map((frames, i) => ({ frames, delayNs: 900n * MS * BigInt(i + 1) })) })),
      }),
    });
    service(Web, { getCaller: () => ({ name: "dev", role: new URLSearchParams(location.search).get("role") ?? "admin" }) });
    service(Certificates, {
      getCertificate: () => ({
        holds: false,
        summary: "the emulator may have been the bottleneck",
        remedies: ["stop other load on this machine: 2.1 threads were ready for 2 processors", "give the worker a core of its own: --core 1, with isolcpus=1"],
        remarks: ["no mark was set since the dataplane started"],
        criteria: [
          { name: "packets", value: 12_345n, limit: 1n, atLeast: true, unit: "packets", holds: true },
          { name: "lateness_p99", value: 3_400_000n, limit: 1_000_000n, unit: "ns", holds: false, text: "lateness_p99 3.4 ms, at most 1 ms", reason: "a tenth of the spread of the delay, at least 1 ms" },
        ],
      }),
      listCertificates: () => ({
        certificates: [
          { since: timestampNow(), until: timestampNow(), who: "dev", marked: true, certificate: { holds: false, criteria: [{ name: "stall", text: "stall 20 ms, at most 10 ms" }] } },
        ],
      }),
    });
    service(Scenarios, {
      getScenarioState: () => running,
      listScenarios: () => ({ scenarios: [...wanted.keys()].map((name) => ({ name })).concat({ name: "rain-fade" }) }),
      getScenario: () => ({ name: "rain-fade", toml: 'name = "rain-fade"\n\n[[step]]\nprofile = "viasat2"\nlabel = "clear"\n\n[[step]]\nat = "30 s"\nlabel = "rain"\nramp = { value = "packet_loss", from = "0.001 %", to = "0.1 %", over = "10 s", every = "500 ms" }\n\n[[step]]\nafter = "20 s"\nlabel = "QPSK"\nforward = { rate = "72 Mbit/s" }\n' }),
      async *watchScenario() {
        yield running;
        await new Promise(() => undefined);
      },
    });
  }),
);
followRoute();
keepCurrent();
const root = document.getElementById("app");
if (root) render(<App />, root);
void follow();
