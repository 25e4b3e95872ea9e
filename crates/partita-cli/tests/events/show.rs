//! One event, with all that it has.

use serde_json::{Value, json};

use crate::client::{produce, refused, run};
use crate::support::{Hub, text};

fn show(hub: &Hub, args: &[&str]) -> String {
    let output = run(hub, &[&["event", "show", "eh1"], args].concat(), b"");
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn an_event_is_shown_whole() {
    let hub = Hub::start(&["--memory", "--hub", "eh1:2"]);
    let lines = [
        json!({"body": {"b": [1, 2]}, "partition": 1, "key": "home-1", "properties": {"n": 5, "s": "x\u{1b}[31m"},
            "property_types": {"n": "int"}, "message": {"content_type": "application/json"}}),
        json!({"body": "two\nlines", "partition": 1}),
        json!({"body_base64": "AP8KQUI=", "partition": 1}),
        json!({"body_value": {"type": "uint", "value": 7}, "partition": 1}),
        json!({"body": "", "partition": 1}),
    ];
    let input: String = lines.iter().map(|line| format!("{line}\n")).collect();
    produce(&hub, &["eh1", "--jsonl"], input.as_bytes());
    let first = show(&hub, &["1", "0"]);
    for part in [
        "event 0 of partition 1 of eh1\n",
        "  key        home-1\n",
        "  content_type application/json\n",
        "properties\n  n  int     5\n  s  string  x\\u{1b}[31m\n",
        "of JSON\n  {\n    \"b\": [\n      1,\n",
    ] {
        assert!(first.contains(part), "no {part:?} in {first}");
    }
    assert!(show(&hub, &["1", "1"]).ends_with("body, 9 bytes of text\n  two\n  lines\n"));
    let dump = "body, 5 bytes\n  00000000  00 ff 0a 41 42                                    |...AB|\n";
    assert!(show(&hub, &["1", "2"]).ends_with(dump), "{}", show(&hub, &["1", "2"]));
    assert!(show(&hub, &["1", "3"]).contains("body, an AMQP value\n  {\n    \"type\": \"uint\""));
    assert!(show(&hub, &["1", "4"]).ends_with("body, empty\n"));
    let json: Value = serde_json::from_str(&show(&hub, &["1", "0", "-o", "json"])).unwrap();
    assert_eq!((&json["sequence"], &json["property_types"]), (&json!(0), &json!({"n": "int"})));
}

#[test]
fn an_event_that_is_not_there_is_told() {
    let hub = Hub::start(&["--memory", "--hub", "eh1:2"]);
    produce(&hub, &["eh1", "--partition", "0"], b"x\ny\n");
    for (args, part) in [
        (["0", "7"], "there is no event 7 in partition 0 of eh1: it has 0 to 1"),
        (["1", "0"], "there is no event 0 in partition 1 of eh1: it has no event yet"),
        (["5", "0"], "there is no partition 5 in hub eh1: they are 0 to 1"),
    ] {
        let (code, said) = refused(&run(&hub, &[&["event", "show", "eh1"][..], &args].concat(), b""));
        assert_eq!(code, 7);
        assert!(said.contains(part), "{said}");
    }
}
