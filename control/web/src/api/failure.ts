// SPDX-License-Identifier: Apache-2.0
//! Errors of the API for people: the text of linkd, which names the remedy, and the fields that
//! it refused (google.rpc.BadRequest).

import { BinaryReader } from "@bufbuild/protobuf/wire";
import { Code, ConnectError } from "@connectrpc/connect";

export interface Refused {
  field: string;
  message: string;
}

export interface Failure {
  /** Name of the code, such as "invalid_argument". */
  code: string;
  message: string;
  fields: Refused[];
  /** linkd cannot be reached, or its dataplane does not answer. */
  away: boolean;
  /** The session has ended. */
  login: boolean;
}

/** The fields of a google.rpc.BadRequest: 1 violations, with 1 field and 2 description. */
export function badRequest(bytes: Uint8Array): Refused[] {
  const strings = (reader: BinaryReader, end: number): Map<number, string> => {
    const found = new Map<number, string>();
    while (reader.pos < end) {
      const [field, wire] = reader.tag();
      if (field <= 2 && wire === 2) found.set(field, reader.string());
      else reader.skip(wire);
    }
    return found;
  };
  const refused: Refused[] = [];
  const reader = new BinaryReader(bytes);
  while (reader.pos < reader.len) {
    const [field, wire] = reader.tag();
    if (field !== 1 || wire !== 2) {
      reader.skip(wire);
      continue;
    }
    const length = reader.uint32();
    const found = strings(reader, reader.pos + length);
    refused.push({ field: found.get(1) ?? "", message: found.get(2) ?? "" });
  }
  return refused;
}

export function failure(error: unknown): Failure {
  const connect = ConnectError.from(error);
  const fields = connect.details.flatMap((detail) =>
    "type" in detail && detail.type === "google.rpc.BadRequest" && detail.value instanceof Uint8Array
      ? badRequest(detail.value)
      : [],
  );
  // fetch() fails with a TypeError if there is no connection.
  const cut = connect.cause instanceof TypeError || error instanceof TypeError;
  const away = cut || connect.code === Code.Unavailable;
  return {
    code: cut ? "no connection" : Code[connect.code].replace(/(?!^)([A-Z])/g, "_$1").toLowerCase(),
    message: cut ? `linkd does not answer at ${location.host}: check that it runs, and the network` : connect.rawMessage,
    // The message repeats the only field.
    fields: fields.filter((one) => !connect.rawMessage.includes(one.message)),
    away,
    login: connect.code === Code.Unauthenticated,
  };
}

/** Whether an error only says that the page itself ended the request. */
export function isCanceled(error: unknown): boolean {
  return ConnectError.from(error).code === Code.Canceled;
}
