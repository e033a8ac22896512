// SPDX-License-Identifier: Apache-2.0
//! The certificate and the scenario of a link in a line each.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { api } from "../api/client";
import type { Certificate } from "../gen/linkemu/v1/certificate_pb";
import type { ScenarioState } from "../gen/linkemu/v1/scenario_pb";
import { phaseText, runText } from "../model/run";
import { usePolling } from "./polling";
import { href } from "./route";

interface Seen {
  /** Absent: linkd could not judge the run. */
  certificate?: Certificate | undefined;
  scenario?: ScenarioState | undefined;
}

export function State({ name }: { name: string }): JSX.Element {
  const [seen, setSeen] = useState<Seen>();
  usePolling(name, async (signal) => {
    const [certificate, scenario] = await Promise.all([
      api.certificates.getCertificate({ link: name }, { signal }).catch(() => undefined),
      api.scenarios.getScenarioState({ link: name }, { signal }).catch(() => undefined),
    ]);
    if (!signal.aborted) setSeen({ certificate, scenario });
  });
  const { certificate, scenario } = seen ?? {};
  return (
    <dl class="state">
      <div data-certificate={certificate && (certificate.holds ? "pass" : "fail")}>
        <dt>
          <a href={href({ view: "certificate", link: name })}>certificate</a>
        </dt>
        <dd class="figure">{certificate ? <Verdict of={certificate} /> : seen ? "no verdict" : "–"}</dd>
      </div>
      <div data-scenario={scenario && phaseText(scenario.phase)}>
        <dt>
          <a href={href({ view: "scenario", link: name })}>scenario</a>
        </dt>
        <dd class="figure">{scenario ? runText(scenario) : seen ? "no answer" : "–"}</dd>
      </div>
    </dl>
  );
}

function Verdict({ of }: { of: Certificate }): JSX.Element {
  const failed = of.criteria.filter(({ holds }) => !holds);
  if (of.holds) return <b class="good">PASS</b>;
  if (failed.every(({ name }) => name === "packets")) return <>no packets since the mark</>;
  return (
    <>
      <b class="bad">FAIL</b> {failed.map(({ text, name }) => text || name).join("; ")}
    </>
  );
}
