// SPDX-License-Identifier: Apache-2.0
//! Who the page is to linkd. The page offers no action that this role may not take.

import { signal } from "@preact/signals";
import type { GetCallerResponse } from "../gen/linkemu/v1/web_pb";
import { api } from "./client";

/** From the least; each may do what those before it may. */
const ROLES = ["viewer", "operator", "admin"] as const;
export type Role = (typeof ROLES)[number];

/** Undefined until linkd has answered. */
export const caller = signal<GetCallerResponse | undefined>(undefined);

/** Whether the caller has at least this role; an unknown caller has none. */
export const may = (role: Role): boolean => ROLES.indexOf(caller.value?.role as Role) >= ROLES.indexOf(role);

export async function readCaller(): Promise<void> {
  caller.value = await api.web.getCaller({});
}
