// SPDX-License-Identifier: Apache-2.0
//! The profiles that linkd knows.

import type { Profile } from "../gen/linkemu/v1/model_pb";
import { api } from "./client";

/** All of them, page by page. */
export async function allProfiles(signal?: AbortSignal): Promise<Profile[]> {
  const all: Profile[] = [];
  let pageToken = "";
  do {
    const answer = await api.linkemu.listProfiles({ pageToken }, signal ? { signal } : {});
    all.push(...answer.profiles);
    pageToken = answer.nextPageToken;
  } while (pageToken !== "");
  return all;
}
