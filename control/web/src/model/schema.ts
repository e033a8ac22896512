// SPDX-License-Identifier: Apache-2.0
//! Ranges of parameters, from the options of the schema (proto/linkemu/v1/parameter.proto).

import { getOption, type DescMessage } from "@bufbuild/protobuf";
import { DelaySchema, PipeSchema, QueueSchema } from "../gen/linkemu/v1/model_pb";
import { parameter } from "../gen/linkemu/v1/parameter_pb";
import { type Quantity, parse } from "./units";

export interface Limit {
  min: bigint;
  max: bigint;
  /** Upper end of a slider, not above `max`. */
  sliderMax: bigint;
}

function limit(schema: DescMessage, field: string, quantity: Quantity, slider: string): Limit {
  const found = schema.fields.find((one) => one.name === field);
  if (!found) throw new Error(`${schema.typeName} has no field ${field}`);
  const option = getOption(found, parameter);
  const read = (text: string): bigint => {
    const value = parse(quantity, text.replace("GiB", "GiB"));
    if (value instanceof Error) throw value;
    return value;
  };
  const [min, max, sliderMax] = [read(option.min), read(option.max), read(slider)];
  return { min, max, sliderMax: sliderMax < max ? sliderMax : max };
}

export const LIMITS = {
  rate: limit(PipeSchema, "rate_bps", "rate", "10 Gbit/s"),
  delay: limit(DelaySchema, "base_ns", "time", "2 s"),
  slot: limit(DelaySchema, "slot_ns", "time", "1 s"),
  queue: limit(QueueSchema, "limit_bytes", "size", "1 GB"),
} as const;
