//! The Rust SDK's part: runs the role that the context names and prints JSON lines. Its event processor is a program of its own, in
//! `processor/`.

mod cases;
mod client;
mod rich;

use std::time::{Duration, Instant};

use client::{Context, producer, say};
use serde_json::json;

const CASE_TIME_MAX: Duration = Duration::from_secs(60);

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_env_filter(std::env::var("RUST_LOG").unwrap_or("warn".into())).init();
    let path = std::env::args().nth(1).expect("the path of a context");
    let text = std::fs::read_to_string(path).expect("a context");
    let context: Context = serde_json::from_str(&text).expect("a context in JSON");
    match context["role"].as_str() {
        Some("cases") => run_cases(&context).await,
        Some("feeder") => feeder(&context).await,
        Some("write") => rich::write(&context).await,
        Some("read") => rich::read(&context).await,
        role => panic!("no such role: {role:?}"),
    }
    std::process::exit(0);
}

async fn run_cases(context: &Context) {
    for name in context["cases"].as_array().expect("cases").iter().filter_map(|name| name.as_str()) {
        let started = Instant::now();
        let outcome = tokio::time::timeout(CASE_TIME_MAX, cases::run(name, context)).await;
        let (result, detail) = match outcome {
            Err(_) => ("fail", format!("no end within {CASE_TIME_MAX:?}")),
            Ok(Err(cases::Failure::NotOffered(why))) => ("n/a", why.to_owned()),
            Ok(Err(cases::Failure::Failed(why))) => ("fail", why),
            Ok(Ok(remark)) => ("pass", remark.to_owned()),
        };
        say(
            json!({"case": name, "result": result, "detail": detail, "ms": started.elapsed().as_millis() as u64}),
        );
    }
}

/// Sends numbered events to every partition until it is told to stop.
async fn feeder(context: &Context) {
    let producer = producer(context, "processors").await.expect("a producer");
    let stop = tokio::task::spawn_blocking(client::told);
    let partitions = context["hubs"]["processors"].as_u64().expect("partitions");
    let mut number = 0;
    while !stop.is_finished() {
        for partition in 0..partitions {
            let partition = partition.to_string();
            client::send_one(&producer, &number.to_string(), Some(&partition)).await.expect("a send");
            say(json!({"sent": [partition, number]}));
        }
        number += 1;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
