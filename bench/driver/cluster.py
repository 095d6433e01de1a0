"""Environments of workers on this machine's own network."""

import json
import secrets
import socket


def free_ports(count):
    """Ports that were free together."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def environments(workers):
    """One for each of so many workers on the loopback."""
    return environments_at([f"127.0.0.1:{port}" for port in free_ports(workers)])


def environments_at(addresses):
    """One for each worker: who it is, and the job's secret."""
    secret = secrets.token_hex(8)
    return [{"TF_CONFIG": json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}),
             "LOCKSTEP_JOB_SECRET": secret} for index in range(len(addresses))]
