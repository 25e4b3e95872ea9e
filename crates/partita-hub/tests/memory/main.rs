//! What hostile clients cost: the memory of this process is measured, so its tests run one after the other.
#![cfg(target_os = "linux")]

#[path = "../listener/client.rs"]
#[allow(dead_code)] // It is the other suite's, too.
mod client;
mod floods;
mod messages;
#[path = "../listener/raw.rs"]
#[allow(dead_code)]
mod raw;
mod strangers;

use std::io::Write;
use std::time::Duration;

use partita_amqp::performative::DeliveryState;
use partita_hub::broker::Route;
use partita_hub::log::EncodedBatch;
use partita_hub::server::ServerOptions;
use partita_hub::service::auth::Rules;
use tokio::sync::{Mutex, MutexGuard};

use crate::client::{Hosted, text};

static ALONE: Mutex<()> = Mutex::const_new(());

/// The memory of this process, server and clients together, while no other test runs.
struct Memory {
    before: u64,
    _alone: MutexGuard<'static, ()>,
}

impl Memory {
    async fn alone() -> Self {
        let guard = ALONE.lock().await;
        Self { before: resident(), _alone: guard }
    }

    /// What there is by now does not count.
    fn forget(&mut self) {
        self.before = resident();
    }

    /// It no longer changes: whatever goes on by itself has come to its end.
    async fn settled(&self) {
        let (mut last, mut same) = (resident(), 0);
        while same < 5 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let now = resident();
            same = if now.abs_diff(last) < 64 << 10 { same + 1 } else { 0 };
            last = now;
        }
    }

    /// It is no more than so many bytes more than it was.
    fn has_grown_by_at_most(&self, bytes: u64, meanwhile: &str) {
        let grown = resident().saturating_sub(self.before);
        let line = format!("counted: {meanwhile}: {} kB\n", grown >> 10);
        // Not through the harness, which keeps what a test that passes says.
        let _ = std::io::stderr().write_all(line.as_bytes());
        assert!(grown <= bytes, "{meanwhile}: {grown} bytes");
    }
}

fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the memory");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

/// A server whose hub needs no token, with so many MB of events in partition 0.
async fn filled(megabytes: usize) -> Hosted {
    let hosted = Hosted::with(ServerOptions { auth: Rules::open(), ..ServerOptions::default() }).await;
    let hub = hosted.server.broker().hub("eh1").expect("there");
    let batch = EncodedBatch::of(&vec![text("x".repeat(10_000)); 100]).expect("valid");
    let fill = move || {
        for _ in 0..megabytes {
            hub.send_and_wait(Route::Partition(0), batch.clone()).expect("durable");
        }
    };
    tokio::task::spawn_blocking(fill).await.expect("done");
    hosted
}

/// Another client is served.
async fn still_served(hosted: &Hosted) {
    let mut client = hosted.client().await;
    let sender = client.sender("eh1").await;
    assert_eq!(client.send(sender, text("still here")).await, DeliveryState::Accepted);
}
