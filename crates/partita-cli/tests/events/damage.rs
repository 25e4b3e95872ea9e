//! A damaged byte in the log, as a user meets it: readers stop and say where, health says so, and there is a way on.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::{Value, json};

use crate::client::{produce, run};
use crate::support::{Hub, partita, text};

/// All files below a directory.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut out = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            out.extend(files(&path));
        } else {
            out.insert(path.clone(), std::fs::read(&path).unwrap());
        }
    }
    out
}

/// Flips a bit of the first place that holds these bytes.
fn damage(dir: &Path, needle: &[u8]) {
    for (path, bytes) in files(dir) {
        if let Some(at) = bytes.windows(needle.len()).position(|window| window == needle) {
            // In place: a hub may have the file open.
            let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
            file.write_all_at(&[bytes[at] ^ 4], at as u64).unwrap();
            return;
        }
    }
    panic!("not there");
}

fn offline(args: &[&str], data: &Path) -> Output {
    partita(args).arg("--data").arg(data).output().unwrap()
}

fn health(hub: &Hub) -> (u16, Value) {
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let mut response = agent.get(format!("{}/health", hub.http())).call().unwrap();
    let body = response.body_mut().read_to_string().unwrap();
    (response.status().as_u16(), serde_json::from_str(&body).unwrap())
}

fn lines(groups: &[usize]) -> String {
    groups.iter().flat_map(|group| (0..10).map(move |n| format!("group {group} line {n}\n"))).collect()
}

#[test]
fn a_damaged_byte_stops_readers_shows_in_health_and_can_be_given_up() {
    let hub = Hub::start(&["--hub", "eh1:1"]);
    for group in 0..5 {
        produce(&hub, &["eh1"], lines(&[group]).as_bytes());
    }
    assert!(hub.says(&["hub", "check"]).contains("everything is safe"));
    let (dir, _) = hub.stop();
    let data = dir.path().join("data");
    damage(&data, b"group 2 line 3");

    // Offline: what is damaged, and nothing is changed.
    let before = files(&data);
    let checked = offline(&["hub", "check", "eh1"], &data);
    let said = text(&checked.stdout);
    assert_eq!(checked.status.code(), Some(1), "{said}{}", text(&checked.stderr));
    assert!(said.contains("partition 0: events 20 to 29 are damaged"), "{said}");
    assert!(said.contains("--partition 0 --from 20 --to 29"), "{said}");
    assert!(before == files(&data), "a check changes nothing");
    assert_eq!(offline(&["hub", "check", "none"], &data).status.code(), Some(7));

    // Served: readers get what is before it, and an error that names it.
    let hub = Hub::start_in(dir, &[]);
    let read = run(&hub, &["consume", "eh1", "--until-end"], b"");
    assert_eq!(text(&read.stdout), lines(&[0, 1]), "nothing is passed over");
    let said = text(&read.stderr);
    assert_eq!(read.status.code(), Some(1), "{said}");
    assert!(said.contains("events 20 to 29 of partition 0 of hub 'eh1' are damaged"), "{said}");
    assert!(said.contains("amqp:not-allowed") && !said.contains("trying again"), "{said}");
    let (status, body) = health(&hub);
    assert_eq!((status, &body["status"]), (503, &json!("unhealthy")));
    let named = &body["damaged"][0];
    assert_eq!((&named["hub"], &named["partition"]), (&json!("eh1"), &json!("0")));
    assert_eq!(
        (&named["first"], &named["last"], &named["accepted"]),
        (&json!(20), &json!(29), &json!(false))
    );
    assert!(hub.says(&["hub", "list"]).contains("Hub eh1 is damaged in partition 0"));
    assert!(hub.says(&["hub", "describe", "eh1"]).contains("partition 0: events 20 to 29"));
    let checked = hub.command(&["hub", "check", "-o", "json"]);
    assert_eq!(checked.status.code(), Some(1));
    let checked: Value = serde_json::from_str(&text(&checked.stdout)).unwrap();
    let partition = &checked["hubs"][0]["partitions"][0];
    assert_eq!((&partition["safe_events"], &partition["lost"][0]["last"]), (&json!(40), &json!(29)));
    let in_use = offline(&["hub", "check"], &hub.path("data"));
    assert_eq!(in_use.status.code(), Some(4));
    assert!(text(&in_use.stderr).contains("leave out --data"), "{}", text(&in_use.stderr));

    // Given up: only what is lost, and then exactly that.
    let loss = |from: &str, to: &str| {
        hub.command(&["hub", "accept-loss", "eh1", "--partition", "0", "--from", from, "--to", to])
    };
    let refused = loss("19", "29");
    assert!(
        !refused.status.success() && text(&refused.stderr).contains("event 19"),
        "{}",
        text(&refused.stderr)
    );
    assert_eq!(health(&hub).0, 503);
    assert!(loss("20", "29").status.success());
    assert_eq!(health(&hub), (200, json!({"status": "healthy", "message": "Service is healthy."})));
    let rest = |hub: &Hub| {
        let read = run(hub, &["consume", "eh1", "--until-end"], b"");
        assert_eq!(read.status.code(), Some(1), "{}", text(&read.stderr));
        assert!(text(&read.stderr).contains("events 20 to 29: "), "{}", text(&read.stderr));
        assert_eq!(text(&read.stdout), lines(&[0, 1, 3, 4]));
    };
    rest(&hub);
    let (dir, _) = hub.stop();
    let hub = Hub::start_in(dir, &[]);
    assert_eq!(health(&hub).0, 200, "for good");
    rest(&hub);
    assert!(hub.says(&["hub", "check"]).contains("loss accepted"));
}

#[test]
fn a_check_of_a_running_hub_names_events_that_only_its_memory_has() {
    let hub = Hub::start(&["--hub", "eh1:1"]);
    let group = |group: usize| -> String {
        (0..10).map(|n| format!("group {group} line {n} {}\n", "x".repeat(900))).collect()
    };
    for number in 0..5 {
        produce(&hub, &["eh1"], group(number).as_bytes());
    }
    damage(&hub.path("data"), b"group 2 line 3");
    let checked = hub.command(&["hub", "check"]);
    let said = text(&checked.stdout);
    assert_eq!(checked.status.code(), Some(1), "{said}");
    assert!(said.contains("events 20 to 29 can be read from memory only, until the hub stops"), "{said}");
    assert!(said.contains("in memory only") && !said.contains("no event is known to be lost"), "{said}");
    let checked: Value =
        serde_json::from_str(&text(&hub.command(&["hub", "check", "-o", "json"]).stdout)).unwrap();
    assert_eq!(checked["hubs"][0]["partitions"][0]["safe_events"], json!(40));

    // What it advises.
    let copied = run(&hub, &["consume", "eh1", "-p", "0", "--from", "seq:20", "-n", "10"], b"");
    assert_eq!(text(&copied.stdout), group(2));
    let (dir, _) = hub.stop();
    let said = text(&offline(&["hub", "check"], &dir.path().join("data")).stdout);
    assert!(said.contains("events 20 to 29 are damaged"), "{said}");
}

#[test]
fn a_damaged_partition_does_not_hide_what_the_others_have() {
    let hub = Hub::start(&["--hub", "eh1:2"]);
    for partition in ["0", "1"] {
        let text: String = (0..500).map(|n| format!("partition {partition} line {n}\n")).collect();
        produce(&hub, &["eh1", "-p", partition], text.as_bytes());
    }
    let (dir, _) = hub.stop();
    damage(&dir.path().join("data"), b"partition 0 line 3");
    let hub = Hub::start_in(dir, &[]);
    let read = run(&hub, &["consume", "eh1", "--until-end"], b"");
    let lines: Vec<String> = (0..500).map(|n| format!("partition 1 line {n}")).collect();
    let said = text(&read.stdout);
    assert_eq!(said.lines().filter(|line| line.starts_with("partition 1")).collect::<Vec<_>>(), lines);
    assert_eq!(read.status.code(), Some(1));
    assert!(text(&read.stderr).contains("of partition 0 of hub 'eh1' are damaged"), "{}", text(&read.stderr));
}

#[test]
fn damage_is_given_up_offline_too() {
    let hub = Hub::start(&["--hub", "eh1:1"]);
    for group in 0..3 {
        produce(&hub, &["eh1"], lines(&[group]).as_bytes());
    }
    let (dir, _) = hub.stop();
    let data = dir.path().join("data");
    damage(&data, b"group 1 line 9");
    let args = ["hub", "accept-loss", "eh1", "--partition", "0", "--from", "10", "--to", "19"];
    let accepted = offline(&args, &data);
    assert!(accepted.status.success(), "{}", text(&accepted.stderr));
    assert!(offline(&["hub", "check"], &data).status.success());
    let hub = Hub::start_in(dir, &[]);
    assert_eq!(health(&hub).0, 200);
    let read = run(&hub, &["consume", "eh1", "--until-end"], b"");
    assert_eq!(text(&read.stdout), lines(&[0, 2]), "{}", text(&read.stderr));
}

#[test]
fn what_is_before_the_damage_is_read_though_the_error_comes_with_it() {
    let hub = Hub::start(&["--hub", "eh1:1"]);
    for group in 0..30 {
        produce(&hub, &["eh1"], lines(&[group]).as_bytes());
    }
    let (dir, _) = hub.stop();
    damage(&dir.path().join("data"), b"group 15 line 3");
    let hub = Hub::start_in(dir, &[]);
    for from in [0, 12, 14] {
        for _ in 0..5 {
            let position = format!("seq:{}", from * 10);
            let read = run(&hub, &["consume", "eh1", "--from", &position, "--until-end"], b"");
            assert_eq!(text(&read.stdout), lines(&(from..15).collect::<Vec<_>>()), "{}", text(&read.stderr));
            assert_eq!(read.status.code(), Some(1));
        }
    }
}

#[test]
fn a_hub_that_is_whole_is_called_so_while_its_newest_segment_is_written() {
    let hub = Hub::start(&["--hub", "eh1:1"]);
    let body = format!("event {{n}} {}", "a".repeat(50));
    for count in ["1000", "1", "7", "90", "333"] {
        produce(&hub, &["eh1", "--body", &body, "-n", count], b"");
        let checked = hub.command(&["hub", "check"]);
        assert!(checked.status.success(), "{}{}", text(&checked.stdout), text(&checked.stderr));
    }
}

#[test]
fn a_check_says_that_a_hub_is_missing() {
    let hub = Hub::start(&["--hub", "eh1:1"]);
    produce(&hub, &["eh1"], lines(&[0]).as_bytes());
    let (dir, _) = hub.stop();
    let data = dir.path().join("data");
    let hub_dir = std::fs::read_dir(data.join("hubs")).unwrap().next().unwrap().unwrap().path();
    std::fs::remove_file(hub_dir.join("meta")).unwrap();
    for _ in 0..2 {
        let checked = offline(&["hub", "check"], &data);
        let said = text(&checked.stderr);
        assert_eq!(checked.status.code(), Some(4), "{said}");
        assert!(said.contains("hub 'eh1' cannot be checked") && said.contains("meta is missing"), "{said}");
        // The same without all of it.
        let _ = std::fs::remove_dir_all(&hub_dir);
    }
}

/// The segment file of the hub's only segment.
fn segment(dir: &Path) -> PathBuf {
    let mut found: Vec<PathBuf> = files(&dir.join("data/hubs"))
        .into_keys()
        .filter(|path| path.extension().is_some_and(|e| e == "seg"))
        .collect();
    assert_eq!(found.len(), 1);
    found.remove(0)
}

#[test]
fn readers_by_offset_and_time_are_told_of_damage_to_the_only_batch() {
    let hub = Hub::start(&["--hub", "eh1:1"]);
    produce(&hub, &["eh1"], lines(&[0]).as_bytes());
    let all = run(&hub, &["consume", "eh1", "--until-end", "--format", "{offset} {enqueued}"], b"");
    let last = text(&all.stdout).lines().last().unwrap().to_owned();
    let (offset, time) = last.split_once(' ').unwrap();
    let (dir, _) = hub.stop();
    damage(&dir.path().join("data"), b"group 0 line 3");
    let hub = Hub::start_in(dir, &[]);
    for from in ["earliest", "seq:9", &format!("offset:{offset}"), "offset:1", time] {
        let read = run(&hub, &["consume", "eh1", "--from", from, "--until-end"], b"");
        let said = text(&read.stderr);
        assert_eq!(read.status.code(), Some(1), "{from}: {said}");
        assert!(said.contains("events 0 to 9 of partition 0 of hub 'eh1' are damaged"), "{from}: {said}");
    }
}

#[test]
fn damage_is_logged_once_by_the_hub_s_name_and_a_start_with_the_good_file_clears_it() {
    let hub = Hub::start(&["--hub", "eh1:1"]);
    for group in 0..3 {
        produce(&hub, &["eh1"], lines(&[group]).as_bytes());
    }
    let (dir, _) = hub.stop();
    let (segment, data) = (segment(dir.path()), dir.path().join("data"));
    let good = std::fs::read(&segment).unwrap();
    damage(&data, b"group 1 line 3");
    let hub = Hub::start_in(dir, &[]);
    assert_eq!(health(&hub).0, 503);
    let (dir, said) = hub.stop();
    assert_eq!(said.matches("partition is damaged").count(), 1, "{said}");
    assert!(!said.contains("hub=1") && said.contains("hub=eh1"), "{said}");
    std::fs::write(&segment, good).unwrap();
    let hub = Hub::start_in(dir, &[]);
    assert_eq!(health(&hub).0, 200);
    let read = run(&hub, &["consume", "eh1", "--until-end"], b"");
    assert_eq!(text(&read.stdout), lines(&[0, 1, 2]), "{}", text(&read.stderr));
    let (dir, said) = hub.stop();
    assert!(said.contains("events 10 to 19 of partition 0 can be read again"), "{said}");
    let (_, said) = Hub::start_in(dir, &[]).stop();
    assert!(!said.contains("can be read again") && !said.contains("damaged"), "{said}");
}

#[test]
fn a_lost_beginning_is_told_to_readers_from_earliest() {
    let hub = Hub::start(&["--hub", "eh1:1"]);
    produce(&hub, &["eh1"], lines(&[0]).as_bytes());
    let (dir, _) = hub.stop();
    std::fs::remove_file(segment(dir.path())).unwrap();
    let hub = Hub::start_in(dir, &["--accept-loss", "eh1"]);
    // Nothing is there yet: it ends, and says what is lost.
    let read = run(&hub, &["consume", "eh1", "--until-end"], b"");
    assert_eq!(text(&read.stdout), "");
    produce(&hub, &["eh1"], lines(&[1]).as_bytes());
    let (dir, _) = hub.stop();
    let hub = Hub::start_in(dir, &[]);
    for from in ["earliest", "seq:0"] {
        let read = run(&hub, &["consume", "eh1", "--from", from, "--until-end"], b"");
        assert_eq!(text(&read.stdout), lines(&[1]));
        let said = text(&read.stderr);
        assert!(said.contains("events 0 to 9: ") && said.contains("at most 10 events were gone"), "{said}");
        assert_eq!(read.status.code(), Some(1), "{said}");
    }
}

#[test]
fn a_lost_end_is_told_and_reading_to_the_end_ends() {
    let hub = Hub::start(&["--hub", "eh1:1"]);
    for group in 0..3 {
        produce(&hub, &["eh1"], lines(&[group]).as_bytes());
    }
    let (dir, _) = hub.stop();
    damage(&dir.path().join("data"), b"group 2 line 3");
    let hub = Hub::start_in(dir, &[]);
    let args = ["hub", "accept-loss", "eh1", "--partition", "0", "--from", "20", "--to", "29"];
    assert!(hub.command(&args).status.success());
    let shown = run(&hub, &["event", "show", "eh1", "0", "25"], b"");
    assert!(text(&shown.stderr).contains("or is lost"), "{}", text(&shown.stderr));
    assert_eq!(hub.get_json("/api/v1/hubs/eh1")["events"], json!(20));
    for (from, groups) in [("earliest", &[0, 1][..]), ("seq:25", &[])] {
        let read = run(&hub, &["consume", "eh1", "--from", from, "--until-end"], b"");
        assert_eq!(text(&read.stdout), lines(groups));
        let said = text(&read.stderr);
        let first = if groups.is_empty() { 25 } else { 20 };
        assert!(said.contains(&format!("events {first} to 29: ")), "{said}");
        assert_eq!(read.status.code(), Some(1), "{said}");
    }
}
