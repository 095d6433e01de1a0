"""Steps per second of PyTorch on one GPU: eager, under DDP, and as a CUDA graph; the peer of gpu_bench.

Usage: torch_gpu.py --model=W1|W2 [--seconds=1] [--rounds=5]; lines of JSON as gpu_bench prints them.
"""
import argparse
import json
import os
import statistics
import time

import torch
from torch import nn

BATCHES = 16


def make_net(model):
    if model == "W1":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    return nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(5408, 64), nn.ReLU(),
                         nn.Linear(64, 10))


def make_eager(model, wrap=lambda net: net):
    net = wrap(make_net(model).cuda())
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)

    def step(x, y):
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()
    return step


def make_ddp(model):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511", RANK="0", WORLD_SIZE="1")
    torch.distributed.init_process_group("nccl")
    return make_eager(model, lambda net: nn.parallel.DistributedDataParallel(net, device_ids=[0]))


def make_graph(model):
    """As PyTorch's documentation has it: a whole step, whose inputs are copied into tensors of its own."""
    net = make_net(model).cuda()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True, capturable=True)
    static_x = torch.rand(64, 1, 28, 28, device="cuda")
    static_y = torch.randint(10, (64,), device="cuda")

    def one():
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(net(static_x), static_y)
        loss.backward()
        optimizer.step()
        return loss
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            one()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        static_loss = one()

    def step(x, y):
        static_x.copy_(x)
        static_y.copy_(y)
        graph.replay()
        return static_loss
    return step


def steps_per_second(step, batches, seconds):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    steps = 0
    while time.perf_counter() - begin < seconds:
        for x, y in batches:
            loss = step(x, y)
        steps += len(batches)
        loss.item()
    torch.cuda.synchronize()
    return steps / (time.perf_counter() - begin)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="W2")
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    batches = [(torch.rand(64, 1, 28, 28, device="cuda"), torch.randint(10, (64,), device="cuda")) for _ in range(BATCHES)]
    modes = {"eager": make_eager(arguments.model), "ddp": make_ddp(arguments.model), "graph": make_graph(arguments.model)}
    samples = {name: [] for name in modes}
    for step in modes.values():
        steps_per_second(step, batches, 0.5)
    for _ in range(arguments.rounds):
        for name, step in modes.items():
            samples[name].append(steps_per_second(step, batches, arguments.seconds))
    for name, values in samples.items():
        print(json.dumps({"model": arguments.model, "mode": "pytorch " + name,
                          "steps_per_s": round(statistics.median(values), 1), "samples": [round(v, 1) for v in values]}))


if __name__ == "__main__":
    main()
