//! A group as tables, for people.

use partita_core::model::{Incarnation, Timestamp};
use partita_core::store::{FailingPartition, MoveRecord, Resume};

use super::lag::{Behind, is_void};
use super::{Group, glance, is_live, process, since, state};
use crate::output::{counted, grouped};
use crate::table::{self, Column};

/// How many moves a status ends with.
const MOVES_SHOWN: usize = 5;
/// How many failing partitions are told of before the tables.
const FAILING_SHOWN: usize = 8;
/// What a status is made of besides rows: titles, headers, and lines between.
const FRAME_ROWS: usize = 7;
/// How many of each are shown at least, if there are so many.
const SHOWN_MIN: usize = 3;

const PARTITIONS: [Column; 7] = [
    ("PARTITION", true),
    ("OWNER", false),
    ("EPOCH", true),
    ("CHECKPOINT", true),
    ("AGE", true),
    ("LAG", true),
    ("BEHIND", true),
];
const INSTANCES: [Column; 7] = [
    ("INSTANCE", false),
    ("OWNS", true),
    ("STATE", false),
    ("HEARTBEAT", true),
    ("UP", true),
    ("PID", true),
    ("HOST", false),
];
const MOVES: [Column; 6] =
    [("WHEN", true), ("PARTITION", true), ("FROM", false), ("TO", false), ("EPOCH", true), ("REASON", false)];

/// All of a group, in at most so many rows, if that matters.
pub(super) fn status(group: &Group, rows_max: Option<usize>) -> Vec<String> {
    let instances = instances(group);
    let moves: Vec<_> = group.moves.iter().rev().take(MOVES_SHOWN).map(|one| move_row(group, one)).collect();
    let notes = notes(group);
    let (partitions_shown, instances_shown, moves_shown) = match rows_max {
        Some(rows_max) => {
            let rows = rows_max.saturating_sub(FRAME_ROWS + notes.len());
            fit(rows, group.partitions.len(), instances.len().max(1), moves.len())
        }
        None => (group.partitions.len(), instances.len(), moves.len()),
    };
    let mut lines = vec![title(group)];
    lines.extend(notes);
    lines.push(String::new());
    let rows = group.partitions.iter().take(partitions_shown).map(|id| partition_row(group, id)).collect();
    lines.extend(table::lines(&PARTITIONS, rows));
    if partitions_shown < group.partitions.len() {
        lines.push(format!("... and {} more partitions", group.partitions.len() - partitions_shown));
    }
    lines.push(String::new());
    if instances.is_empty() {
        lines.push("No instance is running.".to_owned());
    } else {
        let left_out = instances.len().saturating_sub(instances_shown);
        lines.extend(table::lines(&INSTANCES, instances.into_iter().take(instances_shown).collect()));
        if left_out > 0 {
            lines.push(format!("... and {left_out} more instances"));
        }
    }
    if moves_shown > 0 {
        lines.push(String::new());
        lines.extend(table::lines(&MOVES, moves.into_iter().take(moves_shown).collect()));
    }
    lines
}

/// How many partitions, instances and moves are shown in so many rows. Moves are the first to go, then instances; a row is kept
/// to say how many are not shown.
fn fit(rows: usize, partitions: usize, instances: usize, moves: usize) -> (usize, usize, usize) {
    let in_part = |shown: usize, all: usize| if shown < all { shown + 1 } else { shown };
    let moves = moves.min(rows.saturating_sub(partitions + instances).max(2));
    let rows = rows.saturating_sub(moves);
    let instances_shown = match partitions + instances > rows {
        true => instances.min(rows.saturating_sub(partitions).max(rows / 4).max(SHOWN_MIN + 1) - 1),
        false => instances,
    };
    let rows = rows.saturating_sub(in_part(instances_shown, instances));
    let partitions_shown = if partitions > rows { rows.saturating_sub(1).max(SHOWN_MIN) } else { partitions };
    (partitions_shown.min(partitions), instances_shown, moves)
}

fn title(group: &Group) -> String {
    let lags: Vec<u64> = group.partitions.iter().filter_map(|partition| group.lag(partition)).collect();
    let lag = if lags.is_empty() { "unknown".to_owned() } else { counted(lags.iter().sum(), "event") };
    let live = group.view.instances.iter().filter(|seen| is_live(seen)).count() as u64;
    format!(
        "{} of {} at {}: {}, {}, lag {lag}",
        group.scope.group,
        group.scope.hub,
        group.scope.namespace,
        counted(group.partitions.len() as u64, "partition"),
        counted(live, "instance"),
    )
}

fn notes(group: &Group) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(error) = &group.hub_error {
        notes.push(format!("No lag: {error}"));
    }
    if let Some(scope) = &group.renamed {
        notes.push(format!(
            "These records are of a version that left the port out: the next processor that starts moves them to {}.",
            scope.namespace
        ));
    }
    let failing: Vec<_> = group.partitions.iter().filter_map(|partition| group.failing(partition)).collect();
    notes.extend(failing.iter().take(FAILING_SHOWN).map(|one| failing_line(one, group.time)));
    if failing.len() > FAILING_SHOWN {
        notes.push(format!("... and {} more partitions are failing", failing.len() - FAILING_SHOWN));
    }
    if group.checkpoints.values().any(|record| is_void(record, group.stream.as_ref())) {
        notes.push("Checkpoints marked ! are of a hub that was reset: processors begin anew.".to_owned());
    }
    notes
}

fn failing_line(failing: &FailingPartition, now: Timestamp) -> String {
    let FailingPartition { partition, since: first, attempts, retry_at, sequence, error } = failing;
    let event = sequence.map(|sequence| format!("event {sequence}, ")).unwrap_or_default();
    let next = match since(now, *retry_at) {
        wait if wait.is_zero() => "retrying now".to_owned(),
        wait => format!("retrying in {}", glance(wait)),
    };
    let since = glance(since(*first, now));
    format!("Partition {partition} has been failing for {since}: {event}attempt {attempts}, {next}: {error}")
}

fn partition_row(group: &Group, partition: &partita_core::model::PartitionId) -> Vec<String> {
    let dash = || "-".to_owned();
    let record = group.ownership(partition);
    let owner = match record.map(|record| (&record.owner, &record.next)) {
        Some((Some(owner), Some(next))) => format!("{} > {}", group.name(owner), group.name(next)),
        Some((Some(owner), None)) => group.name(owner),
        Some((None, _)) | None => dash(),
    };
    let checkpoint = group.checkpoint(partition);
    let (position, age) = match checkpoint.and_then(|record| Some((record, record.resume.as_ref()?))) {
        None => (dash(), dash()),
        Some((record, resume)) => {
            let mark = if is_void(record, group.stream.as_ref()) { "!" } else { "" };
            let position = match resume {
                Resume::After(last) => grouped(u64::try_from(last.sequence.0).unwrap_or(0)),
                Resume::At(position) => position.to_string(),
            };
            (format!("{mark}{position}"), glance(since(record.time, group.time)))
        }
    };
    let behind = match group.ends.get(partition).map(|end| end.behind) {
        Some(Behind::Exactly(time)) => glance(time),
        Some(Behind::AtLeast(time)) => format!(">{}", glance(time)),
        Some(Behind::Unknown) | None => dash(),
    };
    vec![
        partition.to_string(),
        owner,
        record.map_or_else(dash, |record| record.epoch.to_string()),
        position,
        age,
        group.lag(partition).map_or_else(dash, grouped),
        behind,
    ]
}

/// The live, and the dead that still own something.
fn instances(group: &Group) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for seen in &group.view.instances {
        let record = &seen.record;
        let owned = group.owned(&record.incarnation);
        if is_live(seen) || owned > 0 {
            rows.push(vec![
                group.name(&record.incarnation),
                owned.to_string(),
                state(seen, owned).to_owned(),
                glance(seen.age),
                glance(since(record.started, group.time)),
                process(&record.host).1.map_or_else(|| "-".to_owned(), |id| id.to_string()),
                process(&record.host).0.to_owned(),
            ]);
        }
    }
    rows
}

fn move_row(group: &Group, record: &MoveRecord) -> Vec<String> {
    let name = |incarnation: &Option<Incarnation>| {
        incarnation.as_ref().map_or_else(|| "-".to_owned(), |incarnation| group.name(incarnation))
    };
    vec![
        format!("{} ago", glance(since(record.time, group.time))),
        record.partition.to_string(),
        name(&record.from),
        name(&record.to),
        record.epoch.to_string(),
        record.reason.to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_fits_and_partitions_get_most_of_it() {
        // 24 rows: a screen of 80x24 without its frame has 16.
        assert_eq!(fit(16, 16, 12, 5), (9, 3, 2));
        assert_eq!(fit(16, 4, 3, 5), (4, 3, 5));
        assert_eq!(fit(200, 16, 12, 5), (16, 12, 5));
        for rows in 10..80 {
            for partitions in 1..40 {
                for instances in 1..40 {
                    let (shown, members, moves) = fit(rows, partitions, instances, 5);
                    let more = usize::from(shown < partitions) + usize::from(members < instances);
                    let all = shown + members + moves + more;
                    assert!(
                        all <= rows,
                        "{rows} rows, {partitions} partitions, {instances} instances: {all}"
                    );
                    let room = all < rows;
                    assert!(!room || more == 0, "{rows} rows, {partitions} partitions, {instances}: {all}");
                }
            }
        }
    }
}
