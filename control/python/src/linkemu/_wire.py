# SPDX-License-Identifier: Apache-2.0
"""Address of linkd, connection options, and retries. Pure."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from linkemu import v1
from linkemu.errors import LinkemuError, NotFound, Unavailable

DEFAULT_SOCKET = "/run/linkemu/linkd.sock"
"""The default of linkctl."""
TIMEOUT = 20.0
"""Seconds for a call. Longer than linkd's deadlines for the dataplane."""
PATIENCE = 5.0
"""Seconds for which calls are retried while linkd restarts."""
LINKS = "links/"
"""Prefix of the resource names of links."""
_LINK = re.compile(r"[A-Za-z0-9._-]*")
_ANSWER_BYTES = 64 << 20
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 0.5

_TOKEN_KEY = "linkemu-lease"

Options = Sequence[tuple[str, str | int]]
Metadata = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Tls:
    """Certificates for a linkd on TCP, made by `linkctl pki`: PEM files."""

    ca: str | os.PathLike[str]
    """The authority that signed the certificate of linkd."""
    cert: str | os.PathLike[str]
    """The certificate of the client."""
    key: str | os.PathLike[str]
    """The key of the client."""

    def credentials(self) -> grpc.ChannelCredentials:
        """Reads the files."""
        texts = []
        for path in (self.ca, self.key, self.cert):
            try:
                texts.append(Path(path).read_bytes())
            except OSError as error:
                raise LinkemuError(
                    f"cannot read {os.fspath(path)}: {error.strerror}; linkctl pki makes it"
                ) from error
        return grpc.ssl_channel_credentials(*texts)


def metadata(token: str | None) -> Metadata:
    """Of a call: the lease that it is made under."""
    return ((_TOKEN_KEY, token),) if token else ()


@dataclass(frozen=True)
class Place:
    """Address of linkd."""

    target: str
    """For gRPC: "unix:/path" or "host:port"."""
    tls: Tls | None
    link: str = ""
    """The link that calls are about; empty: main."""

    @classmethod
    def of(
        cls, address: str | os.PathLike[str] | None, tls: Tls | None, link: str | None = None
    ) -> Place:
        """From "unix:/path", "/path" or "host:port"; none is the default socket of linkd."""
        link = link or ""
        if not _LINK.fullmatch(link):
            raise ValueError(
                f"{link!r} is no name of a link: it has letters, digits, '.', '_' and '-'"
            )
        text = os.fspath(address) if address is not None else DEFAULT_SOCKET
        if text.startswith("/"):
            text = f"unix:{text}"
        if text.startswith("unix:"):
            if tls is not None:
                raise ValueError(f"{text} is a unix socket, which has no TLS: leave `tls` out")
            return cls(text, None, link)
        host, colon, port = text.rpartition(":")
        if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError(
                f"{text!r} is no address of linkd: write unix:/PATH, or HOST:PORT such as "
                "linkemu.lab:8443"
            )
        if tls is None:
            raise ValueError(
                f"{text} needs `tls`: over the network linkd knows you by a certificate"
            )
        return cls(text, tls, link)

    @classmethod
    def from_env(cls, environment: Mapping[str, str] | None = None) -> Place:
        """From the variables of linkctl: LINKEMU_SERVER, _CA, _CERT and _KEY, or LINKEMU_SOCKET;
        and LINKEMU_LINK.
        """
        env = os.environ if environment is None else environment
        link = env.get("LINKEMU_LINK", "").removeprefix(LINKS)
        server = env.get("LINKEMU_SERVER")
        if not server:
            return cls.of(env.get("LINKEMU_SOCKET") or None, None, link)
        names = ("LINKEMU_CA", "LINKEMU_CERT", "LINKEMU_KEY")
        missing = [name for name in names if not env.get(name)]
        if missing:
            raise ValueError(f"LINKEMU_SERVER={server} needs {', '.join(missing)} too")
        return cls.of(server, Tls(*(env[name] for name in names)), link)

    def about(self, request: Message) -> Message:
        """Names this link in a request about one link, unless it names another."""
        field = "name" if isinstance(request, v1.GetLinkRequest) else "link"
        requests: Iterable[Message] = (request,)
        if isinstance(request, v1.UpdateLinksRequest):
            requests = request.updates
        for one in requests:
            known = one.DESCRIPTOR.fields_by_name.get(field)
            is_text = known is not None and known.type == FieldDescriptor.TYPE_STRING
            if is_text and not getattr(one, field) and self.link:
                setattr(one, field, f"{LINKS}{self.link}")
        return request

    def options(self) -> Options:
        """Options of the channel."""
        options: list[tuple[str, str | int]] = [
            ("grpc.max_receive_message_length", _ANSWER_BYTES),
            ("grpc.initial_reconnect_backoff_ms", 100),
            # Also the timeout of a connection with its handshake.
            ("grpc.min_reconnect_backoff_ms", 10_000),
            ("grpc.max_reconnect_backoff_ms", 500),
            # Calls are retried here, by their request id.
            ("grpc.enable_retries", 0),
            # The box is in the lab, so a proxy is of no use.
            ("grpc.enable_http_proxy", 0),
            ("grpc.use_local_subchannel_pool", 1),
        ]
        if self.tls is None:
            # Otherwise the socket's path is the authority, which HTTP/2 does not allow.
            options.append(("grpc.default_authority", "localhost"))
        return options


class Attempts:
    """Decides about retries while linkd is unreachable."""

    def __init__(
        self, patience: float, again: bool, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._now = now
        self._until = now() + (patience if again else 0.0)
        self._pause = _FIRST_PAUSE
        self._failed = 0

    def pause(self, error: LinkemuError) -> float:
        """Seconds to wait before the next attempt; raises the error if there is none."""
        timed_out = error.code == grpc.StatusCode.DEADLINE_EXCEEDED.name
        if not isinstance(error, Unavailable) or timed_out or self._now() >= self._until:
            raise error
        pause, self._pause = self._pause, min(self._pause * 2, _LONGEST_PAUSE)
        self._failed += 1
        return pause

    def removed(self, error: LinkemuError) -> bool:
        """Whether an earlier attempt already removed what the call removes."""
        return self._failed > 0 and isinstance(error, NotFound)
