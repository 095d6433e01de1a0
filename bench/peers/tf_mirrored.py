"""TensorFlow's MirroredStrategy over two logical CPUs. Driven like train_bench.

    tf_mirrored.py W1 [--intra=N] [--inter=N] [--form=call|loop|fit]

--form=call: one call of a tf.function a step, as tf.distribute's guides train and as Lockstep's run() is called.
--form=loop: all steps of a window inside one tf.function, without Python in between.
--form=fit: Keras's compile and fit on a dataset in memory, a window an epoch, counted from
its first step on. --intra, --inter: TensorFlow's thread
settings, 0 for its own choice.
"""

import argparse
import os
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

import common  # noqa: E402

keras = tf.keras
layers = keras.layers


def make_parser():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--intra", type=int, default=0)
    parser.add_argument("--inter", type=int, default=0)
    parser.add_argument("--form", choices=["call", "loop", "fit"], default="call")
    return parser


def set_threads(arguments):
    tf.config.threading.set_intra_op_parallelism_threads(arguments.intra)
    tf.config.threading.set_inter_op_parallelism_threads(arguments.inter)


def conv(outputs, padding):
    return layers.Conv2D(outputs, 3, padding=padding, activation="relu")


def transformer_layer(x):
    attended = layers.MultiHeadAttention(4, 32)(x, x)
    x = layers.LayerNormalization(epsilon=1e-5)(x + attended)
    fed = layers.Dense(128)(layers.Dense(512, activation="relu")(x))
    return layers.LayerNormalization(epsilon=1e-5)(x + fed)


def make_transformer():
    sequence = keras.Input((64, 128))
    x = transformer_layer(transformer_layer(sequence))
    return keras.Model(sequence, layers.Dense(10)(keras.ops.mean(x, axis=1)))


class Recommender(tf.Module):
    """The embedding is a plain variable, so that its gradient stays sparse."""

    def __init__(self):
        super().__init__()
        self.embedding = tf.Variable(tf.random.normal((1_000_000, 32)))
        self.head = keras.Sequential([keras.Input((832,)), layers.Dense(256, activation="relu"), layers.Dense(1)])

    @property
    def trainable_variables(self):
        return [self.embedding] + [v.value for v in self.head.trainable_variables]

    def __call__(self, x, training=True):
        rows = tf.reshape(tf.gather(self.embedding, x), (-1, 832))
        return tf.squeeze(self.head(rows), 1)


def make_net(model):
    if model == "W1":
        return keras.Sequential([keras.Input((28, 28, 1)), layers.Flatten(), layers.Dense(128, activation="relu"),
                                 layers.Dense(10)])
    if model == "W2":
        return keras.Sequential([keras.Input((28, 28, 1)), conv(32, "valid"), layers.MaxPool2D(), layers.Flatten(),
                                 layers.Dense(64, activation="relu"), layers.Dense(10)])
    if model == "W3":
        return keras.Sequential([keras.Input((28, 28, 1)), conv(32, "same"), conv(32, "same"), layers.MaxPool2D(),
                                 conv(64, "same"), conv(64, "same"), layers.MaxPool2D(), layers.Flatten(),
                                 layers.Dense(256, activation="relu"), layers.Dense(10)])
    return Recommender() if model == "W4" else make_transformer()


def make_optimizer(model):
    rate = common.LEARNING_RATE[model]
    return keras.optimizers.Adam(rate) if common.USES_ADAM[model] else keras.optimizers.SGD(rate)


def mean_loss(model, output, target):
    if model == "W4":
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(target, output))
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(target, output))


class Trainer:
    def __init__(self, arguments, strategy):
        self.model = arguments.model
        self.is_loop = arguments.form == "loop"
        self.strategy = strategy
        with self.strategy.scope():
            self.net = make_net(self.model)
            self.optimizer = make_optimizer(self.model)
            if common.USES_ADAM[self.model]:
                self.optimizer.build(self.net.trainable_variables)  # its variables cannot be made inside a tf.function
        parts = [common.make_batches(self.model, part) for part in range(common.REPLICAS)]
        if self.model in ("W1", "W2", "W3"):
            parts = [(x.transpose(0, 1, 3, 4, 2), y) for x, y in parts]
        self.batches = [self.per_replica([(x[i], y[i]) for x, y in parts]) for i in range(common.BATCHES)]
        self.stacked = self.per_replica(parts)
        self.next = 0
        self.recent = []

    def per_replica(self, parts):
        make = self.strategy.experimental_distribute_values_from_function
        return tuple(make(lambda context, k=k: tf.constant(parts[context.replica_id_in_sync_group][k])) for k in range(2))

    def replica_step(self, x, y):
        with tf.GradientTape() as tape:
            loss = mean_loss(self.model, self.net(x, training=True), y) / common.REPLICAS
        variables = self.net.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return loss

    @tf.function
    def one_step(self, x, y):
        return self.strategy.reduce("SUM", self.strategy.run(self.replica_step, (x, y)), axis=None)

    @tf.function
    def many_steps(self, first, steps, xs, ys):
        losses = tf.TensorArray(tf.float32, steps)
        for k in tf.range(steps):
            i = (first + k) % common.BATCHES
            loss = self.strategy.run(lambda x, y, i: self.replica_step(x[i], y[i]), (xs, ys, i))
            losses = losses.write(k, self.strategy.reduce("SUM", loss, axis=None))
        return losses.stack()

    def train(self, steps):
        if self.is_loop:
            first = tf.constant(self.next % common.BATCHES)
            losses = self.many_steps(first, tf.constant(steps), *self.stacked).numpy().tolist()
        else:
            losses = [self.one_step(*self.batches[(self.next + k) % common.BATCHES]) for k in range(steps)]
            losses = [float(loss) for loss in losses]
        self.next += steps
        self.recent = (self.recent + losses)[-common.BATCHES:]
        return sum(self.recent) / len(self.recent)


class FitTrainer:
    """Of W1, W2 and W3."""

    def __init__(self, arguments, strategy):
        self.model = arguments.model
        with strategy.scope():
            self.net = make_net(self.model)
            self.net.compile(optimizer=make_optimizer(self.model), loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        parts = [common.make_batches(self.model, part) for part in range(common.REPLICAS)]
        x, y = (np.concatenate([part[k] for part in parts], axis=1) for k in range(2))
        x = x.reshape(-1, *x.shape[2:]).transpose(0, 2, 3, 1)
        dataset = tf.data.Dataset.from_tensor_slices((x, y.reshape(-1))).batch(common.BATCH[self.model] * common.REPLICAS)
        self.dataset = dataset.repeat().prefetch(tf.data.AUTOTUNE)

    def train(self, steps):
        starts = []
        note = keras.callbacks.LambdaCallback(on_train_batch_begin=lambda batch, logs: starts or starts.append(time.perf_counter()))
        history = self.net.fit(self.dataset, epochs=1, steps_per_epoch=steps, verbose=0, callbacks=[note])
        return history.history["loss"][-1], time.perf_counter() - starts[0]


def main():
    arguments = make_parser().parse_args()
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * common.REPLICAS)
    set_threads(arguments)
    keras.utils.set_random_seed(1)
    make = FitTrainer if arguments.form == "fit" else Trainer
    trainer = make(arguments, tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]))
    common.serve(trainer.train, common.BATCH[arguments.model] * common.REPLICAS)


if __name__ == "__main__":
    main()
