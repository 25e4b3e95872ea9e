//! The first ten minutes: looking around at a hub, and what it logs.

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::{Hub, partita, text, wait_for};

fn with(string: &str, args: &[&str]) -> Command {
    let mut command = partita(args);
    command.env("PARTITA_CONNECTION_STRING", string).stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

fn json(hub: &Hub, args: &[&str]) -> Value {
    serde_json::from_str(&hub.says(&[args, &["-o", "json"]].concat())).expect("JSON")
}

#[test]
fn consumer_groups_are_listed() {
    let hub = Hub::start(&["--memory", "--hub", "eh1:1:billing,audit"]);
    assert_eq!(hub.says(&["hub", "group", "list", "EH1"]), "$Default\nbilling\naudit\n");
    let groups = json!({"hub": "eh1", "consumer_groups": ["$Default", "billing", "audit"]});
    assert_eq!(json(&hub, &["hub", "group", "list", "eh1"]), groups);
    let none = hub.command(&["hub", "group", "list", "other"]);
    assert!(none.status.code() == Some(7) && text(&none.stderr).contains("there is no hub 'other'"));
}

#[test]
fn who_is_connected_is_listed_with_its_links() {
    let hub = Hub::start(&["--memory", "--hub", "eh1:1"]);
    assert_eq!(hub.says(&["hub", "connections"]), "Nobody is connected.\n");
    let mut reader =
        with(hub.ready["connection_string"].as_str().unwrap(), &["consume", "eh1"]).spawn().unwrap();
    let shown = wait_for("the reader", || {
        Some(hub.says(&["hub", "connections"])).filter(|shown| shown.contains("ConsumerGroups"))
    });
    reader.kill().unwrap();
    reader.wait().unwrap();
    let words: Vec<_> = shown.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(words, ["ADDRESS", "CLIENT", "SINCE", "LINK", "OF"]);
    assert!(shown.contains("partita-consume-") && shown.contains("127.0.0.1:"), "{shown}");
    assert!(shown.contains("receiver  eh1/ConsumerGroups/$Default/Partitions/0"), "{shown}");
    wait_for("its end", || {
        json(&hub, &["hub", "connections"])["connections"].as_array().is_some_and(Vec::is_empty).then_some(())
    });
}

#[test]
fn what_is_done_is_told_as_json_too() {
    let hub = Hub::start(&["--memory", "--hub", "eh1:1:billing"]);
    assert_eq!(
        json(&hub, &["hub", "group", "delete", "eh1", "billing"]),
        json!({"deleted": "billing", "hub": "eh1"})
    );
    json(&hub, &["fault", "busy", "--hub", "eh1"]);
    assert_eq!(json(&hub, &["fault", "remove", "1"]), json!({"removed": 1}));
    assert_eq!(json(&hub, &["fault", "clear"]), json!({"removed": "all"}));
    let string = hub.ready["connection_string"].as_str().unwrap();
    let sent = with(string, &["produce", "eh1", "--body", "x", "-n", "3", "-o", "json"]).output().unwrap();
    let sent: Value = serde_json::from_slice(&sent.stdout).expect("JSON on stdout");
    assert_eq!((&sent["hub"], &sent["events"]), (&json!("eh1"), &json!(3)));
    assert_eq!(
        sent["partitions"],
        json!([{"id": "0", "events": 3, "first_sequence": 0, "last_sequence": 2, "exact": true}])
    );
    let read = with(string, &["consume", "eh1", "--until-end", "-o", "json"]).output().unwrap();
    assert_eq!(text(&read.stdout).lines().count(), 3);
}

#[test]
fn the_version_names_the_commit_of_a_checkout() {
    let said = text(&partita(&["--version"]).output().unwrap().stdout);
    let version = concat!("partita ", env!("CARGO_PKG_VERSION"));
    let rest = said.trim_end().strip_prefix(version).unwrap_or_else(|| panic!("{said}"));
    let is_checkout = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.git").exists();
    let has_git = Command::new("git").arg("--version").output().is_ok();
    match is_checkout && has_git {
        true => {
            let commit = rest.strip_prefix(" (").and_then(|rest| rest.strip_suffix(')')).unwrap_or_default();
            assert!(commit.len() >= 12 && commit.bytes().all(|byte| byte.is_ascii_hexdigit()), "{said}");
        }
        false => assert_eq!(rest, ""),
    }
}

#[test]
fn refusals_are_logged_now_and_then_and_without_secrets() {
    let hub = Hub::start(&["--memory", "--hub", "eh1:1"]);
    let string = hub.ready["connection_string"].as_str().unwrap();
    let wrong = string.replace("SAS_KEY_VALUE", "s3cret");
    for _ in 0..3 {
        assert_eq!(with(&wrong, &["consume", "eh1"]).stderr(Stdio::null()).status().unwrap().code(), Some(6));
        assert_eq!(
            with(string, &["consume", "other"]).stderr(Stdio::null()).status().unwrap().code(),
            Some(7)
        );
    }
    let page = ureq::get(format!("{}/api/v1/hubs", hub.http())).header("Origin", "https://evil.example");
    assert!(page.call().is_err());
    let (_, said) = hub.stop();
    assert_eq!(said.matches("refused: InvalidSignature").count(), 1, "once in a while: {said}");
    assert_eq!(said.matches("refused: The messaging entity 'sb://localhost/other'").count(), 1, "{said}");
    assert!(said.contains("partita-consume-") && said.contains("127.0.0.1:"), "who: {said}");
    assert!(said.contains("a call of the HTTP API was refused: a page of another site"), "{said}");
    assert!(!said.contains("s3cret") && !said.contains("SharedAccessSignature"), "{said}");
    assert!(!said.contains("connection began"), "that is for -v: {said}");
}

#[test]
fn connections_are_logged_with_v() {
    let hub = Hub::start(&["--memory", "--hub", "eh1:1", "-v"]);
    let string = hub.ready["connection_string"].as_str().unwrap();
    assert!(with(string, &["consume", "eh1", "--until-end"]).status().unwrap().success());
    let (_, said) = hub.stop();
    assert!(said.contains("connection began") && said.contains("connection ended"), "{said}");
    assert!(said.contains("partita-consume-"), "{said}");
}
