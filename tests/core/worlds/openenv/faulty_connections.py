"""An OpenEnv server without the package's kit whose connections go wrong: `python faulty_connections.py PORT WAY`.

It resets the connection at the first step ("reset"), or a proxy before it has no server two times of three ("proxy").
"""

import asyncio
import itertools
import json
import socket
import struct
import sys
from http import HTTPStatus

from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

SCHEMA = {"action": {"properties": {"message": {}}, "required": ["message"], "additionalProperties": False}}
GOOD = {"type": "observation", "data": {"observation": {"said": "hello"}, "reward": 0.0, "done": False}}


async def serve_connections(way: str, port: int) -> None:
    asked = itertools.count()

    def answer(connection: ServerConnection, request: Request) -> Response | None:
        if way == "proxy" and next(asked) % 3 < 2:
            return connection.respond(HTTPStatus.BAD_GATEWAY, "")
        if request.path == "/schema":
            return connection.respond(HTTPStatus.OK, json.dumps(SCHEMA))
        return None

    async def play(connection: ServerConnection) -> None:
        async for _ in connection:
            await connection.send(json.dumps(GOOD))
            if way == "reset":
                await connection.recv()
                end: socket.socket = connection.transport.get_extra_info("socket")
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.transport.abort()

    async with serve(play, "127.0.0.1", port, process_request=answer) as server:
        print(f"http://127.0.0.1:{port}", flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve_connections(sys.argv[2], int(sys.argv[1])))
