#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A device's program that sends its readings.

It differs from `uplink_v1.py` in four points, each found by a test over a satellite link:

- A reading has a name, and is sent by PUT: if it is repeated, it is stored once.
- An upload has a timeout of 15 s: a handshake and an answer of 600 ms each, a full queue of 2 s in
  each direction, and some retransmissions of TCP.
- The connection is kept: one handshake, not one for each reading.
- Without an answer the program waits, longer each time, and gives up after `--patience` and not
  after a number of attempts, because the duration of an outage is unknown.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from http.client import HTTPConnection, HTTPException

WITHIN = 15.0
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 8.0


def send(connection: HTTPConnection, reading: dict[str, object]) -> None:
    """Sends one reading, and waits for the answer."""
    path = f"/readings/{reading['device']}/{reading['number']}"
    connection.request("PUT", path, json.dumps(reading))
    answer = connection.getresponse()
    answer.read()
    if answer.status != 204:
        raise HTTPException(f"the receiver said {answer.status}")


def deliver(connection: HTTPConnection, reading: dict[str, object], patience: float) -> bool:
    """Sends one reading repeatedly. True if it was answered within the patience."""
    end = time.monotonic() + patience
    pause = FIRST_PAUSE
    while True:
        try:
            send(connection, reading)
            return True
        except (OSError, HTTPException) as error:
            connection.close()
            number = reading["number"]
            print(f"reading {number}: {error!r}; again in {pause} s", file=sys.stderr, flush=True)
        if time.monotonic() + pause > end:
            return False
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


def main() -> None:
    """Sends readings from standard input, one per line."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("host", metavar="HOST:PORT", help="the receiver")
    arguments.add_argument("--device", default="device", help="our name")
    arguments.add_argument(
        "--patience", type=float, default=120.0, metavar="SECONDS", help="for each reading"
    )
    options = arguments.parse_args()
    connection = HTTPConnection(options.host, timeout=WITHIN)
    lost = 0
    for number, line in enumerate(sys.stdin):
        reading = {"device": options.device, "number": number, "value": line.strip()}
        lost += not deliver(connection, reading, options.patience)
    connection.close()
    if lost:
        sys.exit(f"{lost} readings were not delivered")


if __name__ == "__main__":
    main()
