//! What a user sees of the run: lines of text, or a picture on a terminal.

use std::io::{self, IsTerminal};
use std::time::Duration;

use partita::InstanceId;

use super::Plan;
use super::board::Board;
use super::fleet::Left;
use super::lines::Lines;
use super::moves::Move;
use super::screen::Screen;
use super::script::Action;
use super::world::World;

/// Something that somebody wants at the keyboard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    /// Do this, to one processor if it is to one.
    Act(Action, Option<InstanceId>),
    /// The picture has to be drawn again.
    Draw,
    /// End the run early, with its result.
    End,
}

pub(crate) enum Show {
    Lines(Lines),
    Screen(Box<Screen>),
}

/// Whether there is a terminal to draw on and to listen to.
pub(crate) fn has_terminal() -> bool {
    let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    !dumb && io::stdout().is_terminal() && io::stdin().is_terminal()
}

/// Gives the terminal back, if it was taken.
pub(crate) fn restore() {
    super::screen::restore();
}

impl Show {
    pub(crate) fn is_screen(&self) -> bool {
        matches!(self, Self::Screen(_))
    }

    pub(crate) fn begin(&mut self, plan: &Plan, world: &World, port: u16) -> io::Result<()> {
        match self {
            Self::Lines(lines) => lines.header(plan, world),
            Self::Screen(screen) => screen.begin(plan, world, port),
        }
    }

    /// What somebody wants next. Never, where nobody can say so.
    pub(crate) async fn order(&mut self) -> Order {
        match self {
            Self::Lines(_) => std::future::pending().await,
            Self::Screen(screen) => screen.order().await,
        }
    }

    pub(crate) fn board(&mut self, board: Board) -> io::Result<()> {
        match self {
            Self::Lines(lines) => lines.board(&board),
            Self::Screen(screen) => screen.board(board),
        }
    }

    pub(crate) fn draw(&mut self) -> io::Result<()> {
        match self {
            Self::Lines(_) => Ok(()),
            Self::Screen(screen) => screen.draw(),
        }
    }

    pub(crate) fn moves(&mut self, moves: &[Move]) -> io::Result<()> {
        match self {
            Self::Lines(lines) => lines.moves(moves),
            // The board has them.
            Self::Screen(_) => Ok(()),
        }
    }

    pub(crate) fn did(&mut self, at: Duration, action: Action, text: &str) -> io::Result<()> {
        match self {
            Self::Lines(lines) => lines.did(at, action, text),
            Self::Screen(screen) => screen.note(at, text, false),
        }
    }

    pub(crate) fn left(&mut self, at: Duration, left: &Left) -> io::Result<()> {
        let Left { id, took, failure } = left;
        match failure {
            None => {
                self.note(at, &format!("{id} has left cleanly, {} ms after it was asked", took.as_millis()))
            }
            Some(why) => self.problem(at, &format!("{id} has not left cleanly: {why}")),
        }
    }

    /// An error that a processor met and dealt with.
    pub(crate) fn error(&mut self, at: Duration, error: &str) -> io::Result<()> {
        self.problem(at, &format!("{error} (dealt with)"))
    }

    pub(crate) fn note(&mut self, at: Duration, text: &str) -> io::Result<()> {
        match self {
            Self::Lines(lines) => lines.note(at, text),
            Self::Screen(screen) => screen.note(at, text, false),
        }
    }

    pub(crate) fn problem(&mut self, at: Duration, text: &str) -> io::Result<()> {
        match self {
            Self::Lines(lines) => lines.problem(at, text),
            Self::Screen(screen) => screen.note(at, text, true),
        }
    }

    /// The result comes next.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        if let Self::Screen(screen) = self {
            screen.end();
        }
        Ok(())
    }
}
