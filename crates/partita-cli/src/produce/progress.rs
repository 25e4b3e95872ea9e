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

const REDRAW: Duration = Duration::from_millis(100);

/// A bar on a terminal, elsewhere nothing.
pub(crate) struct Progress(Option<(ProgressBar, JoinHandle<()>)>);

impl Progress {
    pub(crate) fn start(
        args: &Args,
        source: &Source,
        producer: &BufferedProducer,
        read_bytes: &Arc<AtomicU64>,
    ) -> Self {
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
        let (shown, producer, read_bytes) = (bar.clone(), producer.clone(), Arc::clone(read_bytes));
        let task = tokio::spawn(async move {
            let began = tokio::time::Instant::now();
            loop {
                tokio::time::sleep(REDRAW).await;
                let sent: u64 = producer.outcomes().iter().map(|of| of.sent_events).sum();
                let read = read_bytes.load(Ordering::Relaxed);
                shown.set_position(if events.is_some() { sent } else { read });
                let rate = sent as f64 / began.elapsed().as_secs_f64();
                shown.set_message(format!("{} events sent, {}/s", grouped(sent), grouped(rate as u64)));
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
