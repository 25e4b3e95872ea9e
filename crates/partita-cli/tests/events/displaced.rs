//! The data directory goes away while the hub runs: every command says at once what the hub says of it.

use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

use crate::client::{produce, run, spawn};
use crate::support::{Hub, text, wait_for};

/// Well below the minute that a hub is waited for, and long for a busy machine.
const SOON: Duration = Duration::from_secs(30);

/// A hub with events whose data directory was moved away.
fn displaced() -> Hub {
    let hub = Hub::start(&["--hub", "eh1:1"]);
    produce(&hub, &["eh1", "--body", "x", "-n", "1000"], b"");
    std::fs::rename(hub.path("data"), hub.path("elsewhere")).unwrap();
    wait_for("the hub to notice", || {
        hub.get_json("/api/v1/hubs/eh1")["read_only"].as_bool().filter(|is| *is)
    });
    hub
}

#[test]
fn what_is_asked_of_the_hub_names_the_directory_and_calls_nothing_safe() {
    let hub = displaced();
    for args in [&["hub", "list"][..], &["hub", "describe", "eh1"]] {
        let said = hub.says(args);
        assert!(
            said.contains("Hub eh1 takes no events since ") && said.contains("/data was deleted or moved"),
            "{said}"
        );
        assert!(said.contains("put its data directory back and restart the hub."), "{said}");
        assert!(!said.contains("a write failed"), "{said}");
    }
    let check = hub.command(&["hub", "check"]);
    let said = text(&check.stdout);
    assert_eq!(check.status.code(), Some(1), "{said}");
    assert!(said.contains("nothing is safe") && said.contains("was deleted or moved"), "{said}");
    let row: Vec<_> = said.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[4], "0", "no event is called safe: {said}");
}

#[test]
fn produce_says_why_it_waits_before_it_gives_up() {
    let hub = displaced();
    let mut child = spawn(&hub, &["produce", "eh1", "-q", "--body", "y"]);
    let began = Instant::now();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let took = began.elapsed();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(line.contains("was deleted or moved") && line.contains("trying again"), "{line}");
    assert!(took < SOON, "{took:?}");
}

#[test]
fn consume_ends_with_what_the_hub_said() {
    let hub = Hub::start(&["--hub", "eh1:1"]);
    // More than the first segment holds, and the hub is started again: nothing of it is in memory.
    produce(&hub, &["eh1", "--body", &"x".repeat(1_000), "-n", "6000"], b"");
    let (dir, _) = hub.stop();
    let hub = Hub::start_in(dir, &[]);
    std::fs::rename(hub.path("data"), hub.path("elsewhere")).unwrap();
    let began = Instant::now();
    let output = run(&hub, &["consume", "eh1", "-q", "--until-end"], b"");
    let said = text(&output.stderr);
    assert!(began.elapsed() < SOON, "{:?}: {said}", began.elapsed());
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.lines().next().is_some_and(|line| line.contains("reading segment")), "{said}");
    assert!(said.trim_end().lines().last().is_some_and(|line| line.starts_with("error: ")), "{said}");
}
