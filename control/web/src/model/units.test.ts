// SPDX-License-Identifier: Apache-2.0
import { describe, expect, it } from "vitest";
import * as units from "./units";

describe("units", () => {
  it("figures_have_three_digits_and_a_unit", () => {
    expect(units.rate(72e6)).toBe("72.0 Mbit/s");
    expect(units.rate(999.6e6)).toBe("1.00 Gbit/s");
    expect(units.rate(0)).toBe("0 bit/s");
    expect(units.size(18_200_000)).toBe("18.2 MB");
    expect(units.time(275e6)).toBe("275 ms");
    expect(units.time(Number.NaN)).toBe("–");
    expect(units.count(1234567n)).toBe("1\u202f234\u202f567");
  });

  it("exact_text_is_read_back_as_the_same_value", () => {
    let value = 1n;
    for (let i = 0; i < 400; i++) {
      for (const quantity of ["rate", "size", "time"] as const) {
        const text = units.exactOf(quantity, value);
        expect(units.parse(quantity, text), text).toBe(value);
      }
      value = (value * 11n) / 10n + BigInt(i % 7) + 1n;
    }
    expect(units.exactRate(72_000_000n)).toBe("72 Mbit/s");
    expect(units.exactRate(1_500_000n)).toBe("1.5 Mbit/s");
    expect(units.exactTime(299_800_000n)).toBe("299.8 ms");
    expect(units.exactSize(1_024n)).toBe("1.024 kB");
  });

  it("values_without_a_unit_or_of_another_quantity_are_refused", () => {
    for (const text of ["72", "", "72 MB", "fast", "-1 Mbit/s", "1 Mbit/s 5 kbit/s", "0.5 bit/s"]) {
      expect(units.parse("rate", text), text).toBeInstanceOf(Error);
    }
    expect(units.parse("time", "1 min 30 s")).toBe(90_000_000_000n);
    expect(units.parse("size", "64 KiB")).toBe(65_536n);
    expect(units.parsePercent("0.1 %")).toBe(0.001);
    expect(units.parsePercent("101 %")).toBeInstanceOf(Error);
    expect(units.percent(0.001)).toBe("0.1 %");
  });
});
