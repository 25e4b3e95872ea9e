//! Commands for a hub of the test's own.

use std::io::Write;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use crate::support::{Hub, partita, text};

/// A command with this hub's connection string in its environment.
pub(crate) fn command(hub: &Hub, args: &[&str]) -> Command {
    let mut command = partita(args);
    command.env("EVENTHUBS_CONNECTION_STRING", hub.ready["connection_string"].as_str().unwrap());
    command
}

/// What came of a command that was given an input.
pub(crate) fn run(hub: &Hub, args: &[&str], input: &[u8]) -> Output {
    let mut child = spawn(hub, args);
    let mut stdin = child.stdin.take().unwrap();
    // A command may end before it has read all.
    let _ = stdin.write_all(input);
    drop(stdin);
    child.wait_with_output().unwrap()
}

/// A command that runs, with pipes to it.
pub(crate) fn spawn(hub: &Hub, args: &[&str]) -> Child {
    let mut command = command(hub, args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Sends; must succeed. What it said.
pub(crate) fn produce(hub: &Hub, args: &[&str], input: &[u8]) -> String {
    let output = run(hub, &[&["produce"], args].concat(), input);
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(output.stdout.is_empty(), "data alone goes to stdout");
    said
}

/// What is printed until the end; must succeed and say nothing else.
pub(crate) fn consume(hub: &Hub, args: &[&str]) -> Vec<u8> {
    let output = run(hub, &[&["consume"], args, &["--until-end"]].concat(), b"");
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    output.stdout
}

/// The same as lines of JSON.
pub(crate) fn consume_json(hub: &Hub, args: &[&str]) -> Vec<Value> {
    let printed = text(&consume(hub, &[args, &["-o", "jsonl"]].concat()));
    printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// One sentence, and the exit code.
pub(crate) fn refused(output: &Output) -> (i32, String) {
    let said = text(&output.stderr);
    assert!(said.starts_with("error: ") && said.trim_end().lines().count() == 1, "one sentence: {said}");
    assert!(!said.contains("panicked"), "{said}");
    (output.status.code().expect("not by a signal"), said)
}
