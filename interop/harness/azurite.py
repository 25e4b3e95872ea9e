"""Azurite, Azure's own blob storage emulator: where the SDKs' processors keep ownership and checkpoints."""

import base64
import hashlib
import hmac
import shutil
import socket
import time
import urllib.request
from urllib.parse import quote

from .processes import end, start, tail, wait_for

# Azurite's well-known account.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
VERSION = "2021-12-02"


class Azurite:
    """A running blob service with a directory of its own."""

    def __init__(self, executable, folder):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        log_path = folder / "azurite.log"
        with open(log_path, "ab") as log:
            self.child = start(["node", executable, "--blobHost", "127.0.0.1", "--blobPort", self.port, "--location", folder / "data",
                                "--silent", "--skipApiVersionCheck", "--disableTelemetry"], log)
        wait_for(self._answers, 30, f"answer from Azurite; {tail(log_path)}")

    def _answers(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
            return True
        except OSError:
            return False

    def container(self, name):
        """Makes a container; gives what programs are told about it."""
        url = f"http://127.0.0.1:{self.port}/{ACCOUNT}/{name}"
        query = self._signature()
        request = urllib.request.Request(f"{url}?restype=container&{query}", method="PUT", headers={"x-ms-version": VERSION})
        urllib.request.urlopen(request, timeout=20).close()
        return {
            "container": name,
            "connection_string": f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};"
                                 f"BlobEndpoint=http://127.0.0.1:{self.port}/{ACCOUNT};",
            "container_url": f"{url}?{query}",
        }

    def _signature(self):
        """An account signature: the query string that lets its holder do everything for an hour."""
        expires = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600))
        fields = {"sp": "rwdlacup", "ss": "b", "srt": "sco", "st": "", "se": expires, "sip": "", "spr": "https,http", "sv": VERSION, "ses": ""}
        text = ACCOUNT + "\n" + "".join(value + "\n" for value in fields.values())
        signature = base64.b64encode(hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()).decode()
        fields["sig"] = signature
        return "&".join(f"{name}={quote(value, safe='')}" for name, value in fields.items() if value)

    def stop(self):
        end(self.child)
