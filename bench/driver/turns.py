"""Programs that train one model in different ways, all alive, one of them at work at a time."""

from statistics import median

from driver.processes import Contender, Failure
from driver.report import row


class Turns:
    def __init__(self, model, settings, plans, foreign, lives=1):
        """`plans`: (who, variant, commands, environment) of each; those of `foreign` may be missing.

        `lives`: how often all are started anew; the rounds are divided among them.
        """
        self.lives = lives
        self.model = model
        self.settings = settings
        self.plans = plans
        self.foreign = foreign
        self.contenders = {}  # (who, variant) -> Contender

    def start(self):
        for who, variant, commands, environment in self.plans:
            name = f"{self.model} {who} {variant}".strip()
            self.contenders[who, variant] = Contender(name, commands, environment, self.settings.logs)
        self.warm_up()

    def warm_up(self):
        for key in list(self.contenders):
            contender = self.contenders[key]
            try:
                ready = contender.wait_until_ready()
                self.settings.versions.setdefault("libtorch", ready.get("libtorch"))
                contender.train(min(1.0, self.settings.window))
            except Failure as failure:
                if key[0] not in self.foreign:
                    raise
                print(f"  {failure}; its line is left out", flush=True)
                contender.stop()
                del self.contenders[key]

    def run(self):
        """All rounds; every round begins with another contender."""
        order = list(self.contenders.values())
        for k in range(self.settings.rounds):
            if k > 0 and k * self.lives // self.settings.rounds > (k - 1) * self.lives // self.settings.rounds:
                self.restart()
            for contender in order[k % len(order):] + order[:k % len(order)]:
                contender.sample(self.settings.window, self.settings.patience)

    def restart(self):
        self.stop()
        for contender in self.contenders.values():
            contender.start()
        self.warm_up()

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
        return [row(what, "examples/s", ours.samples, peer=who, peer_values=peer.samples, target=target, is_paired=self.lives > 1,
                    config={**self.config(ours), "peer_variant": variant, "peer_medians": others,
                            "disturbed_samples": ours.disturbed + peer.disturbed})]

    def config(self, contender):
        """With what the time went into: processor milliseconds and page faults a step, of all replicas together."""
        def a_step(key):
            return round(median(window[key] / window["steps"] for window in contender.windows[1:]), 6)

        return {"replicas": 2, "lockstep_args": self.settings.lockstep_args, "window_s": self.settings.window, "user_s_a_step": a_step("user_s"),
                "system_s_a_step": a_step("system_s"), "page_faults_a_step": a_step("page_faults"),
                "loss": [round(contender.losses[0], 4), round(contender.losses[-1], 4)]}

    def not_learning(self):
        return [c.name for c in self.contenders.values() if not c.has_learnt()]

    def measure(self, rows):
        """What rows(turns) makes of all samples, and the names of contenders whose loss did not fall."""
        try:
            self.start()
            self.run()
            return rows(self), self.not_learning()
        finally:
            self.stop()
