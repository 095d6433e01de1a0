#!/usr/bin/env python3
"""Weights between Lockstep and PyTorch, both ways, by the real packages `safetensors` and `torch`.

    weights_test.py BUILD/bin/weights_exchange
"""
import os
import subprocess
import sys
import tempfile

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(1, 2, 3)
        self.norm = torch.nn.BatchNorm2d(2)
        self.half = torch.nn.Linear(3, 2).to(torch.bfloat16)


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = os.path.join(folder, "ours.safetensors"), os.path.join(folder, "theirs.safetensors")
        subprocess.run([program, "write", ours], check=True)
        net = Net()
        net.load_state_dict(load_file(ours))  # strict: every name and shape
        with safe_open(ours, "pt") as file:
            assert file.metadata() == {"format": "pt"}, file.metadata()
        place = 1
        for tensor in [*net.parameters(), *net.buffers()]:
            expected = (torch.arange(tensor.numel()) * float(place)).reshape(tensor.shape).to(tensor.dtype)
            assert torch.equal(tensor, expected), (place, tensor, expected)
            place += 1
        with torch.no_grad():
            for tensor in [*net.parameters(), *net.buffers()]:
                tensor += 1
        save_file(net.state_dict(), theirs)
        subprocess.run([program, "read", theirs], check=True)
    print(f"weights: {place - 1} tensors, both ways: 1 passed, 0 failed")


if __name__ == "__main__":
    main()
