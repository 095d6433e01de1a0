"""TensorFlow's MultiWorkerMirroredStrategy: two processes of one CPU each on this machine. Driven like train_bench.

    tf_multi_worker.py W1 [--intra=N] [--inter=N] [--form=call|loop]

This process starts the two workers (--task=K) and tells both how many steps to train, since they must agree on it.
"""

import json
import os
import socket
import subprocess
import sys

import common


def free_addresses(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    addresses = ["127.0.0.1:%d" % one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return addresses


def start_workers():
    workers = []
    addresses = free_addresses(common.REPLICAS)
    for task in range(common.REPLICAS):
        config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": task}}
        workers.append(subprocess.Popen([sys.executable, *sys.argv, f"--task={task}"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, env={**os.environ, "TF_CONFIG": json.dumps(config)}))
    return workers


def answer(worker):
    for line in worker.stdout:
        if line.startswith("loss "):
            return float(line.split()[1])
    raise RuntimeError("a worker has ended")


def drive(workers):
    def train(steps):
        for worker in workers:
            worker.stdin.write(f"{steps}\n")
            worker.stdin.flush()
        return [answer(worker) for worker in workers][0]

    model = sys.argv[1]
    try:
        common.serve(train, common.BATCH[model] * common.REPLICAS)
    finally:
        for worker in workers:
            worker.kill()  # TensorFlow's workers wait for each other when they end


def work():
    import tf_mirrored
    tf = tf_mirrored.tf
    parser = tf_mirrored.make_parser()
    parser.add_argument("--task", type=int)
    arguments = parser.parse_args()
    tf_mirrored.set_threads(arguments)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    tf.keras.utils.set_random_seed(1)
    trainer = tf_mirrored.Trainer(arguments, strategy)
    for line in sys.stdin:
        print("loss", trainer.train(int(line)), flush=True)


if __name__ == "__main__":
    if any(word.startswith("--task=") for word in sys.argv):
        work()
    else:
        drive(start_workers())
