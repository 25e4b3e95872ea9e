"""An SDK's own event processor: three processes share a hub, one is killed, nothing is lost."""

import time
from collections import defaultdict

from .cases import tell
from .hub import HUBS, token
from .processes import Failed, Program, tail

CASES = {
    "processor_balance": "Three processors, blob checkpoint store: each partition has one reader, the load is even",
    "processor_kill": "One of them is killed: the others take its partitions over",
    "processor_nothing_lost": "Every acknowledged event was handled by one of them",
}
# Only where a language says that its processor stops in order.
OWN_CASES = {
    "processor_stop": "One stops in order: the last one takes its partitions at once and reads them all, alone",
}
INSTANCES = 3
BALANCE_SECONDS_MAX = 75
TAKEOVER_SECONDS_MAX = 90
DRAIN_SECONDS_MAX = 45
STOP_SECONDS_MAX = 30
# A partition's reader is whoever received its events in this time; the feeder sends to each partition several times in it.
WINDOW_SECONDS = 3.0


class Group:
    """What the instances have received, from their output."""

    def __init__(self):
        self.received = defaultdict(int)  # (partition, number) -> how often
        self.sent = set()
        self.latest = {}  # (partition, instance) -> when it last received something of it

    def pump(self, programs, feeder):
        """Takes in whatever the programs have said so far."""
        for program in [*programs, feeder]:
            while not program.lines.empty():
                line = program.lines.get()
                if line is None:
                    program.lines.put(None)
                    raise Failed(f"{program.name} ended; {tail(program.log_path)}")
                if "event" in line:
                    self.received[tuple(line["event"])] += 1
                    self.latest[(line["event"][0], program.name)] = time.monotonic()
                elif "sent" in line:
                    self.sent.add(tuple(line["sent"]))

    def balanced(self, programs):
        """Whether every partition has exactly one reader, and the readers' numbers of partitions differ by one at most."""
        since = time.monotonic() - WINDOW_SECONDS
        owned = {program.name: 0 for program in programs}
        readers = defaultdict(set)
        for (partition, name), at in self.latest.items():
            if at > since:
                readers[partition].add(name)
        for names in readers.values():
            if len(names) != 1:
                return False
            owned[next(iter(names))] += 1
        return len(readers) == HUBS["processors"] and max(owned.values()) - min(owned.values()) <= 1

    def wait(self, programs, feeder, condition, seconds, what):
        deadline = time.monotonic() + seconds
        while True:
            self.pump(programs, feeder)
            if condition():
                return
            if time.monotonic() > deadline:
                raise Failed(f"{what} within {seconds} s: {self.describe(programs)}")
            time.sleep(0.05)

    def describe(self, programs):
        now = time.monotonic()
        return "; ".join(
            f"{program.name} reads {sorted(p for (p, name), at in self.latest.items() if name == program.name and now - at < WINDOW_SECONDS)}"
            for program in programs)


def run_processors(language, hub, azurite, folder, container):
    """Runs the scene; gives results like those of the cases."""
    context = {**language.context(hub), "blob": azurite.container(container), "interval_ms": 2000, "expiry_ms": 10000,
               "token": token("processors", 3600)}
    results, programs, group, feeder = {}, [], Group(), None
    began = time.monotonic()

    def step(name, action):
        if any(result["result"] == "fail" for result in results.values()):
            results[name] = {"case": name, "result": "fail", "detail": "an earlier step failed", "ms": 0}
            return
        started = time.monotonic()
        try:
            detail, result = action() or "", "pass"
        except Failed as failure:
            detail, result = str(failure), "fail"
        results[name] = {"case": name, "result": result, "detail": detail, "ms": int((time.monotonic() - started) * 1000)}
        tell(language, results[name])

    def balance():
        nonlocal feeder
        feeder = Program(language.command("feeder"), {**context, "role": "feeder"}, "feeder", folder)
        for number in range(INSTANCES):
            programs.append(Program(language.command("processor"), {**context, "role": "processor", "instance": f"instance-{number}"},
                                    f"processor-{number}", folder))
        group.wait(programs, feeder, lambda: group.balanced(programs), BALANCE_SECONDS_MAX, "not balanced")

    def kill():
        programs.pop().kill()
        group.latest.clear()
        group.wait(programs, feeder, lambda: group.balanced(programs), TAKEOVER_SECONDS_MAX, "not taken over")
        return language.processor_remark

    def stop():
        leaving = programs.pop()
        leaving.tell({"stop": True})
        # What it says until its end is its last word: it must say that it has stopped.
        deadline = time.monotonic() + STOP_SECONDS_MAX
        said = []
        while (line := leaving.next(max(0.1, deadline - time.monotonic()))) is not None:
            said.append(line)
            if "event" in line:
                group.received[tuple(line["event"])] += 1
        if {"stopped": True} not in said or leaving.child.wait(5) != 0:
            raise Failed(f"it did not stop in order: {tail(leaving.log_path)}")
        group.latest.clear()
        group.wait(programs, feeder, lambda: group.balanced(programs), TAKEOVER_SECONDS_MAX, "not taken over")

    def nothing_lost():
        feeder.tell({"stop": True})
        deadline = time.monotonic() + DRAIN_SECONDS_MAX
        stopped = False
        while True:
            try:
                group.pump([], feeder)
            except Failed:
                stopped = True  # its last line was its end: all it had sent is known
            group.pump(programs, _Silent)
            missing = group.sent - set(group.received)
            if stopped and not missing:
                break
            if time.monotonic() > deadline:
                raise Failed(f"{len(missing)} of {len(group.sent)} acknowledged events were not handled: {sorted(missing)[:5]}")
            time.sleep(0.05)
        if len(group.sent) < 100:
            raise Failed(f"only {len(group.sent)} events were sent, which shows little")

    try:
        step("processor_balance", balance)
        step("processor_kill", kill)
        if language.stops_in_order:
            step("processor_stop", stop)
        step("processor_nothing_lost", nothing_lost)
    finally:
        for program in [*programs, feeder]:
            if program:
                program.finish(1)
    print(f"counted: {language.title}'s processors, one of three killed: {len(group.sent)} events acknowledged, "
          f"{len(group.sent - set(group.received))} lost, {sum(group.received.values()) - len(group.received)} handled again, "
          f"{time.monotonic() - began:.0f} s", flush=True)
    return results


class _Silent:
    """A program that says nothing."""

    class lines:
        empty = staticmethod(lambda: True)
