#!/usr/bin/env python3
"""Trains a small convolutional network with PyTorch and writes its weights for examples/transfer_learning.cc.

It learns six kinds of clothes of Fashion-MNIST and has never seen a shoe or a bag. examples/data/backbone.safetensors is what
this wrote with PyTorch 2.13 on a CPU:

    pip install torch safetensors numpy
    python3 examples/make_backbone.py examples/data/backbone.safetensors
"""
import gzip
import os
import sys

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn.functional import cross_entropy, max_pool2d

CLOTHES = [0, 1, 2, 3, 4, 6]  # T-shirt, trouser, pullover, dress, coat, shirt
FOLDER = os.environ.get("LOCKSTEP_FASHION_MNIST", "/usr/share/datasets/fashion-mnist")


class Backbone(nn.Module):
    """The names of its parts are those of the C++ module: backbone.conv1.weight and so on."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.conv3 = nn.Conv2d(16, 32, 3, padding=1)

    def forward(self, x):
        for conv in (self.conv1, self.conv2, self.conv3):
            x = max_pool2d(torch.relu(conv(x)), 2)
        return x.flatten(1)


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.backbone = Backbone()
        self.head = nn.Linear(32 * 3 * 3, classes)

    def forward(self, x):
        return self.head(self.backbone(x))


def read(prefix):
    with gzip.open(f"{FOLDER}/{prefix}-images-idx3-ubyte.gz") as file:
        images = torch.frombuffer(bytearray(file.read()[16:]), dtype=torch.uint8).view(-1, 1, 28, 28) / 255
    with gzip.open(f"{FOLDER}/{prefix}-labels-idx1-ubyte.gz") as file:
        labels = torch.frombuffer(bytearray(file.read()[8:]), dtype=torch.uint8).long()
    is_wanted = torch.isin(labels, torch.tensor(CLOTHES))
    number = torch.full((10,), -1)
    number[CLOTHES] = torch.arange(len(CLOTHES))
    return images[is_wanted], number[labels[is_wanted]]


def main():
    torch.manual_seed(1)
    images, labels = read("train")
    net = Net(len(CLOTHES))
    optimizer = torch.optim.Adam(net.parameters(), 2e-3)
    for epoch in range(5):
        for rows in torch.randperm(len(images)).split(128):
            loss = cross_entropy(net(images[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch + 1}: loss of the last batch {loss.item():.3f}")
    with torch.no_grad():
        images, labels = read("t10k")
        accuracy = (net(images).argmax(1) == labels).float().mean().item()
    print(f"accuracy on {len(CLOTHES)} kinds of clothes: {accuracy:.3f}")
    save_file(net.state_dict(), sys.argv[1], {"trained_on": "Fashion-MNIST, classes 0 1 2 3 4 6"})


if __name__ == "__main__":
    main()
