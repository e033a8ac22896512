# SPDX-License-Identifier: Apache-2.0
"""A client of linkd without generated code: it knows the names of four calls and reads all types
from the server's reflection.

    reflection_client.py SOCKET

Sets a profile, repeats the request, requests a profile that does not exist, halves the forward
rate, and takes three snapshots from the stream of statistics. Prints the answers as JSON.
"""

import json
import sys

import grpc
from google.protobuf import descriptor_pool, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

FORWARD = 1
SNAPSHOTS = 3


class Client:
    """Calls the methods of a service by name, with keywords for the request's fields."""

    def __init__(self, channel, service):
        pool = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
        self._channel = channel
        self._service = pool.FindServiceByName(service)

    def call(self, method, **fields):
        """The answer, or the iterator over a stream's answers."""
        described = self._service.methods_by_name[method]
        request = message_factory.GetMessageClass(described.input_type)
        answer = message_factory.GetMessageClass(described.output_type)
        kind = (
            self._channel.unary_stream
            if described.server_streaming
            else self._channel.unary_unary
        )
        call = kind(
            f"/{self._service.full_name}/{method}",
            request_serializer=request.SerializeToString,
            response_deserializer=answer.FromString,
        )
        return call(request(**fields), timeout=20)


def main(socket):
    # Python's gRPC names the socket's path as the authority, which HTTP/2 does not allow.
    options = [("grpc.default_authority", "localhost")]
    with grpc.insecure_channel(f"unix:{socket}", options=options) as channel:
        client = Client(channel, "linkemu.v1.Linkemu")

        def update(request_id="", **change):
            answer = client.call("UpdateLinks", updates=[change], request_id=request_id)
            return answer.links[0], answer.repeated

        first, _ = update("reflection", profile={"name": "viasat2"})
        again, repeated = update("reflection", profile={"name": "viasat2"})
        try:
            update(profile={"name": "../viasat2"})
            refused = None
        except grpc.RpcError as error:
            refused = error.code().name
        rate = {"pipe": {"rate_bps": 72_000_000}, "mask": {"paths": ["rate_bps"]}}
        patched, _ = update(pipes=[{"direction": FORWARD, **rate}])
        link = client.call("GetLink")
        seen = []
        for stats in client.call("WatchStats", interval_ns=100_000_000):
            seen.append(stats.generation)
            if len(seen) == SNAPSHOTS:
                break
    json.dump(
        {
            "set": first.applied.generation,
            "repeated": repeated and again.applied == first.applied,
            "refused": refused,
            "patched": patched.applied.generation,
            "rate_bps": link.profile.forward_pipe.rate_bps,
            "seen": seen,
        },
        sys.stdout,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
