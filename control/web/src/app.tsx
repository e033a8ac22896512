// SPDX-License-Identifier: Apache-2.0
//! The frame of all views: navigation, the chosen link, and whether the figures are current.

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { may } from "./api/caller";
import { health, names } from "./api/feed";
import { linkId } from "./model/command";
import { utc } from "./model/units";
import { Caller } from "./ui/caller";
import { Lease } from "./ui/lease";
import { VIEWS, type View, go, href, route } from "./ui/route";
import { Box } from "./views/Box";
import { Capture } from "./views/Capture";
import { Certificate } from "./views/Certificate";
import { Change } from "./views/Change";
import { Clients } from "./views/Clients";
import { Fit } from "./views/Fit";
import { Links } from "./views/Links";
import { Scenario } from "./views/Scenario";

const TITLES: Record<View, string> = {
  links: "Links",
  change: "Change",
  scenario: "Scenario",
  clients: "Clients",
  certificate: "Certificate",
  fit: "Fit",
  capture: "Capture",
  box: "Box",
};

const PAGES: Record<View, () => JSX.Element> = {
  links: Links,
  change: Change,
  scenario: Scenario,
  clients: Clients,
  certificate: Certificate,
  fit: Fit,
  capture: Capture,
  box: Box,
};

export function App(): JSX.Element {
  const { view, link } = route.value;
  const heading = useRef<HTMLHeadingElement>(null);
  const first = useRef(true);
  useEffect(() => {
    document.title = `${TITLES[view]} – ${linkId(link)} – linkemu`;
    // A new view is announced, as a new page would be.
    if (!first.current) heading.current?.focus();
    first.current = false;
  }, [view]);
  const { state } = health.value;
  useEffect(() => {
    document.body.classList.toggle("stale", state === "lost" || state === "login");
  }, [state]);
  const Page = PAGES[view];
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); heading.current?.focus(); }}>
        To the content
      </a>
      <header>
        <span class="brand">linkemu</span>
        <nav aria-label="views">
          {VIEWS.filter((name) => name !== "capture" || may("operator")).map((name) => (
            <a key={name} href={href({ view: name, link })} aria-current={name === view ? "page" : undefined}>
              {TITLES[name]}
            </a>
          ))}
        </nav>
        <label class="pick">
          Link
          <select value={link} onChange={(event) => go({ link: event.currentTarget.value })}>
            {(names.value.length > 0 ? names.value : [link]).map((name) => (
              <option key={name} value={name} selected={name === link}>
                {linkId(name)}
              </option>
            ))}
          </select>
        </label>
      </header>
      <Banner />
      <main id="main">
        <h1 ref={heading} tabIndex={-1}>
          {TITLES[view]} <span class="of">{view === "links" ? "of this box" : `of link ${linkId(link)}`}</span>
        </h1>
        <KnownLink>
          <Lease key={link} name={link} />
          <Page key={`${view} ${view === "links" ? "" : link}`} />
        </KnownLink>
      </main>
      <footer>
        <a href="/licences.txt">Licences of the libraries in this page</a>
      </footer>
    </>
  );
}

/** A link that is not there is said plainly. */
function KnownLink({ children }: { children: ComponentChildren }): JSX.Element {
  const { view, link } = route.value;
  const known = names.value;
  if (view !== "links" && known.length > 0 && !known.includes(link)) {
    return (
      <p class="refusal" role="alert">
        This box has no link <b>{linkId(link)}</b>. Its links are {known.map(linkId).join(", ")}.
      </p>
    );
  }
  return <>{children}</>;
}

/** Whether the figures are current. They are what linkd reports. */
function Banner(): JSX.Element {
  const { state, last, since, why } = health.value;
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1_000);
    return () => clearInterval(timer);
  }, []);
  if (state === "login") {
    return (
      <div class="banner bad" role="alert">
        <b>This browser has no session.</b> Run <code>linkctl web</code> on the box, and open the link that it prints. ({why})
      </div>
    );
  }
  if (state === "lost") {
    const seconds = since ? Math.max(Math.round((now - since.getTime()) / 1_000), 0) : 0;
    return (
      <div class="banner bad" role="alert">
        <b>No news for {seconds} s:</b> {why}; trying again.{" "}
        {last ? `All figures are as of ${utc(last)}.` : "There are no figures yet."}
      </div>
    );
  }
  return (
    <div class="banner" role="status">
      <span>{state === "connecting" ? "Connecting to linkd" : <>Live: as reported by linkd at <time>{last ? utc(last) : "–"}</time></>}</span>
      <Caller />
    </div>
  );
}
