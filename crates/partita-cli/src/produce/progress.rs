//! How far it is, for somebody who watches.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use partita_sources::eventhubs::{BufferedProducer, EventHubsError};
use tokio::task::JoinHandle;

use super::input::Source;
use super::{Args, shows_progress};
use crate::output::{Out, Tone, grouped, has_colour, tame};

/// When nothing was sent for so long, although there is something to send, the hub is away.
const AWAY_AFTER: Duration = Duration::from_secs(2);
const REDRAW: Duration = Duration::from_millis(100);

/// What was read so far.
#[derive(Default, Debug)]
pub(crate) struct Read {
    pub(crate) bytes: AtomicU64,
    pub(crate) events: AtomicU64,
}

/// A bar on a terminal; everywhere a line when the hub has to be waited for, and why.
pub(crate) struct Progress(ProgressBar, JoinHandle<()>);

impl Progress {
    pub(crate) fn start(args: &Args, source: &Source, producer: &BufferedProducer, read: &Arc<Read>) -> Self {
        let events = args.count;
        let bytes = source.bytes().filter(|_| events.is_none());
        let bar = match events.or(bytes) {
            Some(whole) => ProgressBar::new(whole),
            None => ProgressBar::no_length(),
        };
        bar.set_draw_target(match shows_progress(args, source) {
            true => ProgressDrawTarget::stderr_with_hz(10),
            false => ProgressDrawTarget::hidden(),
        });
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
            // Said once, and again only after events went through.
            let mut is_told = false;
            loop {
                tokio::time::sleep(REDRAW).await;
                let sent: u64 = producer.outcomes().iter().map(|of| of.sent_events).sum();
                if sent != last_sent {
                    (last_sent, last_change) = (sent, tokio::time::Instant::now());
                    is_told = false;
                }
                if let Some(why) = producer.retrying().filter(|_| !is_told) {
                    is_told = true;
                    shown.suspend(|| tell(&why));
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
        Self(bar, task)
    }

    /// Takes the bar away: what is said at the end says more.
    pub(crate) fn end(self) {
        self.1.abort();
        self.0.finish_and_clear();
    }
}

/// Says what the hub said, also to whoever wants few words: something is wrong.
fn tell(why: &EventHubsError) {
    let mut err = Out::stderr();
    let text = err.paint(Tone::Faint, &tame(&format!("{why}; trying again for up to a minute")));
    // If stderr is closed, the end of the command tells.
    let _ = err.line(&text);
}
