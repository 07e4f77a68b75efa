"""A workflow whose argument no value can be decoded for."""

import socket

import perdure


@perdure.workflow(name="t.bad_annotation")
async def takes_a_socket(connection: socket.socket) -> None:
    connection.close()
