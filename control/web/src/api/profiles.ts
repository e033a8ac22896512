// SPDX-License-Identifier: Apache-2.0
//! The profiles that linkd knows.

import type { Profile } from "../gen/linkemu/v1/model_pb";
import { api } from "./client";

/** All of them, page by page. */
export async function allProfiles(signal?: AbortSignal): Promise<Profile[]> {
  const all: Profile[] = [];
  for (let more = true; more; ) {
    const after = all.at(-1)?.name ?? "";
    const answer = await api.linkemu.listProfiles({ after }, signal ? { signal } : {});
    all.push(...answer.profiles);
    more = answer.more && answer.profiles.length > 0;
  }
  return all;
}
