//! The demo as a user meets it: the real binary, its output and its exit code.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A demo in a directory of the test's own.
fn demo_in(dir: &TempDir, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_partita"));
    command.arg("demo").args(args).env_remove("RUST_LOG").current_dir(dir);
    command
}

fn dir() -> TempDir {
    tempfile::tempdir().expect("a directory")
}

fn number(result: &Value, key: &str) -> u64 {
    result[key].as_u64().unwrap_or_else(|| panic!("{key} in {result}"))
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
    let output = demo_in(&dir(), &[&script[..], &size].concat()).output().unwrap();
    let result = json(&output);
    let number = |key: &str| number(&result, key);

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
    let output = demo_in(&dir(), &args).output().unwrap();
    let stdout = text(&output.stdout);
    for part in [
        "Events and checkpoints are in partita-demo",
        "Partita demo: 3s of home-sensor events, 500 a second in 4 partitions.",
        "nobody -> home-",
        "ADD home-4",
        "REMOVE home-1",
        "home-1 has left cleanly",
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
    let args = ["--for", "1s", "--at", "500ms=add", "--rate", "500", "--json", "--memory"];
    let dir = dir();
    let output = demo_in(&dir, &args).output().unwrap();
    assert_eq!(json(&output)["crashes"], 0);
    assert!(text(&output.stderr).contains("ADD home-4"), "{}", text(&output.stderr));
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0, "in memory is in memory");
}

#[test]
fn what_cannot_be_done_is_refused_before_anything_starts() {
    for (args, why) in [
        (&["--at", "5s=fly"][..], "use add, kill, remove, freeze or thaw"),
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
        (&["--memory", "--data", "here"], "cannot be used with"),
    ] {
        let dir = dir();
        let output = demo_in(&dir, args).output().unwrap();
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(stderr.starts_with("error: ") && stderr.contains(why), "{args:?}: {stderr}");
        assert_eq!(text(&output.stdout), "", "{args:?}");
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0, "{args:?}: nothing was made");
    }
}

#[test]
fn help_says_what_is_counted_and_version_tells_it() {
    let help = demo_in(&dir(), &["--help"]).output().unwrap();
    assert!(help.status.success());
    for part in ["duplicated_by_handoff", "handoff_gap_ms", "Exit code", "--at <TIME=ACTION>"] {
        assert!(text(&help.stdout).contains(part), "{part}");
    }
    let version = Command::new(env!("CARGO_BIN_EXE_partita")).arg("--version").output().unwrap();
    assert!(text(&version.stdout).starts_with(concat!("partita ", env!("CARGO_PKG_VERSION"))));
}

#[test]
fn a_reader_that_has_seen_enough_ends_the_run_quietly() {
    let mut child = demo_in(&dir(), &["--for", "30s", "--rate", "100", "--memory"])
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
    let dir = dir();
    let mut child = demo_in(&dir, &["--for", "5m", "--rate", "1000", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The line of the first second: it runs, and listens to signals.
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| is_of_second(&line, 1.0)));
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

/// A short run whose script is one that joins.
const SHORT: [&str; 8] = ["--for", "2s", "--at", "1s=add", "--rate", "2000", "--partitions", "8"];

#[test]
fn another_start_resumes_and_nothing_is_lost_or_handled_twice_over_both() {
    let dir = dir();
    let run = || demo_in(&dir, &[&SHORT[..], &["--json"]].concat()).output().unwrap();
    let (first, second) = (run(), run());
    assert!(!text(&first.stderr).contains("resuming"), "{}", text(&first.stderr));
    assert!(text(&second.stderr).contains("resuming: 0 events behind"), "{}", text(&second.stderr));
    assert!(text(&second.stderr).contains("home-5 to home-7, each a process"), "no name is used twice");
    let [before, after] = [&first, &second].map(json);
    assert!(number(&before, "produced") > 2_000, "{before}");
    assert!(number(&after, "produced") > number(&before, "produced") + 2_000, "{after}");
    for result in [before, after] {
        assert_eq!(number(&result, "processed"), number(&result, "produced"), "{result}");
        let bad = ["lost", "duplicated_by_handoff", "duplicated_by_crash"].map(|key| number(&result, key));
        assert_eq!(bad, [0, 0, 0], "{result}");
    }
    assert!(first.status.success() && second.status.success());
}

/// Whether a line is of this second of the run, or of a later one.
fn is_of_second(line: &str, second: f64) -> bool {
    let stamp = line.trim_start().split_once("s ").and_then(|(stamp, _)| stamp.parse().ok());
    stamp.is_some_and(|stamp: f64| stamp >= second)
}

/// Starts a demo and waits for a line of a second.
fn until_second(dir: &TempDir, second: f64, args: &[&str]) -> std::process::Child {
    let mut child = demo_in(dir, &[&["--for", "5m", "--json"], args].concat())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| is_of_second(&line, second)));
    // A demo whose lines nobody reads ends.
    std::thread::spawn(move || lines.for_each(drop));
    child
}

#[cfg(unix)]
#[test]
fn a_demo_that_was_killed_is_resumed_without_a_loss() {
    let dir = dir();
    for _ in 0..2 {
        // SIGKILL, in the middle of everything.
        let mut child = until_second(&dir, 2.0, &["--rate", "4000", "--partitions", "8"]);
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let output = demo_in(&dir, &[&SHORT[..], &["--json"]].concat()).output().unwrap();
    let stderr = text(&output.stderr);
    assert!(stderr.contains("events behind") && stderr.contains("The last run was killed"), "{stderr}");
    let result = json(&output);
    assert_eq!(number(&result, "lost"), 0, "{result}");
    assert_eq!(number(&result, "duplicated_by_handoff"), 0, "{result}");
    assert_eq!(number(&result, "processed"), number(&result, "produced"), "{result}");
    assert!(number(&result, "produced") > 10_000, "{result}");
    // A checkpoint every 1,000 events or second: at most that is repeated of each partition, for each of two kills.
    assert!(number(&result, "duplicated_by_crash") <= 2 * 8 * 1_000, "{result}");
    assert!(output.status.success());
}

#[test]
fn two_demos_at_one_place_do_not_disturb_each_other() {
    let dir = dir();
    let mut first = until_second(&dir, 1.0, &["--rate", "100"]);
    let named = demo_in(&dir, &["--data", "partita-demo"]).output().unwrap();
    assert_eq!(named.status.code(), Some(2));
    let stderr = text(&named.stderr);
    assert!(stderr.contains("partita-demo is in use by another demo"), "{stderr}");
    let unnamed = demo_in(&dir, &SHORT).output().unwrap();
    let said = format!("{}{}", text(&unnamed.stdout), text(&unnamed.stderr));
    assert!(text(&unnamed.stdout).contains("are in partita-demo-2"), "{said}");
    assert!(unnamed.status.success(), "{said}");
    first.kill().unwrap();
    first.wait().unwrap();
}

/// Every file below a directory, with its content.
fn content(path: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(content(&entry.path())),
            false => found.push((entry.path(), fs::read(entry.path()).unwrap())),
        }
    }
    found.sort();
    found
}

#[test]
fn a_bad_directory_is_refused_in_one_sentence_and_left_as_it_was() {
    let refused = |dir: &TempDir, args: &[&str], why: &str| {
        let output = demo_in(dir, args).output().unwrap();
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.starts_with("error: ") && stderr.contains(why), "{why}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        assert_eq!(text(&output.stdout), "");
    };
    let foreign = dir();
    fs::create_dir(foreign.path().join("partita-demo")).unwrap();
    fs::write(foreign.path().join("partita-demo/thesis.doc"), "mine").unwrap();
    refused(&foreign, &[], "holds something else: choose an empty or new directory");
    assert_eq!(content(foreign.path()).len(), 1);

    let used = dir();
    assert!(demo_in(&used, &SHORT).output().unwrap().status.success());
    let data = used.path().join("partita-demo");
    refused(&used, &["--partitions", "4"], "has 8 partitions, and partitions are never removed");

    for (file, flip, why) in [
        ("hub/STORE", 3, "is damaged: restore it from a copy"),
        ("checkpoints.db", 2, "choose another file"),
        ("ledger", 5, "ledger is damaged: remove it"),
    ] {
        let path = data.join(file);
        let good = fs::read(&path).unwrap();
        let mut bad = good.clone();
        bad[flip] ^= 0xff;
        fs::write(&path, &bad).unwrap();
        refused(&used, &[], why);
        assert_eq!(fs::read(&path).unwrap(), bad, "{file}");
        fs::write(&path, good).unwrap();
    }

    let mut newer = fs::read(data.join("hub/STORE")).unwrap();
    let good = newer.clone();
    newer[8] = 9;
    let crc = crc32fast::hash(&newer[..28]);
    newer[28..32].copy_from_slice(&crc.to_le_bytes());
    fs::write(data.join("hub/STORE"), &newer).unwrap();
    let before = content(&data);
    refused(&used, &[], "has data format 9, this program knows up to 1: use a newer program");
    assert_eq!(content(&data), before);
    fs::write(data.join("hub/STORE"), good).unwrap();

    // A flipped bit in the events.
    let is_log = |path: &Path| path.extension().is_some_and(|ext| ext == "seg");
    let (path, mut bytes) = content(&data).into_iter().find(|(path, _)| is_log(path)).unwrap();
    let whole = bytes.clone();
    bytes[9_000] ^= 1;
    fs::write(&path, bytes).unwrap();
    refused(&used, &[], "are damaged");
    fs::write(&path, whole).unwrap();
    // All of it is as it was, so it can still be resumed.
    assert!(demo_in(&used, &SHORT[..6]).output().unwrap().status.success());

    refused(&used, &["--data", "/proc/partita"], "--data chooses a directory");
}

#[cfg(unix)]
#[test]
fn a_place_that_cannot_be_written_is_refused() {
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;

    let dir = dir();
    let data = dir.path().join("data");
    fs::create_dir(&data).unwrap();
    fs::set_permissions(&data, fs::Permissions::from_mode(0o555)).unwrap();
    let mut demo = demo_in(&dir, &["--data", "data"]);
    if fs::write(data.join("probe"), "").is_ok() {
        // Permissions do not bind this user, so somebody else has to try, with a program where everybody may look.
        fs::remove_file(data.join("probe")).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
        let program = dir.path().join("partita");
        fs::copy(env!("CARGO_BIN_EXE_partita"), &program).unwrap();
        demo = Command::new(program);
        demo.args(["demo", "--data", "data"])
            .env_remove("RUST_LOG")
            .current_dir(&dir)
            .uid(65_534)
            .gid(65_534);
    }
    let output = match demo.output() {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            let line =
                format!("\nskipped: a_place_that_cannot_be_written_is_refused: no other user: {error}\n");
            return std::io::stderr().write_all(line.as_bytes()).unwrap();
        }
        output => output.unwrap(),
    };
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("cannot be written") && stderr.lines().count() == 1, "{stderr}");
    assert_eq!(fs::read_dir(&data).unwrap().count(), 0, "nothing was written");
}
