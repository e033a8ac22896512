// SPDX-License-Identifier: Apache-2.0
import { describe, expect, it } from "vitest";
import { LIMITS } from "./schema";

describe("schema", () => {
  it("ranges_are_those_of_the_protos", () => {
    expect(LIMITS.rate).toEqual({ min: 1_000n, max: 400_000_000_000n, sliderMax: 10_000_000_000n });
    expect(LIMITS.delay.max).toBe(60_000_000_000n);
    expect(LIMITS.queue).toEqual({ min: 1_518n, max: 64n << 30n, sliderMax: 1_000_000_000n });
  });
});
