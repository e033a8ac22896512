// SPDX-License-Identifier: Apache-2.0
//! The run of a scenario in words.

import { ScenarioPhase, type ScenarioState } from "../gen/linkemu/v1/scenario_pb";
import { exactTime, time } from "./units";

const PHASE: Record<ScenarioPhase, string> = {
  [ScenarioPhase.UNSPECIFIED]: "unknown",
  [ScenarioPhase.NONE]: "none has run",
  [ScenarioPhase.RUNNING]: "running",
  [ScenarioPhase.WAITING]: "waiting for an event",
  [ScenarioPhase.PAUSED]: "paused",
  [ScenarioPhase.FINISHED]: "finished",
  [ScenarioPhase.STOPPED]: "stopped",
};

export const phaseText = (phase: ScenarioPhase): string => PHASE[phase];

export const isActive = (phase: ScenarioPhase | undefined): boolean =>
  phase === ScenarioPhase.RUNNING || phase === ScenarioPhase.WAITING || phase === ScenarioPhase.PAUSED;

/** "rain-fade: running, 21 s of 5 min, step 3 of 60", in a line. */
export function runText(state: ScenarioState): string {
  if (state.run === 0n) return phaseText(state.phase);
  const head = `${state.name}: ${phaseText(state.phase)}`;
  if (!isActive(state.phase)) return state.message ? `${head} (${state.message})` : head;
  const length = state.lengthNs === undefined ? "" : ` of ${exactTime(state.lengthNs)}`;
  const steps = state.steps === undefined ? "" : ` of ${state.steps}`;
  return `${head}, ${time(Number(state.elapsedNs))}${length}, step ${state.stepsDone}${steps}`;
}
