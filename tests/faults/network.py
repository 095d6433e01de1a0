"""Machines on one machine: network namespaces whose links can fail, lose packets or be slow. Needs root."""
import os
import shutil
import subprocess

from registry import CannotRun, Failed


def _run(command, must_work=True):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=20)
    if must_work and done.returncode != 0:
        raise Failed(f"{' '.join(command)}: {done.stdout.decode(errors='replace').strip()}")
    return done.stdout.decode(errors="replace")


def need_networks():
    if os.geteuid() != 0:
        raise CannotRun("namespaces need root")
    if shutil.which("ip") is None:
        raise CannotRun("there is no command ip (iproute2)")
    if subprocess.run(["unshare", "--net", "true"], stderr=subprocess.DEVNULL, timeout=20).returncode != 0:
        raise CannotRun("this system does not let us make network namespaces")


def need_filters():
    need_networks()
    if shutil.which("nft") is None:
        raise CannotRun("there is no command nft (nftables)")


def need_tunnels():
    need_networks()
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        raise CannotRun("there is no /dev/net/tun")


class Machine:
    """A network namespace with one address."""

    def __init__(self, name, address):
        self.name = name
        self.address = address

    def __str__(self):
        return self.name

    def inside(self, command):
        return ["ip", "netns", "exec", self.name] + command

    def run(self, *command):
        return _run(self.inside(list(command)))

    def filter(self, *rules):
        """Rules for what comes in and goes out: ("output", "numgen random mod 100 < 5 drop")."""
        self.run("nft", "add table ip faults")
        for hook in ("input", "output"):
            self.run("nft", f"add chain ip faults {hook} {{ type filter hook {hook} priority 0; }}")
        for hook, rule in rules:
            self.run("nft", f"add rule ip faults {hook} {rule}")


def names(prefix):
    """The namespaces whose names begin so."""
    if shutil.which("ip") is None:
        return []
    return [line.split()[0] for line in _run(["ip", "netns", "list"], must_work=False).splitlines()
            if line.startswith(prefix)]


def remove_all(prefix):
    """Deletes the namespaces whose names begin so, and with them their links."""
    for name in names(prefix):
        _run(["ip", "netns", "delete", name], must_work=False)


def _make(at, letters):
    prefix = f"{at.mark}-"
    at.cleanup.callback(remove_all, prefix)
    machines = []
    for number, letter in enumerate(letters, start=1):
        machine = Machine(prefix + letter, f"10.77.0.{number}")
        _run(["ip", "netns", "add", machine.name])
        machine.run("ip", "link", "set", "lo", "up")
        machines.append(machine)
    return machines


class Switch:
    """Machines that are all plugged into one bridge, which is in a namespace of its own."""

    def __init__(self, at, count):
        *self.machines, self._hub = _make(at, "abcdefg"[:count] + "h")
        self._hub.run("ip", "link", "add", "bridge", "type", "bridge")
        self._hub.run("ip", "link", "set", "bridge", "up")
        for number, machine in enumerate(self.machines):
            port = f"port{number}"
            self._hub.run("ip", "link", "add", port, "type", "veth", "peer", "name", "eth", "netns", machine.name)
            self._hub.run("ip", "link", "set", port, "master", "bridge", "up")
            machine.run("ip", "address", "add", f"{machine.address}/24", "dev", "eth")
            machine.run("ip", "link", "set", "eth", "up")

    def pull_plug(self, machine):
        """The cable: the machine's own interface stays up, without a carrier."""
        self._hub.run("ip", "link", "set", f"port{self.machines.index(machine)}", "down")


def switch_off(machine):
    """The machine's own interface is down: its routes are gone too."""
    machine.run("ip", "link", "set", "eth", "down")


def vanish(machine):
    """Nothing comes in and nothing goes out, without a word to anybody. Inside the machine all is as it was."""
    machine.filter(("input", "iifname eth drop"), ("output", "oifname eth drop"))


def cut_between(machine, other, how):
    """The two do not hear each other any more; everybody else hears both. `how`: "drop", or "reject": routers tell."""
    verdict = "drop" if how == "drop" else "reject with icmp type host-unreachable"
    machine.filter(("input", f"ip saddr {other.address} {verdict}"), ("output", f"ip daddr {other.address} {verdict}"))


def lose(machine, percent):
    machine.filter(("output", f"oifname eth numgen random mod 100 < {percent} drop"))


def slow_pair(at, start, milliseconds):
    """Two machines with a line between them that takes this long, each way. `start` starts the process that is the line."""
    machines = _make(at, "ab")
    for machine, other in (machines, machines[::-1]):
        machine.run("ip", "tuntap", "add", "dev", "line", "mode", "tun")
        machine.run("ip", "address", "add", machine.address, "peer", other.address, "dev", "line")
        machine.run("ip", "link", "set", "line", "up")
    line = os.path.join(os.path.dirname(os.path.abspath(__file__)), "slow_line.py")
    return machines, start("slow line", [line, str(milliseconds)] + [machine.name for machine in machines])
