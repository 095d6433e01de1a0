"""PyTorch's DataLoader on Fashion-MNIST in memory, shuffled, in batches of 128: torch_loader.py [--variant=V]."""

import sys

import numpy as np
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

from common import read_gzip, serve_input

BATCH = 128


def make(variant):
    pixels = read_gzip("train-images-idx3-ubyte.gz", 16, 60_000 * 784).astype(np.float32).reshape(-1, 1, 28, 28) / 255
    labels = read_gzip("train-labels-idx1-ubyte.gz", 8, 60_000).astype(np.int64)
    data = TensorDataset(torch.from_numpy(pixels), torch.from_numpy(labels))
    if variant == "whole batches":
        return DataLoader(data, sampler=BatchSampler(RandomSampler(data), BATCH, drop_last=False), batch_size=None)
    return DataLoader(data, batch_size=BATCH, shuffle=True, num_workers=2 if variant == "two workers" else 0)


if __name__ == "__main__":
    serve_input(make(sys.argv[1].partition("=")[2] if len(sys.argv) > 1 else ""), lambda batch: batch[0].shape[0])
