//! A run of many seeds that is ended goes on where it was.

#![cfg(feature = "cli")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn run(args: &[&str], keep: Option<&Path>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_partita-sim"));
    command.args(args);
    if let Some(file) = keep {
        command.arg("--keep").arg(file);
    }
    command.output().expect("runs")
}

/// What came of the seeds, without how fast it was.
fn figures(output: &Output) -> Vec<String> {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines()
        .filter(|line| !line.contains("seeds per second") && !line.contains("seeds/s"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn what_was_kept_counts_and_is_not_run_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("kept.json");
    run(&["--count", "30"], Some(&file));
    let went_on = run(&["--count", "50"], Some(&file));
    assert_eq!(figures(&went_on), figures(&run(&["--count", "50"], None)));
    let before = fs::read(&file).expect("kept");
    assert_eq!(figures(&run(&["--count", "50"], Some(&file))), figures(&went_on));
    assert_eq!(fs::read(&file).expect("kept"), before, "nothing was left to run");

    let nowhere = run(&["--count", "1"], Some(&directory.path().join("no/such/kept.json")));
    let said = String::from_utf8_lossy(&nowhere.stderr).into_owned();
    assert!(!nowhere.status.success() && said.contains("no/such/kept.json: "), "{said}");

    // Seeds of another kind, or a file that is something else, are not added up.
    for (args, text) in
        [(["--seed", "9"], None), (["--theme", "alone"], None), (["--count", "50"], Some("{}"))]
    {
        if let Some(text) = text {
            fs::write(&file, text).expect("writes");
        }
        let refused = run(&args, Some(&file));
        assert!(!refused.status.success());
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(said.contains("remove it to start from the first seed"), "{said}");
    }
}
