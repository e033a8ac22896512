#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The first version of a device's program that sends its readings.

It works on every network that its authors could test. Each upload has a timeout of a second, a
thousand times its usual duration, and three attempts. Over a satellite the handshake takes 600 ms
and the answer takes the same time again: the reading arrives, the answer is too late, and the
reading is sent again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from http.client import HTTPConnection, HTTPException

WITHIN = 1.0
TRIES = 3


def send(host: str, reading: dict[str, object]) -> None:
    """Sends one reading, and waits for the answer."""
    deadline = time.monotonic() + WITHIN
    connection = HTTPConnection(host, timeout=WITHIN)
    try:
        connection.connect()
        connection.sock.settimeout(max(deadline - time.monotonic(), 0.001))
        connection.request("POST", "/readings", json.dumps(reading))
        answer = connection.getresponse()
        if answer.status != 204:
            raise HTTPException(f"the receiver said {answer.status}")
    finally:
        connection.close()


def main() -> None:
    """Sends readings from standard input, one per line."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("host", metavar="HOST:PORT", help="the receiver")
    arguments.add_argument("--device", default="device", help="our name")
    options = arguments.parse_args()
    lost = 0
    for number, line in enumerate(sys.stdin):
        reading = {"device": options.device, "number": number, "value": line.strip()}
        for attempt in range(TRIES):
            try:
                send(options.host, reading)
                break
            except (OSError, HTTPException) as error:
                print(f"reading {number}, try {attempt}: {error!r}", file=sys.stderr, flush=True)
        else:
            lost += 1
    if lost:
        sys.exit(f"{lost} readings were not delivered")


if __name__ == "__main__":
    main()
