//! Hub, database and processors as real processes, with real kills and freezes past the ttl; counted by a reader of its own.
//! With PARTITA_LONG=1 it goes on for 500 kills and 100 freezes; PARTITA_PROOF names the file that takes the figures.

#![cfg(unix)]

use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

/// What happens to the processors: kills and freezes in between each other, and whoever is gone is replaced.
struct Chaos {
    kills: u32,
    freezes: u32,
    kill_every: Duration,
    freeze_every: Duration,
}

/// Longer than the ttl of 5 s, so that a frozen one counts as dead when it goes on.
const FREEZE: Duration = Duration::from_secs(7);

const BEGIN: Duration = Duration::from_secs(3);

impl Chaos {
    fn steps(&self) -> Vec<(Duration, &'static str)> {
        let mut steps = Vec::new();
        for n in 0..self.kills {
            let at = BEGIN + self.kill_every * n;
            steps.extend([(at, "kill"), (at + self.kill_every / 2, "add")]);
        }
        for n in 0..self.freezes {
            let at = BEGIN + self.kill_every / 4 + self.freeze_every * n;
            steps.extend([(at, "freeze"), (at + FREEZE, "thaw")]);
        }
        steps
    }

    fn args(&self) -> Vec<String> {
        let steps = self.steps();
        let last = steps.iter().map(|(at, _)| *at).max().unwrap_or(BEGIN);
        let length = format!("{}ms", (last + Duration::from_secs(4)).as_millis());
        let mut args = vec!["--for".to_owned(), length];
        for (at, action) in steps {
            args.extend(["--at".to_owned(), format!("{}ms={action}", at.as_millis())]);
        }
        args
    }
}

#[test]
fn nothing_is_lost_and_no_planned_move_repeats_an_event_whatever_is_killed_or_frozen() {
    let chaos = match std::env::var_os("PARTITA_LONG").is_some_and(|long| long == "1") {
        false => Chaos {
            kills: 8,
            freezes: 2,
            kill_every: Duration::from_millis(2_000),
            freeze_every: Duration::from_secs(5),
        },
        true => Chaos {
            kills: 500,
            freezes: 100,
            kill_every: Duration::from_millis(1_500),
            freeze_every: Duration::from_millis(7_400),
        },
    };
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_partita"))
        .args(["demo", "--json", "--quiet", "--processors", "5", "--rate", "2000"])
        .args(chaos.args())
        .env_remove("RUST_LOG")
        .current_dir(&dir)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let result: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|why| panic!("{why}: {stderr}"));
    let number = |key: &str| result[key].as_u64().unwrap_or_else(|| panic!("{key} in {result}"));
    let line = format!(
        "counted: real processes: {} kills, {} freezes past the ttl, {} events, lost {}, repeated by planned moves {}, \
         repeated after crashes {}, hand-offs {}, failover p99 {} ms\n",
        number("crashes"),
        chaos.freezes,
        number("produced"),
        number("lost"),
        number("duplicated_by_handoff"),
        number("duplicated_by_crash"),
        number("handoffs"),
        result["failover_gap_ms"]["p99"],
    );
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    if let Some(file) = std::env::var_os("PARTITA_PROOF") {
        write_proof(file.as_ref(), &result, &chaos);
    }
    assert_eq!((number("lost"), number("duplicated_by_handoff")), (0, 0), "{result}\n{stderr}");
    assert_eq!(number("processed"), number("produced"), "{result}");
    assert_eq!(number("crashes"), u64::from(chaos.kills), "{result}\n{stderr}");
    assert!(number("produced") > 10_000, "{result}");
    assert!(output.status.success(), "{result}\n{stderr}");
}

/// Puts the figures between their marks in a document.
fn write_proof(file: &Path, result: &Value, chaos: &Chaos) {
    let [begin, end] = ["begin", "end"].map(|mark| format!("<!-- processes: {mark} -->"));
    let gap =
        |key: &str| format!("{} / {} ms over {}", result[key]["p50"], result[key]["p99"], result[key]["n"]);
    let rows = [
        ("kills survived", result["crashes"].to_string()),
        ("freezes of 7 s survived", chaos.freezes.to_string()),
        ("events produced", grouped(&result["produced"])),
        ("events handled", grouped(&result["processed"])),
        ("events lost", result["lost"].to_string()),
        ("events handled again, planned moves", result["duplicated_by_handoff"].to_string()),
        ("events handled again, after kills and freezes", grouped(&result["duplicated_by_crash"])),
        ("hand-offs", result["handoffs"].to_string()),
        ("hand-off, nobody reads: p50 / p99", gap("handoff_gap_ms")),
        ("owner lost, nobody reads: p50 / p99", gap("failover_gap_ms")),
    ];
    let table: String = rows.iter().map(|(what, figure)| format!("| {what} | {figure} |\n")).collect();
    let whole = std::fs::read_to_string(file).expect("the document");
    let (before, rest) = whole.split_once(&begin).expect("the mark where figures begin");
    let (_, after) = rest.split_once(&end).expect("the mark where figures end");
    let text = format!("{before}{begin}\n| what | figure |\n| --- | ---: |\n{table}{end}{after}");
    std::fs::write(file, text).expect("the document can be written");
}

/// A number with its thousands set apart.
fn grouped(number: &Value) -> String {
    let digits = number.to_string();
    let groups: Vec<&[u8]> = digits.as_bytes().rchunks(3).rev().collect();
    String::from_utf8(groups.join(&b',')).expect("digits")
}
