"""Training of W1 to W5: Lockstep in turns with its peers."""

import os
from statistics import median

from driver import cluster
from driver.processes import KEPT_PAGES, Contender, Failure
from driver.report import row

MODELS = ["W1", "W2", "W3", "W4", "W5"]
INDEPENDENT = "two C++ processes without communication"
DDP = "PyTorch DDP, gloo"
TF = "TensorFlow MirroredStrategy"
TF_LOOP = "TensorFlow MirroredStrategy, all steps in one tf.function"
TF_WORKERS = "TensorFlow MultiWorkerMirroredStrategy"
TF_WORKERS_LOOP = "TensorFlow MultiWorkerMirroredStrategy, all steps in one tf.function"
WORKERS = "two workers"
MIRRORED = "MirroredStrategy with two replicas"
TARGETS = {
    INDEPENDENT: {"W1": 0.90, "W2": 0.90, "W3": 0.85, "W4": 0.8, "W5": 0.90},
    DDP: {"W1": 5, "W2": 1.5, "W3": 1.0, "W4": 2, "W5": 1.1},
    TF: {"W1": 2.5, "W4": 4, "W5": 1.25},
    TF_LOOP: {},
}
# Two workers of one replica each.
WORKER_TARGETS = {
    DDP: {"W1": 1, "W2": 1, "W3": 1, "W4": 1, "W5": 1},
    TF_WORKERS: {"W1": 5, "W2": 1, "W4": 5, "W5": 1},
    TF_WORKERS_LOOP: {},
}
FOREIGN = (DDP, TF, TF_LOOP, TF_WORKERS, TF_WORKERS_LOOP)
# Overlap may not cost anything; this much is what two identical programs differ by on a quiet machine.
OVERLAP_NOISE = 0.03


class Training:
    """The contenders of one model, all alive, one of them at work at a time."""

    def __init__(self, model, settings):
        self.model = model
        self.settings = settings
        program = os.path.join(settings.build, "bin", "train_bench")
        peers = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "peers")
        one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        alone = [[program, "--mode=independent", f"--model={model}", f"--part={part}"] for part in range(2)]
        ours = [f"--model={model}", *settings.lockstep_args]
        plans = [("lockstep", "", [[program, "--mode=lockstep", *ours]], {}),
                 ("no overlap", "", [[program, "--mode=lockstep_no_overlap", *ours]], {}),
                 (INDEPENDENT, "malloc as it is", alone, one_thread),
                 (INDEPENDENT, "malloc keeps pages", alone, {**one_thread, **KEPT_PAGES})]
        if settings.torch:
            ddp = [[settings.torch, os.path.join(peers, "ddp.py"), model]]
            plans += [(DDP, "malloc as it is", ddp, {}), (DDP, "malloc keeps pages", ddp, KEPT_PAGES)]
        if settings.tensorflow:
            for who, script, form in ((TF, "tf_mirrored.py", "call"), (TF_LOOP, "tf_mirrored.py", "loop"),
                                      (TF_WORKERS, "tf_multi_worker.py", "call"), (TF_WORKERS_LOOP, "tf_multi_worker.py", "loop")):
                command = [settings.tensorflow, os.path.join(peers, script), model, f"--form={form}"]
                plans += [(who, f"{intra} x {inter} threads", [command + [f"--intra={intra}", f"--inter={inter}"]], {})
                          for intra, inter in ((0, 0), (1, 2))]
        plans.append((WORKERS, "", [[program, "--mode=worker", *ours]] * 2, cluster.environments(2)))
        self.plans = plans
        self.contenders = {}  # (who, variant) -> Contender

    def start(self):
        for who, variant, commands, environment in self.plans:
            name = f"{self.model} {who} {variant}".strip()
            self.contenders[who, variant] = Contender(name, commands, environment, self.settings.logs)
        for key in list(self.contenders):
            contender = self.contenders[key]
            try:
                ready = contender.wait_until_ready()
                self.settings.versions.setdefault("libtorch", ready.get("libtorch"))
                contender.train(min(1.0, self.settings.window))
            except Failure as failure:
                if key[0] not in FOREIGN:
                    raise
                print(f"  {failure}; its line is left out", flush=True)
                contender.stop()
                del self.contenders[key]

    def run(self):
        """All rounds; every round begins with another contender."""
        order = list(self.contenders.values())
        for k in range(self.settings.rounds):
            for contender in order[k % len(order):] + order[:k % len(order)]:
                contender.sample(self.settings.window, self.settings.patience)

    def stop(self):
        for contender in self.contenders.values():
            contender.stop()

    def best(self, who):
        """The variant of a peer with the highest median: a peer is never handicapped."""
        variants = [(variant, c) for (name, variant), c in self.contenders.items() if name == who]
        return max(variants, key=lambda pair: median(pair[1].samples), default=(None, None))

    def against(self, what, ours, who, target):
        """The line of `ours` against the best variant of a peer; none when the peer is not here."""
        variant, peer = self.best(who)
        if peer is None:
            return []
        others = {name: round(median(c.samples), 1) for (w, name), c in self.contenders.items() if w == who}
        return [row(what, "examples/s", ours.samples, peer=who, peer_values=peer.samples, target=target,
                    config={**self.config(ours), "peer_variant": variant, "peer_medians": others,
                            "disturbed_samples": ours.disturbed + peer.disturbed})]

    def rows(self):
        lockstep = self.contenders["lockstep", ""]
        plain = self.contenders["no overlap", ""]
        result = []
        for who, targets in TARGETS.items():
            result += self.against(f"train {self.model}", lockstep, who, targets.get(self.model))
        workers = self.contenders[WORKERS, ""]
        result.append(row(f"two workers {self.model}", "examples/s", workers.samples, peer=MIRRORED,
                          peer_values=lockstep.samples, target=0.95,
                          config={**self.config(workers), "disturbed_samples": workers.disturbed + lockstep.disturbed}))
        for who, targets in WORKER_TARGETS.items():
            result += self.against(f"two workers {self.model}", workers, who, targets.get(self.model))
        result.append(row(f"overlap {self.model}", "examples/s", lockstep.samples, peer="overlap off",
                          peer_values=plain.samples, target=1.0, tolerance=OVERLAP_NOISE,
                          config={**self.config(lockstep), "disturbed_samples": lockstep.disturbed + plain.disturbed}))
        return result

    def config(self, contender):
        """With what the time went into: processor milliseconds and page faults a step, of all replicas together."""
        def a_step(key):
            return round(median(window[key] / window["steps"] for window in contender.windows[1:]), 6)

        return {"replicas": 2, "lockstep_args": self.settings.lockstep_args, "window_s": self.settings.window, "user_s_a_step": a_step("user_s"),
                "system_s_a_step": a_step("system_s"), "page_faults_a_step": a_step("page_faults"),
                "loss": [round(contender.losses[0], 4), round(contender.losses[-1], 4)]}

    def not_learning(self):
        return [c.name for c in self.contenders.values() if not c.has_learnt()]


def measure(model, settings):
    """The rows of one model, and the names of contenders whose loss did not fall."""
    training = Training(model, settings)
    try:
        training.start()
        training.run()
        return training.rows(), training.not_learning()
    finally:
        training.stop()
