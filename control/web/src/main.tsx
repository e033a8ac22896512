// SPDX-License-Identifier: Apache-2.0
import { render } from "preact";
import { keepCurrent } from "./api/current";
import { gatewayTransport, use } from "./api/client";
import { follow } from "./api/feed";
import { App } from "./app";
import { followRoute } from "./ui/route";
import "uplot/dist/uPlot.min.css";
import "./app.css";

use(gatewayTransport());
followRoute();
keepCurrent();
const root = document.getElementById("app");
if (root) {
  root.replaceChildren();
  render(<App />, root);
}
void follow();
