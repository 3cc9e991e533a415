# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
A client of the control socket (common/ctl_proto.h), for machines on which gpupool-stat cannot be built.
"""

import json
import pathlib
import socket


def sockets(directory):
    try:
        return sorted(pathlib.Path(directory).glob("*.sock"))
    except OSError:
        return []


def ask(path, request, timeout=10):
    """The answer to one line of words: one JSON object on one line."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout)
        connection.connect(str(path))
        connection.sendall(request.encode() + b"\n")
        answer = connection.makefile("rb").readline()
    return json.loads(answer)


def ask_process(directory, pid, request):
    for path in sockets(directory):
        if path.name.split(".")[0] == str(pid):
            return ask(path, request)
    return None


def device_sum(status, key):
    """The sum over all devices, without unpooled memory."""
    return sum(device.get(key) or 0 for device in status.get("devices", []))
