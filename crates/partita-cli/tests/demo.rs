//! The demo as a user meets it: the real binary, its output and its exit code.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn demo(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_partita"));
    command.arg("demo").args(args).env_remove("RUST_LOG");
    command
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("output is UTF-8")
}

/// The one JSON object that a run prints, once its keys were checked.
fn json(output: &Output) -> Value {
    let stdout = text(&output.stdout);
    assert_eq!(stdout.lines().count(), 1, "only the object is on stdout: {stdout}");
    let json: Value = serde_json::from_str(stdout).expect("the object is JSON");
    assert_eq!(
        keys(&json),
        BTreeSet::from([
            "produced",
            "processed",
            "lost",
            "duplicated_by_handoff",
            "duplicated_by_crash",
            "handoffs",
            "steals",
            "crashes",
            "handoff_gap_ms",
            "failover_gap_ms",
            "events_per_second",
        ])
    );
    for gap in ["handoff_gap_ms", "failover_gap_ms"] {
        assert_eq!(keys(&json[gap]), BTreeSet::from(["p50", "p99", "n"]));
    }
    json
}

fn keys(json: &Value) -> BTreeSet<&str> {
    json.as_object().expect("an object").keys().map(String::as_str).collect()
}

#[test]
fn one_joins_one_is_killed_one_leaves_and_nothing_is_lost() {
    let script = ["--at", "1s=add", "--at", "2500ms=kill", "--at", "8500ms=remove"];
    let size = ["--for", "10s", "--rate", "4000", "--json", "--quiet"];
    let output = demo(&[&script[..], &size].concat()).output().unwrap();
    let result = json(&output);
    let number = |key: &str| result[key].as_u64().unwrap_or_else(|| panic!("{key} in {result}"));

    assert_eq!((number("lost"), number("duplicated_by_handoff")), (0, 0), "{result}");
    assert_eq!(number("processed"), number("produced"), "{result}");
    assert!(number("produced") > 20_000, "{result}");
    assert_eq!((number("crashes"), number("steals")), (1, 0), "{result}");
    assert!(number("handoffs") >= 1, "{result}");
    // 16 partitions over 4: 4 are taken over, each with at most a checkpoint interval to repeat.
    assert!(number("duplicated_by_crash") <= 4 * 1_000, "{result}");
    let failover = &result["failover_gap_ms"];
    assert_eq!(failover["n"], 4, "{result}");
    let seconds = failover["p99"].as_f64().expect("measured") / 1_000.0;
    assert!((3.0..9.0).contains(&seconds), "a real crash is noticed by the ttl of 5 s alone: {result}");
    assert!(output.status.success());
    assert_eq!(text(&output.stderr), "", "quiet is quiet");
}

#[test]
fn a_pipe_gets_plain_lines_for_people() {
    let args = ["--for", "3s", "--at", "1s=add", "--at", "2s=remove", "--rate", "500", "--partitions", "4"];
    let output = demo(&args).output().unwrap();
    let stdout = text(&output.stdout);
    for part in [
        "Partita demo: 3s of home-sensor events, 500 a second in 4 partitions.",
        "nobody -> home-",
        "ADD home-4",
        "REMOVE home-1",
        "home-1 has left in good order",
        "Good: nothing was lost, and no planned move repeated an event.",
    ] {
        assert!(stdout.contains(part), "no {part:?} in:\n{stdout}");
    }
    assert!(!stdout.contains('\x1b'), "no colours in a pipe:\n{stdout}");
    assert!(stdout.lines().all(|line| line.len() <= 80), "no line is wider than a terminal:\n{stdout}");
    assert_eq!(text(&output.stderr), "");
    assert!(output.status.success());
}

#[test]
fn with_json_progress_goes_to_stderr() {
    let output = demo(&["--for", "1s", "--at", "500ms=add", "--rate", "500", "--json"]).output().unwrap();
    assert_eq!(json(&output)["crashes"], 0);
    assert!(text(&output.stderr).contains("ADD home-4"), "{}", text(&output.stderr));
}

#[test]
fn what_cannot_be_done_is_refused_before_anything_starts() {
    for (args, why) in [
        (&["--at", "5s=fly"][..], "use add, kill or remove"),
        (&["--at", "kill"], "such as 10s=kill"),
        (&["--at", "5=kill"], "write 20s"),
        (&["--at", "20s=add"], "an earlier time or a longer --for"),
        (&["--processors", "1", "--at", "1s=kill", "--at", "2s=remove"], "start more with --processors"),
        (&["--processors", "1", "--at", "1s=kill"], "leaves no processor"),
        (&["--for", "soon"], "write 20s"),
        (&["--for", "0s"], "longer"),
        (&["--for", "10h"], "a shorter --for or a lower --rate"),
        (&["--partitions", "0"], "1..=1024"),
        (&["--rate", "0"], "1.."),
    ] {
        let output = demo(args).output().unwrap();
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(stderr.starts_with("error: ") && stderr.contains(why), "{args:?}: {stderr}");
        assert_eq!(text(&output.stdout), "", "{args:?}");
    }
}

#[test]
fn help_says_what_is_counted_and_version_tells_it() {
    let help = demo(&["--help"]).output().unwrap();
    assert!(help.status.success());
    for part in ["duplicated_by_handoff", "handoff_gap_ms", "Exit code", "--at <TIME=ACTION>"] {
        assert!(text(&help.stdout).contains(part), "{part}");
    }
    let version = Command::new(env!("CARGO_BIN_EXE_partita")).arg("--version").output().unwrap();
    assert_eq!(text(&version.stdout).trim(), concat!("partita ", env!("CARGO_PKG_VERSION")));
}

#[test]
fn a_reader_that_has_seen_enough_ends_the_run_quietly() {
    let mut child = demo(&["--for", "30s", "--rate", "100"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.starts_with("Partita demo"), "{first}");
    let status = child.wait().unwrap();
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert!(status.success(), "{status}");
    assert_eq!(stderr, "");
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_the_run_early_with_its_result() {
    let mut child = demo(&["--for", "5m", "--rate", "1000", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The line of the first second: it runs, and listens to signals.
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.trim_start().starts_with("1.0s")));
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    assert!(lines.any(|line| line.contains("interrupted")));
    lines.for_each(drop);
    let output = child.wait_with_output().unwrap();
    let result = json(&output);
    assert!(output.status.success(), "{result}");
    assert_eq!(result["lost"], 0, "{result}");
    assert!((500..20_000).contains(&result["produced"].as_u64().unwrap()), "{result}");
}
