"""The hub under test, `partita serve`, and what clients are told about it."""

import base64
import hashlib
import hmac
import json
import os
import shutil
import signal
import time
import urllib.request
from urllib.parse import quote_plus

from .processes import Failed, end, run, start, tail, wait_for

KEY_NAME = "RootManageSharedAccessKey"
KEY = "SAS_KEY_VALUE"
# Beside the emulator's rule, two of our own: rights on one hub only.
RULES = {"sensors": ("send", "key-of-sensors"), "apps": ("listen", "key/of+apps=")}

# A hub per case, so that what one case sends no other reads. More than the ten of the official emulator.
HUBS = {
    "properties": 4,
    "single": 2,
    "batches": 2,
    "keys": 8,
    "partitions": 4,
    "positions": 2,
    "content": 2,
    "metrics": 1,
    "epochs": 2,
    "readers": 1,
    "tokens": 1,
    "large": 1,
    "rules": 1,
    "idempotent": 2,
    "buffered": 8,
    "websocket": 1,
    "tls": 1,
    "restart": 2,
    "processors": 9,
    "rich": 6,
    "hosts-memory": 4,
    "hosts-own": 4,
}


class Hub:
    """A running `partita serve` with its own data and ports; it can be restarted on both."""

    def __init__(self, binary, folder):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.binary, self.folder = binary, folder
        self.ready = {"amqp_port": 0, "http_port": 0, "tls_port": 0}
        self.child = None
        self.start()

    def start(self):
        ready_path, log_path = self.folder / "ready.json", self.folder / "serve.log"
        ready_path.unlink(missing_ok=True)
        command = [self.binary, "serve", "--data", self.folder / "data", "--port", self.ready["amqp_port"],
                   "--http-port", self.ready["http_port"], "--tls-self-signed", "--tls-port", self.ready["tls_port"],
                   "--ready-file", ready_path]
        command += ["--rule", f"{KEY_NAME}:manage={self.key_file('root', KEY)}"]
        for name, (right, key) in RULES.items():
            command += ["--rule", f"{name}:{right}:rules={self.key_file(name, key)}"]
        for name, partitions in HUBS.items():
            command += ["--hub", f"{name}:{partitions}"]
        with open(log_path, "ab") as log:
            self.child = start(command, log)

        def is_ready():
            if self.child.poll() is not None:
                raise Failed(f"partita serve ended ({self.child.returncode}); {tail(log_path)}")
            try:
                return json.loads(ready_path.read_text())
            except (OSError, ValueError):
                return None

        self.ready = wait_for(is_ready, 20, f"ready file of partita serve; {tail(log_path)}")

    def key_file(self, name, key):
        path = self.folder / f"{name}.key"
        path.touch(mode=0o600)
        path.write_text(key)
        return path

    def restart(self, how):
        """Ends the hub, gently or as a crash would, and starts it again with the same data and ports."""
        end(self.child, signal.SIGKILL if how == "kill" else signal.SIGTERM)
        self.start()

    def fault(self, fault):
        """Makes the hub do something wrong, as `partita fault` would."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.ready['http_port']}/api/v1/faults", json.dumps(fault).encode(),
                                         {"Content-Type": "application/json"})
        urllib.request.urlopen(request, timeout=20).close()

    def stop(self):
        end(self.child)

    @property
    def port(self):
        return self.ready["amqp_port"]

    @property
    def connection_string(self):
        return self.ready["connection_string"]

    def context(self):
        """What every program is told."""
        endpoint = f"Endpoint=sb://localhost:{self.port}"
        return {
            "connection_string": self.connection_string,
            "bad_key": f"{endpoint};SharedAccessKeyName={KEY_NAME};SharedAccessKey=wrong;UseDevelopmentEmulator=true;",
            "rules": {right: f"{endpoint};SharedAccessKeyName={name};SharedAccessKey={key};UseDevelopmentEmulator=true;"
                      for name, (right, key) in RULES.items()},
            "amqp_url": f"amqp://localhost:{self.port}",
            "tls_connection_string": self.ready["tls_connection_string"],
            "tls_authority": f"localhost:{self.ready['tls_port']}",
            "tls_ca_file": self.ready["tls_ca_file"],
            "hubs": HUBS,
            "keys": {key: str(partition_of(key, HUBS["keys"])) for key in KEYS},
        }

    def trust(self):
        """The environment in which programs trust the hub's certificate authority."""
        authority = self.ready["tls_ca_file"]
        environment = {**os.environ, "NODE_EXTRA_CA_CERTS": authority, "SSL_CERT_FILE": authority}
        store = self.folder / "trust.p12"
        if not store.exists() and shutil.which("keytool"):
            run(["keytool", "-importcert", "-noprompt", "-alias", "partita", "-file", authority, "-keystore", store, "-storetype", "PKCS12",
                 "-storepass", "partita"], self.folder / "keytool.log", "keytool")
        environment["JAVA_TOOL_OPTIONS"] = f"-Djavax.net.ssl.trustStore={store} -Djavax.net.ssl.trustStorePassword=partita"
        return environment

    def with_token(self, hub, valid_seconds):
        """A connection string that carries a token for one hub instead of a key."""
        return (f"Endpoint=sb://localhost:{self.port};SharedAccessSignature={token(hub, valid_seconds)};"
                f"UseDevelopmentEmulator=true;")


def token(hub, valid_seconds):
    """A shared access signature as the service documents it."""
    resource = quote_plus(f"sb://localhost/{hub}")
    expires = int(time.time() + valid_seconds)
    digest = hmac.new(KEY.encode(), f"{resource}\n{expires}".encode(), hashlib.sha256).digest()
    return f"SharedAccessSignature sr={resource}&sig={quote_plus(base64.b64encode(digest))}&se={expires}&skn={KEY_NAME}"


# ---- the partition of a key, by the service's hash -------------------------------------------------------------

KEYS = ["7", "7149583486996073602", "FWfAT", "sOdeEAsyQoEuEFPGerWO", "twelve-chars", "\u00e9", "home-42"]
VECTORS = {"7": -15263, "7149583486996073602": 12977, "FWfAT": -22341, "sOdeEAsyQoEuEFPGerWO": -6503,
           "twelve-chars": -5054, "\u00e9": -24812}


def partition_of(key, partitions):
    """The partition on which events with this key belong."""
    h = _hash(key.encode())
    return abs(h) % partitions


def _hash(data):
    """Jenkins' lookup3 over the key, folded to a signed 16-bit number."""
    mask = 0xFFFFFFFF

    def rot(x, k):
        return ((x << k) | (x >> (32 - k))) & mask

    a = b = c = (0xDEADBEEF + len(data)) & mask
    while len(data) > 12:
        a = (a + int.from_bytes(data[0:4], "little")) & mask
        b = (b + int.from_bytes(data[4:8], "little")) & mask
        c = (c + int.from_bytes(data[8:12], "little")) & mask
        a = (a - c) & mask ^ rot(c, 4); c = (c + b) & mask
        b = (b - a) & mask ^ rot(a, 6); a = (a + c) & mask
        c = (c - b) & mask ^ rot(b, 8); b = (b + a) & mask
        a = (a - c) & mask ^ rot(c, 16); c = (c + b) & mask
        b = (b - a) & mask ^ rot(a, 19); a = (a + c) & mask
        c = (c - b) & mask ^ rot(b, 4); b = (b + a) & mask
        data = data[12:]
    if data:
        tail_bytes = data.ljust(12, b"\0")
        a = (a + int.from_bytes(tail_bytes[0:4], "little")) & mask
        b = (b + int.from_bytes(tail_bytes[4:8], "little")) & mask
        c = (c + int.from_bytes(tail_bytes[8:12], "little")) & mask
        c ^= b; c = (c - rot(b, 14)) & mask
        a ^= c; a = (a - rot(c, 11)) & mask
        b ^= a; b = (b - rot(a, 25)) & mask
        c ^= b; c = (c - rot(b, 16)) & mask
        a ^= c; a = (a - rot(c, 4)) & mask
        b ^= a; b = (b - rot(a, 14)) & mask
        c ^= b; c = (c - rot(b, 24)) & mask
    h = (c ^ b) & 0xFFFF
    return h - 0x10000 if h & 0x8000 else h


for _key, _expected in VECTORS.items():
    assert _hash(_key.encode()) == _expected, f"the harness's own hash is wrong for {_key!r}: {_hash(_key.encode())}"
