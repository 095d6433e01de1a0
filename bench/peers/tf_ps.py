"""TensorFlow's ParameterServerStrategy: one parameter server and two workers on this machine. Driven like train_bench.

    tf_ps.py closures|W1|W4 [--intra=N] [--inter=N]

This process is the coordinator, and starts the others (--task=ps:0, --task=worker:0, ...). The models are tf.Modules.
"""

import argparse
import json
import os
import subprocess
import sys
import traceback

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["GRPC_FAIL_FAST"] = "use_caller"

import tensorflow as tf  # noqa: E402

import common  # noqa: E402
from tf_multi_worker import free_addresses  # noqa: E402

WORKERS = 2


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("work", choices=["closures", "W1", "W4"])
    parser.add_argument("--intra", type=int, default=0)
    parser.add_argument("--inter", type=int, default=0)
    parser.add_argument("--task", default="")
    return parser.parse_args()


def serve_task(arguments):
    """A parameter server or a worker, until it is killed."""
    cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=arguments.intra,
                                      inter_op_parallelism_threads=arguments.inter or 2)  # 1 would never answer itself
    server = tf.distribute.Server(cluster.cluster_spec(), job_name=cluster.task_type, task_index=cluster.task_id,
                                  protocol="grpc", config=config, start=True)
    server.join()


def start_tasks():
    addresses = free_addresses(2 + WORKERS)
    cluster = {"chief": addresses[:1], "ps": addresses[1:2], "worker": addresses[2:]}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": "chief", "index": 0}})
    tasks = []
    for job, index in [("ps", 0)] + [("worker", k) for k in range(WORKERS)]:
        config = {"cluster": cluster, "task": {"type": job, "index": index}}
        tasks.append(subprocess.Popen([sys.executable, *sys.argv, f"--task={job}:{index}"], stdout=subprocess.DEVNULL,
                                      env={**os.environ, "TF_CONFIG": json.dumps(config)}))
    return tasks


def dense(inputs, outputs):
    limit = inputs ** -0.5
    return (tf.Variable(tf.random.uniform((inputs, outputs), -limit, limit)), tf.Variable(tf.zeros((outputs,))))


class Mlp(tf.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = dense(784, 128), dense(128, 10)

    def loss(self, x, y):
        hidden = tf.nn.relu(tf.reshape(x, (-1, 784)) @ self.first[0] + self.first[1])
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, hidden @ self.last[0] + self.last[1]))


class Recommender(tf.Module):
    def __init__(self):
        super().__init__()
        self.table = tf.Variable(tf.random.normal((1_000_000, 32)))
        self.first, self.last = dense(832, 256), dense(256, 1)

    def loss(self, x, y):
        rows = tf.reshape(tf.nn.embedding_lookup(self.table, x), (-1, 832))
        hidden = tf.nn.relu(rows @ self.first[0] + self.first[1])
        output = tf.squeeze(hidden @ self.last[0] + self.last[1], 1)
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(y, output))


class Steps:
    """Each worker cycles through its 16 batches; SGD is written out, so that Keras's optimizer is not in the way."""

    def __init__(self, coordinator, strategy, model):
        rate = common.LEARNING_RATE[model]
        with strategy.scope():
            net = Mlp() if model == "W1" else Recommender()

        def batches():
            # A worker's own part of the data is not told to it here: the same 16 batches cost the same.
            x, y = common.make_batches(model, 0)
            return tf.data.Dataset.from_tensor_slices((x, y)).cache().repeat().prefetch(4)

        self.iterator = iter(coordinator.create_per_worker_dataset(batches))
        variables = net.trainable_variables

        @tf.function
        def step(iterator):
            x, y = next(iterator)
            with tf.GradientTape() as tape:
                loss = net.loss(x, y)
            for variable, gradient in zip(variables, tape.gradient(loss, variables)):
                if isinstance(gradient, tf.IndexedSlices):
                    variable.scatter_sub(tf.IndexedSlices(rate * gradient.values, gradient.indices))
                else:
                    variable.assign_sub(rate * gradient)
            return loss

        self.coordinator = coordinator
        self.step = step
        self.recent = []

    def train(self, steps):
        losses = [self.coordinator.schedule(self.step, args=(self.iterator,)) for _ in range(steps)]
        self.coordinator.join()
        self.recent = (self.recent + losses)[-common.BATCHES:]
        values = self.coordinator.fetch(self.recent)
        return float(sum(values)) / len(values)


class Closures:
    def __init__(self, coordinator):
        @tf.function
        def nothing():
            return tf.constant(0.0)

        self.coordinator = coordinator
        self.nothing = nothing

    def train(self, steps):
        for _ in range(steps):
            self.coordinator.schedule(self.nothing)
        self.coordinator.join()
        return 0


def main():
    arguments = parse()
    if arguments.task:
        return serve_task(arguments)
    tasks = start_tasks()
    try:
        tf.config.threading.set_intra_op_parallelism_threads(arguments.intra)
        tf.config.threading.set_inter_op_parallelism_threads(arguments.inter)
        strategy = tf.distribute.ParameterServerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())
        coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        is_empty = arguments.work == "closures"
        worker = Closures(coordinator) if is_empty else Steps(coordinator, strategy, arguments.work)
        worker.train(20)  # every worker has traced its function
        common.serve(worker.train, 1 if is_empty else common.BATCH[arguments.work])
    except Exception:
        traceback.print_exc()
    for task in tasks:
        task.kill()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # TensorFlow would wait for the tasks that have gone


if __name__ == "__main__":
    main()
