//! How far it is, for somebody who watches.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use partita_sources::eventhubs::BufferedProducer;
use tokio::task::JoinHandle;

use super::input::Source;
use super::{Args, shows_progress};
use crate::output::{grouped, has_colour};

/// When nothing was sent for so long, although there is something to send, the hub is away.
const AWAY_AFTER: Duration = Duration::from_secs(2);
const REDRAW: Duration = Duration::from_millis(100);

/// What was read so far.
#[derive(Default, Debug)]
pub(crate) struct Read {
    pub(crate) bytes: AtomicU64,
    pub(crate) events: AtomicU64,
}

/// A bar on a terminal, elsewhere nothing.
pub(crate) struct Progress(Option<(ProgressBar, JoinHandle<()>)>);

impl Progress {
    pub(crate) fn start(args: &Args, source: &Source, producer: &BufferedProducer, read: &Arc<Read>) -> Self {
        if !shows_progress(args, source) {
            return Self(None);
        }
        let events = args.count;
        let bytes = source.bytes().filter(|_| events.is_none());
        let bar = match events.or(bytes) {
            Some(whole) => ProgressBar::new(whole),
            None => ProgressBar::no_length(),
        };
        bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
        let shade = if has_colour(true) { ".green/dim" } else { "" };
        let template = match bar.length() {
            Some(_) => format!("{{bar:24{shade}}} {{percent:>3}}%  {{msg}}  {{eta}} left"),
            None => "{spinner} {msg}  {elapsed}".to_owned(),
        };
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style.progress_chars("━━─"));
        }
        let (shown, producer, read) = (bar.clone(), producer.clone(), Arc::clone(read));
        let task = tokio::spawn(async move {
            let began = tokio::time::Instant::now();
            let (mut last_sent, mut last_change) = (0, began);
            loop {
                tokio::time::sleep(REDRAW).await;
                let sent: u64 = producer.outcomes().iter().map(|of| of.sent_events).sum();
                if sent != last_sent {
                    (last_sent, last_change) = (sent, tokio::time::Instant::now());
                }
                shown.set_position(match events {
                    Some(_) => sent,
                    // What was read and is not sent yet does not count.
                    None => {
                        let bytes = read.bytes.load(Ordering::Relaxed) as f64;
                        (bytes * sent as f64 / read.events.load(Ordering::Relaxed).max(1) as f64) as u64
                    }
                });
                let rate = sent as f64 / began.elapsed().as_secs_f64();
                let waits = producer.buffered().0 > 0 && last_change.elapsed() >= AWAY_AFTER;
                let pace = match waits {
                    true => "waiting for the hub".to_owned(),
                    false => format!("{}/s", grouped(rate as u64)),
                };
                shown.set_message(format!("{} events sent, {pace}", grouped(sent)));
                shown.tick();
            }
        });
        Self(Some((bar, task)))
    }

    /// Takes the bar away: what is said at the end says more.
    pub(crate) fn end(self) {
        if let Some((bar, task)) = self.0 {
            task.abort();
            bar.finish_and_clear();
        }
    }
}
