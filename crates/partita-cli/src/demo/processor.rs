//! One processor of the demo, as a process of its own: started by the demo, told on its input to leave, and gone when the demo is.

use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use partita::{Context, Event, Processor};
use tokio::sync::Notify;

use super::book::{Book, BookedStore};
use super::slots::instance;
use super::{clock, sensors, world};
use crate::Failure;

/// What a processor says when it has begun.
pub(crate) const READY: &str = "ready";

/// How a line with an error of the processor begins.
pub(crate) const PROBLEM: &str = "problem ";

/// What it is told to leave in good order.
pub(crate) const LEAVE: &str = "leave";

/// How a processor whose demo is gone ends.
const ORPHAN: i32 = 3;

/// A processor of the demo; the demo starts it.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Its number
    #[arg(long)]
    number: u32,
    /// Which run of the demo
    #[arg(long)]
    run: u32,
    /// Where the hub listens
    #[arg(long)]
    port: u16,
    /// Where the database and the books are
    #[arg(long)]
    data: PathBuf,
    /// The demo's process
    #[arg(long)]
    parent: u32,
}

/// Runs the processor until it is told to leave.
pub(crate) fn run(args: Args) -> Result<ExitCode, Failure> {
    end_with(args.parent);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| Failure::Run(format!("cannot start: {error}")))?;
    runtime.block_on(process(args)).map_err(Failure::Run)?;
    runtime.shutdown_background();
    Ok(ExitCode::SUCCESS)
}

async fn process(args: Args) -> Result<(), String> {
    let id = instance(args.number);
    let text = |error: &dyn std::error::Error| format!("{id}: {error}");
    let book = Book::create(&args.data, args.number, args.run).map_err(|error| text(&error))?;
    let store = BookedStore { inner: world::store(&args.data)?, book: book.clone() };
    let handler_book = book.clone();
    let processor = Processor::builder(world::source(args.port)?, store)
        .instance_id(id.clone())
        .hooks(book)
        .on_event(move |event: Event, cx: Context| {
            let book = handler_book.clone();
            async move {
                let begun = clock::now();
                sensors::handle(&event).await?;
                // An event that cannot be written down was not handled, and is tried again.
                book.handled(&event, &cx, begun)?;
                Ok(())
            }
        })
        .on_error(|error| say(&format!("{PROBLEM}{}", error.to_string().replace('\n', " "))))
        .build()
        .map_err(|error| text(&error))?;
    let leave = listen();
    let handle = processor.start().await.map_err(|error| text(&error))?;
    say(READY);
    leave.notified().await;
    handle.shutdown().await.map_err(|error| text(&error))
}

/// Tells the demo; if nobody listens any more, the input ends, too.
fn say(line: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Waits for the word to leave. An input that ends without it is a demo that is gone, and its hub with it.
fn listen() -> Arc<Notify> {
    let leave = Arc::new(Notify::new());
    let told = Arc::clone(&leave);
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            match line {
                Ok(line) if line == LEAVE => told.notify_one(),
                Ok(_) => {}
                Err(_) => break,
            }
        }
        std::process::exit(ORPHAN);
    });
    leave
}

/// Lets the system kill this process when the demo ends, even if it is frozen by then and hears nothing.
#[cfg(target_os = "linux")]
fn end_with(parent: u32) {
    use rustix::process::{Signal, getppid, set_parent_process_death_signal};
    // Where this fails, the end of the input has to do.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    if getppid().is_none_or(|now| now.as_raw_nonzero().get().cast_unsigned() != parent) {
        std::process::exit(ORPHAN);
    }
}

#[cfg(not(target_os = "linux"))]
fn end_with(_parent: u32) {}
