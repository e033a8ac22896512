// SPDX-License-Identifier: Apache-2.0
import { BinaryWriter } from "@bufbuild/protobuf/wire";
import { Code, ConnectError } from "@connectrpc/connect";
import { beforeAll, describe, expect, it, vi } from "vitest";
import { badRequest, failure, isCanceled } from "./failure";

beforeAll(() => vi.stubGlobal("location", { host: "box:8080" }));

const violation = (field: string, message: string): Uint8Array =>
  new BinaryWriter().tag(1, 2).string(field).tag(3, 2).string("other").tag(2, 2).string(message).finish();

describe("failure", () => {
  it("refused_fields_are_read", () => {
    const bytes = new BinaryWriter()
      .tag(7, 0)
      .uint32(5)
      .tag(1, 2)
      .bytes(violation("forward.rate", "too low"))
      .tag(1, 2)
      .bytes(violation("return.rate", "too high"))
      .finish();
    expect(badRequest(bytes)).toEqual([
      { field: "forward.rate", message: "too low" },
      { field: "return.rate", message: "too high" },
    ]);
  });

  it("error_has_its_text_and_code", () => {
    const refused = failure(new ConnectError("the link is leased to job b", Code.FailedPrecondition));
    expect(refused).toMatchObject({ code: "failed_precondition", message: "the link is leased to job b", away: false });
    expect(failure(new ConnectError("no session", Code.Unauthenticated)).login).toBe(true);
    expect(isCanceled(new ConnectError("", Code.Canceled))).toBe(true);
  });

  it("lost_connection_is_told_apart", () => {
    const lost = failure(ConnectError.from(new TypeError("Failed to fetch")));
    expect(lost.away).toBe(true);
    expect(lost.message).toContain("box:8080");
    expect(failure(new ConnectError("the dataplane does not answer", Code.Unavailable)).away).toBe(true);
  });
});
