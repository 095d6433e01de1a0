"""The Python peers: PyTorch and TensorFlow from PyPI, each in its own environment under build/peers."""

import os
import subprocess
import sys

PACKAGES = {"torch": ["torch==2.13.0", "numpy"], "tensorflow": ["tensorflow-cpu"]}


def prepare(name, folder):
    """The Python of the peer `name`, installed on the first call; None, after saying why, when that does not work."""
    home = os.path.join(folder, name)
    python = os.path.join(home, "bin", "python")
    if subprocess.run([python, "-c", f"import {name}"], capture_output=True).returncode == 0 if os.path.exists(python) else False:
        return python
    print(f"peers: installing {' '.join(PACKAGES[name])} into {home}", flush=True)
    os.makedirs(folder, exist_ok=True)
    log = os.path.join(folder, f"{name}.log")
    with open(log, "w") as out:
        made = subprocess.run([sys.executable, "-m", "venv", "--clear", home], stdout=out, stderr=out)
        if made.returncode == 0:
            made = subprocess.run([python, "-m", "pip", "install", "-q", *PACKAGES[name]], stdout=out, stderr=out)
    if made.returncode == 0:
        return python
    print(f"peers: {name} could not be installed, so its lines are left out; see {log}", flush=True)
    return None


def version(python, name):
    code = f"import {name}; print({name}.__version__)"
    found = subprocess.run([python, "-c", code], capture_output=True, text=True, env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"})
    return found.stdout.strip() or "unknown"
