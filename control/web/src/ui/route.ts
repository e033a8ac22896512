// SPDX-License-Identifier: Apache-2.0
//! The view and the link, in the fragment of the address: #/change?link=links/lab1.

import { signal } from "@preact/signals";

export const VIEWS = ["links", "change", "scenario", "clients", "certificate", "fit", "capture", "box"] as const;
export type View = (typeof VIEWS)[number];
export const MAIN = "links/main";

export interface Route {
  view: View;
  link: string;
}

export function parseRoute(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?");
  const view = VIEWS.find((known) => known === path) ?? "links";
  return { view, link: new URLSearchParams(query).get("link") ?? MAIN };
}

export function href({ view, link }: Route): string {
  return link === MAIN ? `#/${view}` : `#/${view}?link=${encodeURIComponent(link)}`;
}

export const route = signal<Route>(parseRoute(typeof location === "undefined" ? "" : location.hash));

export function followRoute(): void {
  window.addEventListener("hashchange", () => {
    route.value = parseRoute(location.hash);
  });
}

export function go(to: Partial<Route>): void {
  location.hash = href({ ...route.value, ...to });
}
