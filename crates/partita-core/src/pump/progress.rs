//! How far a partition was handled, and when that should be checkpointed.

use crate::coordination::Target;
use crate::model::{Event, Position, StreamPosition, Tick};
use crate::options::Checkpoint;
use crate::store::Resume;

/// Where a pump starts.
#[derive(Debug)]
pub(crate) enum Start {
    /// Where somebody wanted it to: the initial position, or a seek.
    AskedFor(Position),
    /// Where the last owner was.
    Reached {
        /// The position to go on at.
        from: Position,
        /// The last event handled, if the position is the one after it.
        last: Option<StreamPosition>,
    },
}

impl Start {
    /// The position to start at.
    pub(crate) fn from(&self) -> &Position {
        match self {
            Self::AskedFor(from) | Self::Reached { from, .. } => from,
        }
    }
}

pub(super) struct Progress {
    policy: Checkpoint,
    /// Where a new reader starts.
    resume: Position,
    /// Whether that is a position that somebody asked for, rather than one that was reached.
    asked_for: bool,
    last: Option<StreamPosition>,
    /// The last event that a former owner handled, until there is one of our own.
    before: Option<StreamPosition>,
    /// How often the pump has sought.
    seeks: u64,
    /// Handled since the last request for a checkpoint.
    uncheckpointed: u64,
    /// When the first of those was handled.
    since: Tick,
}

impl Progress {
    pub(super) fn new(policy: Checkpoint, start: Start) -> Self {
        let (resume, asked_for, before) = match start {
            Start::AskedFor(from) => (from, true, None),
            Start::Reached { from, last } => (from, false, last),
        };
        Self { policy, resume, asked_for, last: None, before, seeks: 0, uncheckpointed: 0, since: Tick(0) }
    }

    pub(super) fn resume(&self) -> &Position {
        &self.resume
    }

    pub(super) fn is_asked_for(&self) -> bool {
        self.asked_for
    }

    pub(super) fn last(&self) -> Option<&StreamPosition> {
        self.last.as_ref()
    }

    /// The first event that a reader found. From here on the number says where to resume: another reader can then tell what is
    /// gone meanwhile, which "earliest", an offset or a time does not.
    pub(super) fn found(&mut self, first: &Event) {
        if !matches!(self.resume, Position::Sequence { .. }) {
            self.resume = Position::at_sequence(first.sequence_number());
            self.asked_for = false;
        }
    }

    /// The last event handled, by anybody, if reading goes on after it.
    pub(super) fn reached(&self) -> Option<&StreamPosition> {
        self.last.as_ref().or(self.before.as_ref())
    }

    /// These events were handled, or passed over for good.
    pub(super) fn handled(&mut self, now: Tick, events: &[Event]) {
        let Some(last) = events.last() else { return };
        if self.uncheckpointed == 0 {
            self.since = now;
        }
        self.uncheckpointed += events.len() as u64;
        self.resume = last.next_position();
        self.asked_for = false;
        self.last = Some(last.position());
    }

    /// Goes on from somewhere else, after so many seeks.
    pub(super) fn sought(&mut self, position: Position, seeks: u64) -> Target {
        self.seeks = seeks;
        self.resume = position.clone();
        self.asked_for = true;
        self.last = None;
        self.before = None;
        self.uncheckpointed = 0;
        Target { resume: Resume::At(position), seek: true, seeks }
    }

    /// When the next checkpoint is due by time, if one is.
    pub(super) fn due(&self) -> Option<Tick> {
        match self.policy {
            Checkpoint::Auto { after: Some(after), .. } if self.uncheckpointed > 0 => {
                Some(self.since + after)
            }
            _ => None,
        }
    }

    /// The checkpoint that is due now. Tell with [`requested`](Self::requested) if it was asked for.
    pub(super) fn wants(&self, now: Tick) -> Option<Target> {
        let Checkpoint::Auto { events, .. } = self.policy else { return None };
        let full = events.is_some_and(|events| self.uncheckpointed >= events.get());
        let late = self.due().is_some_and(|due| now >= due);
        if full || late { self.target() } else { None }
    }

    pub(super) fn requested(&mut self) {
        self.uncheckpointed = 0;
    }

    /// What the next owner must start after: with manual checkpoints that is the handler's business.
    pub(super) fn at_end(&self) -> Option<Target> {
        match self.policy {
            Checkpoint::Auto { .. } => self.target(),
            Checkpoint::Manual => None,
        }
    }

    fn target(&self) -> Option<Target> {
        let last = self.last.clone()?;
        Some(Target { resume: Resume::After(last), seek: false, seeks: self.seeks })
    }
}
