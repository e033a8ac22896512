// SPDX-License-Identifier: Apache-2.0
// Exchanges the one-time token after "#" for a session. The browser does not send that part to
// servers, so that it is in no log; here it is removed from the history first.
"use strict";

const state = document.getElementById("state");
const token = location.hash.slice(1);

async function login() {
  const answer = await fetch("/login", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ token }),
  });
  if (answer.ok) {
    location.replace("/");
    return;
  }
  const refusal = await answer.json().catch(() => ({}));
  state.textContent = "Not logged in: " + (refusal.message || "status " + answer.status) + ".";
}

if (token) {
  history.replaceState(null, "", "/login");
  state.textContent = "Logging in…";
  login().catch((error) => {
    state.textContent = "Not logged in: " + error.message + ".";
  });
}
