#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The server for `uplink.py`: it stores the readings of devices.

It prints `listening PORT`, and then each stored reading as a line of JSON, with the time in
seconds since its start. A POST to /readings stores another reading. A PUT to
/readings/DEVICE/NUMBER stores a reading under that name, once even if it is repeated.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

BEGAN = time.monotonic()
LONGEST = 64 * 1024


class Receiver(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    named: ClassVar[set[str]] = set()

    def do_POST(self) -> None:
        """Stores another reading."""
        self.take(None)

    def do_PUT(self) -> None:
        """Stores a reading under its name."""
        self.take(self.path)

    def take(self, name: str | None) -> None:
        """Stores a reading unless its name is known, and answers."""
        length = int(self.headers.get("Content-Length", "-1"))
        if not 0 <= length <= LONGEST or not self.path.startswith("/readings"):
            self.close_connection = True
            return self.answer(400)
        body = self.rfile.read(length)
        if len(body) < length:
            # The device aborted the upload.
            self.close_connection = True
            return None
        try:
            reading = json.loads(body)
        except ValueError:
            return self.answer(400)
        if name is None or name not in self.named:
            if name is not None:
                self.named.add(name)
            at = round(time.monotonic() - BEGAN, 3)
            print(json.dumps({"at": at, "reading": reading}), flush=True)
        return self.answer(204)

    def answer(self, status: int) -> None:
        """An answer without a body."""
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Disables the log, because standard output is for readings."""


def main() -> None:
    """Serves until standard input closes, so it ends with its starter, also over ssh."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("address", help="where to listen")
    arguments.add_argument("--port", type=int, default=0, help="a free one without it")
    options = arguments.parse_args()
    server = ThreadingHTTPServer((options.address, options.port), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"listening {server.server_port}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
