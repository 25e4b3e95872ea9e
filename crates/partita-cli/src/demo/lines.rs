//! The run as lines of text, for a terminal or a pipe.

use std::io;
use std::time::Duration;

use partita::InstanceId;

use super::Plan;
use super::board::{Board, Worker};
use super::moves::Move;
use super::script::Action;
use super::world::World;
use crate::output::{Out, Tone, counted, grouped};
use crate::units::Time;

/// More owners than fit in a line are summed up.
const OWNERS_WIDTH_MAX: usize = 52;

/// A line this long names no more partitions, and counts the rest.
const MOVE_WIDTH_MAX: usize = 60;

/// Writes lines.
pub(crate) struct Lines(pub(crate) Out);

impl Lines {
    pub(crate) fn header(&mut self, plan: &Plan, world: &World) -> io::Result<()> {
        let title = format!(
            "Partita demo: {} of home-sensor events, {} a second in {}.",
            Time(plan.length),
            grouped(u64::from(plan.rate)),
            counted(world.partitions() as u64, "partition"),
        );
        self.0.line(&self.0.paint(Tone::Strong, &title))?;
        let first = world.former.started + 1;
        self.0.line(&match plan.processors {
            1 => format!("One processor, home-{first}, a process of its own, handles them."),
            n => {
                format!("{n} processors, home-{first} to home-{}, each a process, share them.", first + n - 1)
            }
        })?;
        if world.is_kept() {
            self.0.line(&format!("Events and checkpoints are in {}", world.data.display()))?;
            self.0.line("on disk: another start resumes there. Remove the directory to start over.")?;
        } else {
            self.0.line("Events are in memory, checkpoints in a temporary file: nothing is left of them.")?;
        }
        if world.former.runs > 0 {
            let text = format!("resuming: {} behind", counted(world.behind, "event"));
            self.0.line(&self.0.paint(Tone::Act, &text))?;
        }
        if world.former.crashed_last {
            self.0.line("The last run was killed: its processors count as dead after their ttl.")?;
        }
        let steps: Vec<String> = plan
            .script
            .steps()
            .iter()
            .map(|step| {
                let what = match step.action {
                    Action::Add => "one joins",
                    Action::Kill => "one is killed",
                    Action::Remove => "one leaves",
                    Action::Freeze => "one is frozen",
                    Action::Thaw => "it goes on",
                };
                format!("at {} {what}", Time(step.at))
            })
            .collect();
        self.0.line(&format!("{}.", capitalised(&steps.join(", "))))?;
        self.0.line("Lag: events waiting to be handled. Ctrl-C ends the run early, with its result.")?;
        self.0.line("")?;
        let heading = format!("{:>6}  {:>9}  {:>8}  partitions owned", "time", "events/s", "lag");
        self.0.line(&self.0.paint(Tone::Strong, &heading))
    }

    pub(crate) fn board(&mut self, board: &Board) -> io::Result<()> {
        self.0.line(&format!(
            "{}  {:>9}  {:>8}  {}",
            stamp(board.at),
            grouped(board.events_per_second()),
            grouped(board.lag()),
            owners(&board.workers, board.free())
        ))
    }

    /// Moves that happened since the last look, those between the same two for the same reason in one line.
    pub(crate) fn moves(&mut self, moves: &[Move]) -> io::Result<()> {
        for (at, text) in bursts(moves) {
            let text = self.0.paint(Tone::Faint, &text);
            self.0.line(&format!("{}  {text}", stamp(at)))?;
        }
        Ok(())
    }

    pub(crate) fn did(&mut self, at: Duration, action: Action, text: &str) -> io::Result<()> {
        let tone = if matches!(action, Action::Kill | Action::Freeze) { Tone::Bad } else { Tone::Act };
        let word = self.0.paint(tone, &action.to_string().to_uppercase());
        self.0.line(&format!("{}  {word} {text}", stamp(at)))
    }

    pub(crate) fn note(&mut self, at: Duration, text: &str) -> io::Result<()> {
        self.0.line(&format!("{}  {text}", stamp(at)))
    }

    pub(crate) fn problem(&mut self, at: Duration, text: &str) -> io::Result<()> {
        let text = self.0.paint(Tone::Bad, text);
        self.note(at, &text)
    }
}

fn stamp(at: Duration) -> String {
    format!("{:>5.1}s", at.as_secs_f64())
}

fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().collect::<String>() + chars.as_str()).unwrap_or_default()
}

fn owners(owners: &[Worker], free: usize) -> String {
    let mut parts: Vec<String> = owners
        .iter()
        .map(|owner| {
            let state = match (owner.crashed, owner.frozen) {
                (true, _) => "(dead)",
                (_, true) => "(frozen)",
                _ => "",
            };
            format!("{}:{}{state}", owner.id, owner.partitions)
        })
        .collect();
    let free = (free > 0).then(|| format!("free:{free}"));
    parts.extend(free.clone());
    let text = parts.join(" ");
    if text.len() <= OWNERS_WIDTH_MAX {
        return text;
    }
    let running = || owners.iter().filter(|owner| !owner.crashed).map(|owner| owner.partitions);
    let (least, most) = (running().min().unwrap_or(0), running().max().unwrap_or(0));
    let dead: usize = owners.iter().filter(|owner| owner.crashed).map(|owner| owner.partitions).sum();
    let mut text = format!("{} processors with {least} to {most} each", running().count());
    if dead > 0 {
        text += &format!(", dead:{dead}");
    }
    if let Some(free) = free {
        text += &format!(", {free}");
    }
    text
}

/// One text per group of moves that belong together, with the time of the first, in order of appearance.
fn bursts(moves: &[Move]) -> Vec<(Duration, String)> {
    let mut groups: Vec<Vec<&Move>> = Vec::new();
    for moved in moves {
        let alike = |group: &&mut Vec<&Move>| {
            let first = group[0];
            (first.reason, &first.from, &first.to) == (moved.reason, &moved.from, &moved.to)
        };
        match groups.iter_mut().find(alike) {
            Some(group) => group.push(moved),
            None => groups.push(vec![moved]),
        }
    }
    groups.iter().map(|group| (group[0].at, describe(group))).collect()
}

fn describe(group: &[&Move]) -> String {
    let low = group.iter().map(|m| m.epoch).min().unwrap_or_default();
    let high = group.iter().map(|m| m.epoch).max().unwrap_or_default();
    let epochs = if low == high { format!("epoch {low}") } else { format!("epochs {low} to {high}") };
    let (from, to, reason) = (name(&group[0].from), name(&group[0].to), group[0].reason);
    let noun = if group.len() == 1 { "partition" } else { "partitions" };
    let mut text = format!("{from} -> {to}, {reason}, {epochs}: {noun}");
    let mut numbers: Vec<usize> = group.iter().map(|m| m.partition).collect();
    numbers.sort_unstable();
    let mut named = 0;
    for run in numbers.chunk_by(|a, b| a + 1 == *b) {
        if named > 0 && text.len() >= MOVE_WIDTH_MAX {
            return format!("{text} +{}", numbers.len() - named);
        }
        match run {
            [first, _, .., last] => text += &format!(" {first}-{last}"),
            few => few.iter().for_each(|number| text += &format!(" {number}")),
        }
        named += run.len();
    }
    text
}

fn name(id: &Option<InstanceId>) -> &str {
    id.as_ref().map_or("nobody", InstanceId::as_str)
}

#[cfg(test)]
mod tests {
    use partita::store::MoveReason;

    use super::super::testing::moved;
    use super::*;

    fn handoff(partition: usize, epoch: u64, to: &str) -> Move {
        Move {
            from: Some(InstanceId::new("home-1")),
            to: Some(InstanceId::new(to)),
            ..moved(partition, epoch, MoveReason::HandedOff)
        }
    }

    #[test]
    fn moves_between_the_same_two_are_one_line() {
        let moves = [handoff(5, 2, "home-4"), handoff(9, 2, "home-3"), handoff(0, 4, "home-4")];
        let texts: Vec<String> = bursts(&moves).into_iter().map(|(_, text)| text).collect();
        assert_eq!(
            texts,
            [
                "home-1 -> home-4, hand-off, epochs 2 to 4: partitions 0 5",
                "home-1 -> home-3, hand-off, epoch 2: partition 9"
            ]
        );
    }

    #[test]
    fn a_large_burst_still_fits_in_a_line() {
        let text = |partitions: &mut dyn Iterator<Item = usize>| {
            let moves: Vec<Move> = partitions.map(|partition| handoff(partition, 2, "home-4")).collect();
            bursts(&moves).remove(0).1
        };
        assert_eq!(text(&mut (0..100)), "home-1 -> home-4, hand-off, epoch 2: partitions 0-99");
        assert_eq!(
            text(&mut (0..1_000).step_by(2)),
            "home-1 -> home-4, hand-off, epoch 2: partitions 0 2 4 6 8 10 +494"
        );
    }

    #[test]
    fn owners_fit_in_their_column() {
        let owner = |n: usize, crashed| Worker {
            id: InstanceId::new(format!("home-{n}")),
            partitions: n,
            events_per_second: 0,
            lag: 0,
            crashed,
            frozen: false,
        };
        assert_eq!(owners(&[owner(1, true), owner(2, false)], 3), "home-1:1(dead) home-2:2 free:3");
        let many: Vec<Worker> = (1..=20).map(|n| owner(n, n == 20)).collect();
        assert_eq!(owners(&many, 0), "19 processors with 1 to 19 each, dead:20");
    }
}
