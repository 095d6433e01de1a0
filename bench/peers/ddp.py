"""PyTorch DistributedDataParallel over gloo: 2 processes with one thread each. Driven like train_bench.

    ddp.py W1

Rank 0 reads the commands and starts rank 1, which is told the number of steps on its own standard input.
"""

import os
import subprocess
import sys
import tempfile

os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo")

import torch  # noqa: E402  (after the number of threads is set)
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

import common  # noqa: E402


def conv_relu(inputs, outputs, padding):
    return [nn.Conv2d(inputs, outputs, 3, padding=padding), nn.ReLU()]


def make_image_net(model):
    if model == "W1":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    if model == "W2":
        return nn.Sequential(*conv_relu(1, 32, 0), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(5408, 64), nn.ReLU(),
                             nn.Linear(64, 10))
    return nn.Sequential(*conv_relu(1, 32, 1), *conv_relu(32, 32, 1), nn.MaxPool2d(2), *conv_relu(32, 64, 1),
                         *conv_relu(64, 64, 1), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(3136, 256), nn.ReLU(),
                         nn.Linear(256, 10))


class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(1_000_000, 32, sparse=True)
        self.head = nn.Sequential(nn.Linear(832, 256), nn.ReLU(), nn.Linear(256, 1))

    def forward(self, x):
        return self.head(self.embedding(x).flatten(1)).squeeze(1)


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*[nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True) for _ in range(2)])
        self.last = nn.Linear(128, 10)

    def forward(self, x):
        return self.last(self.layers(x).mean(1))


def make_net(model):
    return {"W4": Recommender, "W5": Transformer}.get(model, lambda: make_image_net(model))()


class Trainer:
    def __init__(self, model, rank):
        torch.manual_seed(1)
        net = make_net(model)
        parameters = net.parameters()
        rate = common.LEARNING_RATE[model]
        self.optimizer = torch.optim.Adam(parameters, rate) if common.USES_ADAM[model] else torch.optim.SGD(parameters, rate)
        self.net = nn.parallel.DistributedDataParallel(net)
        self.loss = nn.BCEWithLogitsLoss() if model == "W4" else nn.CrossEntropyLoss()
        self.x, self.y = (list(torch.from_numpy(array)) for array in common.make_batches(model, rank))
        self.next = 0
        self.recent = []

    def train(self, steps):
        for _ in range(steps):
            i = self.next % common.BATCHES
            self.next += 1
            self.optimizer.zero_grad()
            loss = self.loss(self.net(self.x[i]), self.y[i])
            loss.backward()
            self.optimizer.step()
            self.recent = self.recent[-common.BATCHES + 1:] + [loss.item()]
        return sum(self.recent) / len(self.recent)


def connect(model, rank, meeting_file):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + meeting_file, rank=rank, world_size=common.REPLICAS)
    return Trainer(model, rank)


def lead(model):
    with tempfile.TemporaryDirectory() as folder:
        meeting_file = os.path.join(folder, "meeting")
        other = subprocess.Popen([sys.executable, __file__, model, meeting_file], stdin=subprocess.PIPE, text=True)
        trainer = connect(model, 0, meeting_file)

        def train(steps):
            print(steps, file=other.stdin, flush=True)
            return trainer.train(steps)

        common.serve(train, common.BATCH[model] * common.REPLICAS)
        other.stdin.close()
        other.wait(timeout=30)


def follow(model, meeting_file):
    trainer = connect(model, 1, meeting_file)
    for line in sys.stdin:
        trainer.train(int(line))


if __name__ == "__main__":
    lead(sys.argv[1]) if len(sys.argv) == 2 else follow(sys.argv[1], sys.argv[2])
    sys.stdout.flush()
    os._exit(0)  # gloo's own shutdown waits for the other process, which may be gone
