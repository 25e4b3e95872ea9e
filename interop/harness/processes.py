"""Child processes: started here, watched here, ended here whatever happens."""

import json
import os
import queue
import signal
import subprocess
import threading
import time
from pathlib import Path

_children = []
_lock = threading.Lock()
_stopping = False


class Failed(Exception):
    """Something that a case or a language cannot go on without; its text says what."""


def start(command, log, stdin=None, stdout=None, **options):
    """Starts a child in a process group of its own, so that its own children end with it."""
    with _lock:
        if _stopping:
            raise Failed("interrupted")
        try:
            child = subprocess.Popen([str(part) for part in command], stdin=stdin or subprocess.DEVNULL, stdout=stdout or log,
                                     stderr=log, start_new_session=True, **options)
        except OSError as error:
            raise Failed(f"cannot start {command[0]}: {error}") from None
        _children.append(child)
    return child


def end(child, how=signal.SIGTERM, patience_seconds=10):
    """Ends a child and its group; by force if it does not follow."""
    for signal_number in (how, signal.SIGKILL):
        try:
            os.killpg(child.pid, signal_number)
        except ProcessLookupError:
            pass
        try:
            child.wait(patience_seconds)
            break
        except subprocess.TimeoutExpired:
            pass
    with _lock:
        if child in _children:
            _children.remove(child)


def end_all():
    """Ends whatever still runs, at once."""
    global _stopping
    with _lock:
        _stopping = True
        left = list(_children)
    for child in left:
        end(child, signal.SIGKILL)


def run(command, log_path, what, timeout_seconds=900, **options):
    """Runs a command to its end; `Failed` says the last lines of its log."""
    with open(log_path, "ab") as log:
        child = start(command, log, **options)
        try:
            status = child.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            status = f"no end within {timeout_seconds} s"
        end(child, signal.SIGKILL)
    if status != 0:
        raise Failed(f"{what} failed ({status}); {tail(log_path)}")


def tail(path, lines=8):
    """The last lines of a log, and where the rest is."""
    text = Path(path).read_text(errors="replace").strip().splitlines() if Path(path).exists() else []
    return " | ".join(line.strip()[:300] for line in text[-lines:]) + f" | log: {path}"


def wait_for(condition, seconds, what, interval_seconds=0.05):
    """Waits until `condition` gives something; `Failed` after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline or _stopping:
            raise Failed(f"no {what} within {seconds} s")
        time.sleep(interval_seconds)


class Program:
    """A client program: told its role by a JSON file, it prints JSON lines; its log is on stderr."""

    def __init__(self, command, context, name, folder, **options):
        folder.mkdir(parents=True, exist_ok=True)
        context_path = folder / f"{name}.json"
        context_path.write_text(json.dumps(context, indent=1))
        self.name = name
        self.log_path = folder / f"{name}.log"
        self._log = open(self.log_path, "wb")
        self.child = start([*command, context_path], self._log, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options)
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.child.stdout:
            self._log.write(line)
            self._log.flush()
            try:
                self.lines.put(json.loads(line))
            except ValueError:
                pass  # a library that prints; it is in the log
        self.lines.put(None)

    def next(self, timeout_seconds):
        """The next line as JSON; None at the program's end; `Failed` if none comes."""
        try:
            return self.lines.get(timeout=timeout_seconds)
        except queue.Empty:
            raise Failed(f"{self.name} said nothing for {timeout_seconds} s; {tail(self.log_path)}") from None

    def tell(self, message):
        """Writes one line of JSON to the program."""
        try:
            self.child.stdin.write(json.dumps(message).encode() + b"\n")
            self.child.stdin.flush()
        except (BrokenPipeError, ValueError):
            pass  # it has ended; its lines say so

    def finish(self, patience_seconds=15):
        """Closes the program's stdin, which asks it to end, and ends it if it does not."""
        try:
            self.child.stdin.close()
        except BrokenPipeError:
            pass
        try:
            self.child.wait(patience_seconds)
        except subprocess.TimeoutExpired:
            pass
        end(self.child)

    def kill(self):
        """Kills it as a crash would."""
        end(self.child, signal.SIGKILL)
