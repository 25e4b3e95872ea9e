"""The SDKs: what each needs, how it is installed, and the command that runs its program.

Nothing is installed into the checkout: packages and binaries go to `target/interop/`, downloads to the tools' own caches. What is
already there is used again as long as its manifest, lock and sources have not changed."""

import hashlib
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from .doorway import Doorway
from .processes import Failed, run

INTEROP = Path(__file__).resolve().parent.parent


class Missing(Exception):
    """A tool that cannot be installed without root: the language is skipped."""


def tool(name, minimum, *version_command, install):
    """Checks that a tool is there and new enough."""
    if not shutil.which(name):
        raise Missing(f"{name} is missing: install {install}")
    said = subprocess.run([name, *version_command], capture_output=True, text=True, timeout=60)
    found = re.search(r"(\d+)\.(\d+)", said.stdout + said.stderr)
    if not found or (int(found[1]), int(found[2])) < minimum:
        raise Missing(f"{name} is {found[0] if found else 'of an unknown version'}, which is too old: install {install}")


class Language:
    """One SDK."""

    name = title = None
    # Where the versions of the packages that are judged are pinned: in which file, and by which words before the version.
    packages = {}
    # What is to be said of its event processor.
    processor_remark = ""
    # Whether its program stops its processor in order when it is told to; then one is stopped so, and the last one is left alone.
    stops_in_order = False
    # Further cases of its own: see cases.py.
    own_cases = ()

    def __init__(self, target):
        self.folder = INTEROP / self.name
        self.build = target / self.name
        self.log_path = target / "logs" / self.name / "install.log"

    def install(self):
        """Makes the program runnable; does nothing if nothing has changed."""
        self.check()
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        self.build.mkdir(parents=True, exist_ok=True)
        self.do_install()

    def check(self):
        """Says by `Missing` what is not there."""

    def do_install(self):
        raise NotImplementedError

    def versions(self):
        """The packages that are judged, with their versions, from the manifests."""
        found = {}
        for package, (file, before) in self.packages.items():
            match = re.search(re.escape(before) + r"v?(\d[^\s\"'<]*)", (self.folder / file).read_text())
            if not match:
                raise Failed(f"{self.name}/{file} does not pin {package}")
            found[package] = match[1]
        return found

    def command(self, role):
        """The command for a role; its last argument will be the context's path."""
        raise NotImplementedError

    def context(self, hub):
        """What its programs are told about a hub; from now on they are run for this one."""
        return hub.context()

    def run(self, command, what, **options):
        run(command, self.log_path, what, **options)

    def changed(self, stamp, *patterns):
        """Whether any of these files has changed since the stamp was written; a function that writes it."""
        digest = hashlib.sha256()
        for pattern in patterns:
            for path in sorted(self.folder.glob(pattern)):
                digest.update(str(path.relative_to(self.folder)).encode() + b"\0" + path.read_bytes())
        path = self.build / stamp
        if path.exists() and path.read_text() == digest.hexdigest():
            return None
        return lambda: path.write_text(digest.hexdigest())


class Python(Language):
    name, title = "python", "Python"
    packages = {"azure-eventhub": ("requirements.txt", "azure-eventhub=="),
                "azure-eventhub-checkpointstoreblob-aio": ("requirements.txt", "checkpointstoreblob-aio==")}

    def check(self):
        if sys.version_info < (3, 10):
            raise Missing("this Python is too old: install Python 3.10 or newer")

    def do_install(self):
        if write_stamp := self.changed("stamp", "requirements.lock"):
            shutil.rmtree(self.build / "venv", ignore_errors=True)
            self.run([sys.executable, "-m", "venv", self.build / "venv"], "python -m venv")
            self.run([self.build / "venv/bin/pip", "install", "--quiet", "--require-hashes", "-r", self.folder / "requirements.lock"],
                     "pip install")
            write_stamp()

    def command(self, role):
        return [self.build / "venv/bin/python", self.folder / "main.py"]


class JavaScript(Language):
    name, title = "js", "JavaScript"
    packages = {"@azure/event-hubs": ("package.json", '"@azure/event-hubs": "'),
                "@azure/eventhubs-checkpointstore-blob": ("package.json", '"@azure/eventhubs-checkpointstore-blob": "')}

    def check(self):
        tool("node", (20, 0), "--version", install="Node.js 20 or newer")
        tool("npm", (9, 0), "--version", install="npm 9 or newer")

    def do_install(self):
        npm_ci(self)
        for source in self.folder.glob("*.js"):
            shutil.copy(source, self.build)  # beside node_modules, where Node looks for them

    def command(self, role):
        return ["node", self.build / "main.js"]


class Azurite(Language):
    """Not a language, but installed like one."""

    name, title = "azurite", "Azurite"

    check = JavaScript.check

    def do_install(self):
        npm_ci(self)

    @property
    def executable(self):
        return self.build / "node_modules/azurite/dist/src/blob/main.js"


def npm_ci(language):
    if write_stamp := language.changed("stamp", "package.json", "package-lock.json"):
        for name in ("package.json", "package-lock.json"):
            shutil.copy(language.folder / name, language.build)
        language.run(["npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"], "npm ci", cwd=language.build)
        write_stamp()


class Java(Language):
    name, title = "java", "Java"
    packages = {"azure-messaging-eventhubs": ("pom.xml", "<eventhubs.version>"),
                "azure-messaging-eventhubs-checkpointstore-blob": ("pom.xml", "<checkpointstore.version>")}

    def check(self):
        tool("javac", (17, 0), "-version", install="a JDK, version 17 or newer")
        tool("mvn", (3, 6), "--version", install="Maven 3.6 or newer")

    def do_install(self):
        if write_stamp := self.changed("stamp", "pom.xml", "src/**/*.java"):
            self.maven("pom.xml", "dependencies", f"-Dinterop.build={self.build}", "compile")
            write_stamp()

    def maven(self, pom, dependencies, *more):
        """Copies what a pom names to a folder of the build directory."""
        command = ["mvn", "-q", "-B", "-f", self.folder / pom, *more, "dependency:copy-dependencies",
                   f"-DoutputDirectory={self.build / dependencies}"]
        try:
            self.run([*command, "-o"], "mvn, offline")  # all downloads are there, most of the time
        except Failed:
            self.run(command, "mvn")

    def command(self, role):
        heap = "96m" if role in ("processor", "feeder") else "192m"
        return ["java", f"-Xmx{heap}", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:MaxMetaspaceSize=128m",
                *self.jvm_options(), "-cp", f"{self.build / 'classes'}:{self.build / 'dependencies'}/*", "interop.Main"]

    def jvm_options(self):
        return []


class LegacyJava(Java):
    """The SDK before azure-messaging-eventhubs, with the documents' own EventProcessorHost. It knows TLS at port 5671 only."""

    name, title = "java-legacy", "Java, legacy"
    packages = {"azure-eventhubs": ("pom.xml", "<eventhubs.version>"), "azure-eventhubs-eph": ("pom.xml", "<eph.version>"),
                "azure-eventhubs, sends and receives": ("older/pom.xml", "<older.version>")}
    stops_in_order = True
    own_cases = ("host_in_memory", "host_own_managers")

    def do_install(self):
        if write_stamp := self.changed("stamp", "**/pom.xml", "**/*.java", "../java/src/main/java/interop/Main.java"):
            self.maven("pom.xml", "dependencies")
            self.maven("older/pom.xml", "older/dependencies")
            shared = INTEROP / "java/src/main/java/interop/Main.java"
            self.compile("classes", "dependencies", [*sorted(self.folder.glob("src/**/*.java")), shared])
            self.compile("older/classes", "older/dependencies", [self.folder / "older/Older.java"])
            write_stamp()

    def compile(self, classes, dependencies, sources):
        shutil.rmtree(self.build / classes, ignore_errors=True)
        self.run(["javac", "-nowarn", "-encoding", "UTF-8", "--release", "17", "-d", self.build / classes,
                  "-cp", f"{self.build / dependencies}/*", *sources], "javac")

    def context(self, hub):
        door = Doorway(hub)
        self.hosts = hub.folder / "hosts"
        # All that this JVM resolves; its own name is asked for, too.
        self.hosts.write_text(f"{door.address} localhost\n127.0.0.1 {socket.gethostname()}\n")
        self.trust = hub.trust()["JAVA_TOOL_OPTIONS"].split()
        older = ["java", *self.jvm_options(), "-cp", f"{self.build / 'older/classes'}:{self.build / 'older/dependencies'}/*", "Older"]
        return {**hub.context(), "older_command": "\n".join(older)}

    def jvm_options(self):
        return [*self.trust, f"-Djdk.net.hosts.file={self.hosts}"]


class Go(Language):
    name, title = "go", "Go"
    packages = {"azeventhubs/v2 (its checkpoints included)": ("go.mod", "azeventhubs/v2 ")}

    def check(self):
        tool("go", (1, 24), "version", install="Go 1.24 or newer")

    def do_install(self):
        if write_stamp := self.changed("stamp", "go.mod", "go.sum", "*.go"):
            self.run(["go", "build", "-mod=readonly", "-p", "2", "-o", self.build / "interop", "."], "go build", cwd=self.folder)
            write_stamp()

    def command(self, role):
        return [self.build / "interop"]


class Rust(Language):
    name, title = "rust", "Rust"
    packages = {"azure_messaging_eventhubs": ("Cargo.toml", 'azure_messaging_eventhubs = "='),
                "azure_messaging_eventhubs_checkpointstore_blob":
                    ("processor/Cargo.toml", 'azure_messaging_eventhubs_checkpointstore_blob = "='),
                "azure_messaging_eventhubs, for that store":
                    ("processor/Cargo.toml", 'azure_messaging_eventhubs = "=')}
    processor_remark = ("this version cannot read a partition again that its client has lost before, whoever serves: the program makes a "
                        "client and a processor anew when that happens")

    def do_install(self):
        if write_stamp := self.changed("stamp", "**/Cargo.toml", "**/Cargo.lock", "**/src/**/*.rs"):
            for manifest in (self.folder / "Cargo.toml", self.folder / "processor/Cargo.toml"):
                self.run(["cargo", "build", "--quiet", "--locked", "--manifest-path", manifest, "--target-dir", self.build],
                         f"cargo build of {manifest.parent.name}", timeout_seconds=1800)
            write_stamp()

    def command(self, role):
        program = "partita-interop-processor" if role == "processor" else "partita-interop"
        return [self.build / "debug" / program]


# In the order of the table.
LANGUAGES = [Python, JavaScript, Rust, Java, Go, LegacyJava]
