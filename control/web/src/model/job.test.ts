// SPDX-License-Identifier: Apache-2.0
import { describe, expect, it } from "vitest";
import { Direction } from "../gen/linkemu/v1/model_pb";
import { fitCommand, options, steps, value, verifyCommand } from "./job";

describe("job", () => {
  it("only_options_that_differ_from_the_defaults_are_given", () => {
    const found = options({ name: " mine ", lossesIn: "forward", delayIn: "return", format: "recognised", queueBytes: "36 MB", intervalNs: "20 ms", columns: "" });
    if (found instanceof Error) throw found;
    expect(found.fit).toEqual({ name: "mine", lossesIn: Direction.FORWARD, queueBytes: 36_000_000n });
    expect(found.log).toEqual({ intervalNs: 20_000_000n });
    expect(fitCommand("train log.csv", "run.json", found, "mine.toml")).toBe(
      "linkctl fit 'train log.csv' --name mine --losses-in forward --queue 36MB --interval 20ms --certificate run.json --write mine.toml",
    );
    expect(verifyCommand("-x.csv", "", found, "./mine.toml")).toBe("linkctl verify --baseline ./-x.csv --interval 20ms ./mine.toml");
  });

  it("wrong_option_is_named", () => {
    const found = options({ forwardRateBps: "72" });
    expect(found).toBeInstanceOf(Error);
    expect((found as Error).message).toContain("forward rate");
  });

  it("curves_are_steps_at_common_places_and_end_with_their_last_point", () => {
    const at = (x: number, y: number) => ({ x, y }) as never;
    const [places, baseline, link] = steps([at(3, 0.1), at(1, 1)], [at(2, 1), at(4, 0)]);
    expect(places).toEqual([1, 2, 3, 4]);
    expect(baseline).toEqual([1, 1, 0.1, null]);
    expect(link).toEqual([null, 1, 1, null]);
  });

  it("values_have_four_digits", () => {
    expect([value(12.34567, "ms"), value(0.000123456), value(Number.POSITIVE_INFINITY, "%"), value(0)]).toEqual(["12.35 ms", "0.0001235", "–", "0"]);
  });
});
