//! How much of the terminal each part of the picture gets.

/// The width of a partition's columns, with a gap after them.
pub(super) const CELL_WIDTH: u16 = 40;

/// From this width on, moves and notes stand side by side.
const SIDE_BY_SIDE_WIDTH: u16 = 120;

/// What the parts are at least worth.
const MOVES_MIN: u16 = 3;
const NOTES_MIN: u16 = 2;

/// Rows of text for each part, without headings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Layout {
    /// Partitions stand in this many columns of `partition_rows` each.
    pub(super) partition_columns: u16,
    pub(super) partition_rows: u16,
    pub(super) worker_rows: u16,
    pub(super) move_rows: u16,
    pub(super) note_rows: u16,
    /// Notes stand beside the moves rather than below them.
    pub(super) side_by_side: bool,
}

impl Layout {
    /// Shares out a terminal among so many partitions and processors. A title, a line of keys and three headings are always there.
    pub(super) fn of(width: u16, height: u16, partitions: usize, workers: usize) -> Self {
        let side_by_side = width >= SIDE_BY_SIDE_WIDTH;
        let fixed = 5;
        let least_below = MOVES_MIN + if side_by_side { 0 } else { NOTES_MIN };
        let free = height.saturating_sub(fixed + least_below);
        let workers = u16::try_from(workers).unwrap_or(u16::MAX).max(1);
        // Most of it is for the partitions; a quarter is the processors' in any case.
        let worker_rows = workers.min((free / 4).max(1).max(free.saturating_sub(8)).min(free));
        let partition_columns = (width / CELL_WIDTH).max(1);
        let needed = partitions.div_ceil(usize::from(partition_columns)).max(1);
        let partition_rows = u16::try_from(needed).unwrap_or(u16::MAX).min(free.saturating_sub(worker_rows));
        let below = height.saturating_sub(fixed + worker_rows + partition_rows);
        let (move_rows, note_rows) = match side_by_side {
            true => (below, below),
            false => {
                let notes = NOTES_MIN.max(below / 3).min(below);
                (below - notes, notes)
            }
        };
        Self { partition_columns, partition_rows, worker_rows, move_rows, note_rows, side_by_side }
    }

    /// How many partitions can be seen.
    pub(super) fn partitions(&self) -> usize {
        usize::from(self.partition_columns) * usize::from(self.partition_rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_partitions_and_four_processors_fit_the_smallest_usual_terminal() {
        let layout = Layout::of(80, 24, 16, 4);
        assert_eq!((layout.partition_columns, layout.partition_rows), (2, 8));
        assert!(layout.partitions() >= 16 && layout.worker_rows == 4, "{layout:?}");
        assert!(layout.move_rows >= 3 && layout.note_rows >= 2, "{layout:?}");
    }

    #[test]
    fn nothing_is_given_twice_whatever_the_terminal() {
        for (width, height) in (1..=250).step_by(7).flat_map(|w| (1..=70).map(move |h| (w, h))) {
            for (partitions, workers) in [(1, 1), (16, 4), (16, 40), (1_024, 3)] {
                let layout = Layout::of(width, height, partitions, workers);
                let notes = if layout.side_by_side { 0 } else { layout.note_rows };
                let used = 5 + layout.partition_rows + layout.worker_rows + layout.move_rows + notes;
                assert!(used <= height.max(5), "{width}x{height}: {layout:?}");
            }
        }
    }
}
