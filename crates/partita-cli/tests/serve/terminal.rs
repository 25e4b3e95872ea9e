//! The same on a terminal: the banner, and the question of a reset.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};
use std::sync::mpsc;

use rustix::pty;

use crate::support::{Hub, PATIENCE, partita, serve, wait_for};

/// A hub on a terminal of its own.
struct Terminal {
    child: Child,
    keyboard: File,
    screen: mpsc::Receiver<Vec<u8>>,
    shown: String,
}

impl Terminal {
    fn run(mut command: std::process::Command) -> Self {
        let ours = pty::openpt(pty::OpenptFlags::RDWR | pty::OpenptFlags::NOCTTY).unwrap();
        pty::grantpt(&ours).unwrap();
        pty::unlockpt(&ours).unwrap();
        let name = pty::ptsname(&ours, Vec::new()).unwrap();
        let theirs: OwnedFd =
            File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap().into();
        let both = theirs.try_clone().unwrap();
        let child =
            command.env("TERM", "xterm").stdin(theirs).stderr(both).stdout(Stdio::null()).spawn().unwrap();
        drop(command);
        let mut screen = File::from(ours.try_clone().unwrap());
        let (show, shown) = mpsc::sync_channel(64);
        std::thread::spawn(move || {
            let mut bytes = [0; 4_096];
            // The end of the terminal is an error on Linux.
            while let Ok(count @ 1..) = screen.read(&mut bytes) {
                if show.send(bytes[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        Self { child, keyboard: File::from(ours), screen: shown, shown: String::new() }
    }

    /// Waits until something is on the screen.
    fn expect(&mut self, part: &str) {
        while !self.shown.contains(part) {
            match self.screen.recv_timeout(PATIENCE) {
                Ok(bytes) => self.shown.push_str(&String::from_utf8_lossy(&bytes).replace("\r\n", "\n")),
                Err(_) => panic!("no {part:?} in {}", self.shown),
            }
        }
    }

    fn types(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).unwrap();
    }

    /// What Ctrl-C does, were it the terminal that the test runs on.
    fn interrupt(&mut self) {
        let pid = rustix::process::Pid::from_raw(self.child.id().cast_signed()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    }

    fn ends(&mut self) -> i32 {
        wait_for("the end", || self.child.try_wait().unwrap()).code().unwrap()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Without colours.
fn plain(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c == '\x1b' {
            chars.by_ref().find(|c| c.is_ascii_alphabetic());
        } else {
            out.push(c);
        }
    }
    out
}

#[test]
fn the_banner_has_what_a_newcomer_needs() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let data = data.to_str().unwrap();
    let mut terminal =
        Terminal::run(serve(dir.path(), &["--data", data, "--tls-self-signed", "--retention", "7d"]));
    terminal.expect("partita hub describe eh1");
    assert!(terminal.shown.contains('\x1b'), "colours on a terminal");
    let shown = plain(&terminal.shown);
    let ready: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(dir.path().join("ready.json")).unwrap()).unwrap();
    let string = ready["connection_string"].as_str().unwrap();
    assert!(shown.lines().any(|line| line == string), "alone on its line, to be copied: {shown}");
    let string = ready["tls_connection_string"].as_str().unwrap();
    assert!(shown.lines().any(|line| line == string), "{shown}");
    for part in [
        "ready after ",
        "Ctrl-C stops it.",
        "AMQP    localhost:",
        "TLS     localhost:",
        "HTTP    http://localhost:",
        &format!("data    {data}"),
        "synced  before an event is acknowledged",
        "hub     eh1  4 partitions, groups $Default cg1, keeps 7d",
        "Python    connection_verify=",
        "JS        NODE_EXTRA_CA_CERTS=",
        "Java      keytool ",
        "\npartita produce eh1 --body hello\n",
        "\npartita consume eh1\n",
        "pip install azure-eventhub",
    ] {
        assert!(shown.contains(part), "no {part:?} in {shown}");
    }
    // What is not to be copied whole fits.
    let copied = ["Endpoint=", "export PARTITA", "python3 ", "  ", "data ", "partita hub"];
    let wide = shown
        .lines()
        .find(|line| line.chars().count() > 80 && !copied.iter().any(|start| line.starts_with(start)));
    assert_eq!(wide, None);
    terminal.interrupt();
    assert_eq!(terminal.ends(), 0, "stopped in good order");
}

#[test]
fn a_reset_asks_and_takes_no_for_an_answer() {
    let (dir, _) = Hub::start(&["--hub", "one:1"]).stop();
    let data = dir.path().join("data");
    let args = ["--data", data.to_str().unwrap(), "--reset"];
    for (answer, code) in [("n\n", 1), ("\n", 1), ("y\n", 0)] {
        let mut terminal = Terminal::run(serve(dir.path(), &args));
        terminal.expect("? [y/N] ");
        assert!(terminal.shown.contains("hub one: all its events and groups, "), "{}", terminal.shown);
        terminal.types(answer);
        if code == 0 {
            terminal.expect("partita hub describe eh1");
            terminal.interrupt();
        } else {
            terminal.expect("nothing was deleted");
        }
        assert_eq!(terminal.ends(), code);
    }
}

#[test]
fn deleting_a_hub_asks_and_says_what_goes() {
    let hub = Hub::start(&["--memory", "--hub", "eh1:1"]);
    let http = hub.http();
    let ask = || Terminal::run(partita(&["hub", "delete", "eh1", "--http", &http]));
    let mut no = ask();
    no.expect("Delete hub eh1 with 0 events and 1 consumer group? [y/N] ");
    no.types("n\n");
    assert_eq!(no.ends(), 1);
    no.expect("nothing was deleted");
    let mut yes = ask();
    yes.expect("[y/N] ");
    yes.types("y\n");
    assert_eq!(yes.ends(), 0);
    assert_eq!(hub.get_json("/api/v1/hubs")["hubs"], serde_json::json!([]));
}

#[test]
fn consume_shows_how_far_it_is_while_the_events_go_elsewhere() {
    let hub = Hub::start(&["--memory", "--hub", "eh1:1"]);
    let command = |args: &[&str]| {
        let mut command = partita(args);
        command.env("PARTITA_CONNECTION_STRING", hub.ready["connection_string"].as_str().unwrap());
        command
    };
    assert!(command(&["produce", "eh1", "-q", "--body", "x", "-n", "20"]).status().unwrap().success());
    // More than there is: it shows what it has and waits for the rest.
    let mut waits = Terminal::run(command(&["consume", "eh1", "-n", "40"]));
    waits.expect("50%  20 events");
    waits.interrupt();
    assert_eq!(waits.ends(), 0);
}
