//! The demo as a picture: partitions, processors and moves as they are, and keys to do something to a processor.

mod layout;
mod paint;

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossterm::event::{Event, EventStream, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use futures_util::StreamExt;
use partita::InstanceId;
use ratatui::DefaultTerminal;

use super::Plan;
use super::board::Board;
use super::script::Action;
use super::show::Order;
use super::world::{HUB, World};

/// How many notes are kept.
const NOTES_MAX: usize = 64;

/// Whether the terminal is in the picture's hands; a process has one.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Gives the terminal back, if it was taken.
pub(crate) fn restore() {
    if TAKEN.swap(false, Ordering::AcqRel) {
        ratatui::restore();
    }
}

/// Something that happened.
#[derive(Clone, Debug)]
struct Note {
    at: Duration,
    text: String,
    bad: bool,
}

/// What is drawn.
#[derive(Debug, Default)]
struct Picture {
    title: String,
    /// Where things are, in more and in fewer words.
    places: Vec<String>,
    board: Board,
    /// The newest first.
    notes: VecDeque<Note>,
    /// The processor that keys act on.
    chosen: Option<InstanceId>,
}

/// The terminal, with a picture on it.
pub(crate) struct Screen {
    terminal: Option<DefaultTerminal>,
    keys: EventStream,
    picture: Picture,
}

impl Screen {
    /// Nothing is drawn yet.
    pub(crate) fn new() -> Self {
        Self { terminal: None, keys: EventStream::new(), picture: Picture::default() }
    }

    /// Takes the terminal.
    pub(crate) fn begin(&mut self, plan: &Plan, world: &World, port: u16) -> io::Result<()> {
        self.picture.title = "Partita demo".to_owned();
        self.picture.board.length = plan.length;
        let data = match world.is_kept() {
            true => format!("data in {}", world.data.display()),
            false => "data in memory".to_owned(),
        };
        self.picture.places =
            vec![format!("{data}, hub {HUB} on localhost:{port}"), format!("hub on localhost:{port}")];
        let steps: Vec<String> = plan.script.steps().iter().map(ToString::to_string).collect();
        self.picture.add(Duration::ZERO, format!("the script: {}", steps.join(" ")), false);
        if world.former.runs > 0 {
            self.picture.add(Duration::ZERO, format!("resuming: {} events behind", world.behind), false);
        }
        self.terminal = Some(ratatui::try_init()?);
        TAKEN.store(true, Ordering::Release);
        self.draw()
    }

    pub(crate) fn board(&mut self, board: Board) -> io::Result<()> {
        self.picture.board = board;
        self.picture.choose(0);
        self.draw()
    }

    pub(crate) fn note(&mut self, at: Duration, text: &str, bad: bool) -> io::Result<()> {
        self.picture.add(at, text.to_owned(), bad);
        self.draw()
    }

    pub(crate) fn draw(&mut self) -> io::Result<()> {
        if let Some(terminal) = &mut self.terminal {
            terminal.draw(|frame| paint::paint(&self.picture, frame))?;
        }
        Ok(())
    }

    /// What somebody wants next.
    pub(crate) async fn order(&mut self) -> Order {
        loop {
            match self.keys.next().await {
                Some(Ok(event)) => {
                    if let Some(order) = self.picture.order(&event) {
                        return order;
                    }
                }
                // A terminal that is gone says nothing more; a signal tells of it.
                Some(Err(_)) | None => std::future::pending().await,
            }
        }
    }

    /// Gives the terminal back.
    pub(crate) fn end(&mut self) {
        self.terminal = None;
        restore();
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.end();
    }
}

impl Picture {
    fn add(&mut self, at: Duration, text: String, bad: bool) {
        self.notes.truncate(NOTES_MAX - 1);
        self.notes.push_front(Note { at, text, bad });
    }

    /// What a key or a change of the terminal asks for.
    fn order(&mut self, event: &Event) -> Option<Order> {
        let Event::Key(KeyEvent { code, modifiers, kind, .. }) = event else {
            return matches!(event, Event::Resize(..)).then_some(Order::Draw);
        };
        if *kind == KeyEventKind::Release {
            return None;
        }
        let chosen = || self.chosen.clone();
        match code {
            KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => Some(Order::End),
            KeyCode::Char('q') | KeyCode::Esc => Some(Order::End),
            KeyCode::Char('a') => Some(Order::Act(Action::Add, None)),
            KeyCode::Char('k') => Some(Order::Act(Action::Kill, chosen())),
            KeyCode::Char('r') => Some(Order::Act(Action::Remove, chosen())),
            KeyCode::Char('f') => {
                let frozen =
                    self.board.workers.iter().any(|w| Some(&w.id) == self.chosen.as_ref() && w.frozen);
                Some(Order::Act(if frozen { Action::Thaw } else { Action::Freeze }, chosen()))
            }
            KeyCode::Up => self.choose(-1),
            KeyCode::Down => self.choose(1),
            _ => None,
        }
    }

    /// Moves the choice among those that run; the first one, if what was chosen is gone.
    fn choose(&mut self, by: isize) -> Option<Order> {
        let running: Vec<&InstanceId> =
            self.board.workers.iter().filter(|worker| !worker.crashed).map(|worker| &worker.id).collect();
        let now = running.iter().position(|id| Some(*id) == self.chosen.as_ref());
        let last = running.len().checked_sub(1)?;
        let at = now.map_or(0, |now| now.saturating_add_signed(by).min(last));
        self.chosen = Some(running[at].clone());
        Some(Order::Draw)
    }
}

#[cfg(test)]
mod tests {
    use super::super::board::Worker;
    use super::*;

    fn worker(id: &str) -> Worker {
        Worker {
            id: InstanceId::new(id),
            partitions: 1,
            events_per_second: 0,
            lag: 0,
            crashed: id == "dead",
            frozen: id == "cold",
        }
    }

    fn picture() -> Picture {
        let workers = ["dead", "a", "b", "cold"].map(worker).to_vec();
        let mut picture = Picture { board: Board { workers, ..Board::default() }, ..Picture::default() };
        picture.choose(0);
        picture
    }

    fn key(code: KeyCode) -> Event {
        Event::Key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn keys_act_on_the_processor_that_is_chosen_and_the_dead_cannot_be() {
        let mut picture = picture();
        let id = |id| Some(InstanceId::new(id));
        assert_eq!(picture.order(&key(KeyCode::Char('k'))), Some(Order::Act(Action::Kill, id("a"))));
        picture.order(&key(KeyCode::Down));
        assert_eq!(picture.order(&key(KeyCode::Char('r'))), Some(Order::Act(Action::Remove, id("b"))));
        picture.order(&key(KeyCode::Down));
        assert_eq!(picture.order(&key(KeyCode::Char('f'))), Some(Order::Act(Action::Thaw, id("cold"))));
        picture.order(&key(KeyCode::Down));
        picture.order(&key(KeyCode::Up));
        assert_eq!(picture.order(&key(KeyCode::Char('f'))), Some(Order::Act(Action::Freeze, id("b"))));
        assert_eq!(picture.order(&key(KeyCode::Char('a'))), Some(Order::Act(Action::Add, None)));
    }

    #[test]
    fn q_and_ctrl_c_end_the_run_and_a_resize_draws() {
        let mut picture = picture();
        let ctrl_c = Event::Key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL));
        assert_eq!(picture.order(&ctrl_c), Some(Order::End));
        assert_eq!(picture.order(&key(KeyCode::Char('q'))), Some(Order::End));
        assert_eq!(picture.order(&Event::Resize(80, 24)), Some(Order::Draw));
        assert_eq!(picture.order(&key(KeyCode::Char('x'))), None);
    }

    #[test]
    fn who_is_gone_is_not_chosen_any_more() {
        let mut picture = picture();
        picture.order(&key(KeyCode::Down));
        picture.board.workers.retain(|worker| worker.id.as_str() != "b");
        picture.choose(0);
        assert_eq!(picture.chosen, Some(InstanceId::new("a")));
        picture.board.workers.clear();
        assert_eq!(picture.choose(1), None);
    }
}
