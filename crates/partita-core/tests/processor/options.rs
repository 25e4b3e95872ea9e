//! Options: the documented defaults are the code's, and impossible ones cannot be built.

use std::collections::BTreeMap;
use std::time::Duration;

use partita_core::processor::FailurePolicy;
use partita_core::processor::{Builder, Checkpoint, ConfigError, NoHandler, Processor};
use partita_core::processor::{Timing, TimingError};
use partita_core::source::MemoryHub;
use partita_core::store::MemoryStore;

use crate::support::{ms, secs};

fn builder() -> Builder<NoHandler> {
    Processor::builder(MemoryHub::new("hub", 1).source(), MemoryStore::new())
}

/// The rows of the table under a heading, without the head.
fn table(page: &str, first_column: &str) -> Vec<Vec<String>> {
    let head = format!("| {first_column} |");
    page.lines()
        .skip_while(|line| !line.starts_with(&head))
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().replace('`', "")).collect())
        .collect()
}

fn page() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/options.md")).unwrap()
}

#[test]
fn the_documented_defaults_are_the_codes() {
    // A builder shows its options as `name: value`, one a line.
    let shown = format!("{:#?}", builder());
    let mut code: BTreeMap<String, String> = BTreeMap::new();
    let mut field = String::new();
    for line in shown.lines() {
        match line.strip_prefix("        ").filter(|rest| !rest.starts_with([' ', '}'])) {
            Some(rest) => {
                let (name, value) = rest.split_once(": ").unwrap();
                field = name.to_owned();
                code.insert(field.clone(), value.to_owned());
            }
            None if line.starts_with("        ") => {
                let value = code.get_mut(&field).unwrap();
                value.push_str(line.trim());
            }
            None => {}
        }
    }
    let code: BTreeMap<String, String> =
        code.into_iter().map(|(name, value)| (name, value.trim_end_matches(',').to_owned())).collect();
    let documented: BTreeMap<String, String> = table(&page(), "option")
        .into_iter()
        .map(|row| {
            let (name, value) = (row[0].clone(), row[1].as_str());
            let value = match (name.as_str(), value) {
                ("consumer_group", name) => format!("{name:?}"),
                ("pace", "greedy") => "Greedy".to_owned(),
                ("policy", "count") => "Count".to_owned(),
                ("initial_position", "earliest") => "Earliest".to_owned(),
                ("checkpoint", "every 1000 or after 1s") => {
                    "Auto {events: Some(1000,),after: Some(1s,),}".to_owned()
                }
                ("on_failure", "retry for ever (backoff 100ms..30s)") => {
                    "Retry {first: 100ms,longest: 30s,}".to_owned()
                }
                ("changed_past", "refuse") => "Refuse".to_owned(),
                ("timing", "from the store") => "None".to_owned(),
                (_, value) => value.to_owned(),
            };
            (if name == "consumer_group" { "group".to_owned() } else { name }, value)
        })
        .collect();
    assert_eq!(documented, code);
}

#[test]
fn the_documented_timings_are_the_codes() {
    let seconds = |cell: &str| Duration::from_secs_f64(cell.trim_end_matches('s').parse().unwrap());
    let rows = table(&page(), "timing");
    assert_eq!(rows.len(), 2);
    for (row, (name, timing)) in
        rows.iter().zip([("Timing::FAST", Timing::FAST), ("Timing::FRUGAL", Timing::FRUGAL)])
    {
        assert_eq!(row[0], name);
        let code = [timing.cycle(), timing.ttl(), timing.call_deadline(), timing.margin()];
        assert_eq!(row[1..5].iter().map(|cell| seconds(cell)).collect::<Vec<_>>(), code);
    }
}

#[test]
fn a_batch_larger_than_the_default_prefetch_raises_it() {
    let built = |builder: Builder<NoHandler>| {
        let processor = builder.on_batch(async |_, _| Ok(())).build().expect("valid options");
        format!("{processor:?}")
    };
    assert!(built(builder().batch_size(1_000)).contains("prefetch_events: 1000,"));
    assert!(built(builder().batch_size(20)).contains("prefetch_events: 300,"));
    assert!(built(builder().batch_size(20).prefetch_events(40)).contains("prefetch_events: 40,"));
}

#[test]
fn impossible_options_cannot_be_built() {
    let refused = |builder: Builder<NoHandler>| builder.on_batch(async |_, _| Ok(())).build().unwrap_err();
    assert_eq!(refused(builder().batch_size(0)), ConfigError::Zero { option: "batch_size" });
    assert_eq!(refused(builder().prefetch_events(0)), ConfigError::Zero { option: "prefetch_events" });
    assert_eq!(refused(builder().prefetch_bytes(0)), ConfigError::Zero { option: "prefetch_bytes" });
    let zero = Duration::ZERO;
    for (option, refusal) in [
        ("max_wait", refused(builder().max_wait(zero))),
        ("drain_time", refused(builder().drain_time(zero))),
        ("cool_down", refused(builder().cool_down(zero))),
        ("discovery_interval", refused(builder().discovery_interval(zero))),
        ("checkpoint", refused(builder().checkpoint(Checkpoint::every(5).or_after(zero)))),
    ] {
        assert_eq!(refusal, ConfigError::ZeroTime { option });
    }
    let over = refused(builder().batch_size(50).prefetch_events(40));
    assert_eq!(over, ConfigError::BatchOverPrefetch { batch_size: 50, prefetch_events: 40 });
    assert_eq!(refused(builder().prefetch_events(40).batch_size(50)), over, "in whichever order");
    assert_eq!(refused(builder().instance_id("")), ConfigError::EmptyName { option: "instance_id" });
    assert_eq!(refused(builder().consumer_group("")), ConfigError::EmptyName { option: "consumer_group" });
    let (first, longest) = (secs(2), secs(1));
    let retry = refused(builder().on_failure(FailurePolicy::Retry { first, longest }));
    assert_eq!(retry, ConfigError::RetryPauses { first, longest });
    let no_event = builder().call_on_empty(true).on_event(async |_, _| Ok(())).build().unwrap_err();
    assert_eq!(no_event, ConfigError::EmptyCallOnEvent);
    let never = refused(builder().checkpoint(Checkpoint::Auto { events: None, after: None }));
    assert_eq!(never, ConfigError::NeverCheckpoints);
    assert!(matches!(Timing::new(ms(99), secs(5)), Err(TimingError::CycleTooShort(_))));
    assert!(matches!(Timing::new(secs(1), secs(4)), Err(TimingError::TtlTooShort { .. })));
    let _ = builder().on_batch(async |_, _| Ok(())).build().unwrap();
}
