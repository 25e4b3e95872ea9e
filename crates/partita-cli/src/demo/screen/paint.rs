//! Draws the picture.

use std::time::Duration;

use partita::InstanceId;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout as Split, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::super::board::{Board, Row, Worker};
use super::super::moves::Move;
use super::layout::{CELL_WIDTH, Layout};
use super::{Note, Picture};
use crate::output::{grouped, has_colour};
use crate::units::Time;

/// A lag from which a partition stands out: more than a second of an even share.
const LAG_HIGH: u64 = 5_000;

const KEYS: [(&str, &str); 6] =
    [("a", "add"), ("r", "remove"), ("k", "kill"), ("f", "freeze or thaw"), ("↑↓", "choose"), ("q", "end")];

fn colour(style: Style, colour: Color) -> Style {
    if has_colour(true) { style.fg(colour) } else { style }
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn faint() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

fn bad() -> Style {
    colour(bold(), Color::Red)
}

pub(super) fn paint(picture: &Picture, frame: &mut Frame<'_>) {
    let Picture { board, .. } = picture;
    let area = frame.area();
    let layout = Layout::of(area.width, area.height, board.rows.len(), board.workers.len());
    let notes_below = if layout.side_by_side { 0 } else { layout.note_rows };
    let [title, partitions, workers, below, notes, keys] = Split::vertical([
        Constraint::Length(1),
        Constraint::Length(1 + layout.partition_rows),
        Constraint::Length(1 + layout.worker_rows),
        Constraint::Min(0),
        Constraint::Length(notes_below),
        Constraint::Length(1),
    ])
    .areas(area);
    let hidden = board.rows.len().saturating_sub(layout.partitions());
    frame.render_widget(Paragraph::new(headline(picture, area.width, hidden)), title);
    paint_partitions(board, layout, frame, partitions);
    paint_workers(picture, frame, workers);
    if layout.side_by_side {
        let [left, right] = Split::horizontal([Constraint::Length(82), Constraint::Min(0)]).areas(below);
        paint_moves(board, frame, left);
        let mut lines = vec![Line::styled("What happened", bold())];
        lines.extend(picture.notes.iter().map(note));
        frame.render_widget(Paragraph::new(lines), right);
    } else {
        paint_moves(board, frame, below);
        let lines: Vec<Line<'_>> = picture.notes.iter().take(notes.height.into()).map(note).collect();
        frame.render_widget(Paragraph::new(lines), notes);
    }
    let keys_line: Vec<Span<'_>> = KEYS
        .iter()
        .flat_map(|(key, what)| [Span::styled(*key, bold()), Span::raw(format!(" {what}   "))])
        .collect();
    frame.render_widget(Paragraph::new(Line::from(keys_line)), keys);
}

fn headline(picture: &Picture, width: u16, hidden: usize) -> Line<'static> {
    let board = &picture.board;
    let time = if board.at > board.length { board.length } else { board.at };
    let facts = format!(
        "  {} of {}  {} events/s  lag {}",
        Time(Duration::from_secs(time.as_secs())),
        Time(board.length),
        grouped(board.events_per_second()),
        grouped(board.lag()),
    );
    let mut spans = vec![Span::styled(picture.title.clone(), colour(bold(), Color::Cyan)), Span::raw(facts)];
    if hidden > 0 {
        spans.push(Span::styled(format!("  +{hidden} not shown"), bad()));
        return Line::from(spans);
    }
    let used: usize = spans.iter().map(|span| span.content.chars().count()).sum();
    for place in &picture.places {
        if used + place.len() + 2 <= usize::from(width) {
            spans.push(Span::styled(format!("  {place}"), faint()));
            break;
        }
    }
    Line::from(spans)
}

fn paint_partitions(board: &Board, layout: Layout, frame: &mut Frame<'_>, area: Rect) {
    let rows = usize::from(layout.partition_rows);
    let columns = usize::from(layout.partition_columns).min(board.rows.len().div_ceil(rows.max(1)).max(1));
    for (at, rows) in board.rows.chunks(rows.max(1)).take(columns).enumerate() {
        let x = area.x + at as u16 * CELL_WIDTH;
        let column = Rect { x, width: CELL_WIDTH.min(area.right().saturating_sub(x)), ..area };
        let heading =
            format!("{:>4} {:<9}{:>6}{:>7}{:>7}{:>5}", "part", "owner", "epoch", "ev/s", "lag", "ckpt");
        let mut lines = vec![Line::styled(heading, bold())];
        lines.extend(rows.iter().map(partition));
        frame.render_widget(Paragraph::new(lines), column);
    }
}

fn partition(row: &Row) -> Line<'static> {
    let owner = match &row.owner {
        Some(id) => Span::raw(format!("{:<9}", cut(id.as_str(), 9))),
        None => Span::styled(format!("{:<9}", "nobody"), bad()),
    };
    let lag = format!("{:>7}", grouped(row.lag));
    let lag = if row.lag >= LAG_HIGH {
        Span::styled(lag, colour(Style::new(), Color::Yellow))
    } else {
        Span::raw(lag)
    };
    Line::from(vec![
        Span::raw(format!("{:>4} ", row.partition)),
        owner,
        Span::raw(format!("{:>6}", row.epoch.map_or("-".into(), |epoch| epoch.to_string()))),
        Span::raw(format!("{:>7}", grouped(row.events_per_second))),
        lag,
        Span::raw(format!("{:>5}", row.checkpoint_age.map_or("-".into(), age))),
    ])
}

fn age(age: Duration) -> String {
    match age.as_secs_f64() {
        seconds if seconds < 9.95 => format!("{seconds:.1}s"),
        seconds if seconds < 600.0 => format!("{seconds:.0}s"),
        seconds if seconds < 36_000.0 => format!("{:.0}m", seconds / 60.0),
        seconds => format!("{:.0}h", seconds / 3_600.0),
    }
}

fn paint_workers(picture: &Picture, frame: &mut Frame<'_>, area: Rect) {
    let board = &picture.board;
    let heading =
        format!("  {:<10}{:>10}  {:<18}{:>8}{:>9}  state", "processor", "partitions", "", "ev/s", "lag");
    let mut lines = vec![Line::styled(heading, bold())];
    let room = usize::from(area.height.saturating_sub(1));
    let shown = if board.workers.len() > room { room.saturating_sub(1).max(1) } else { room };
    // The one that is chosen stays in sight.
    let chosen = board.workers.iter().position(|worker| Some(&worker.id) == picture.chosen.as_ref());
    let first = chosen.map_or(0, |at| (at + 1).saturating_sub(shown.max(1)));
    lines.extend(
        board
            .workers
            .iter()
            .skip(first)
            .take(shown)
            .map(|worker| processor(worker, board.rows.len(), picture.chosen.as_ref())),
    );
    if board.workers.len() > room && room > 1 {
        lines.push(Line::styled(format!("  and {} more", board.workers.len() - shown), faint()));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

fn processor(worker: &Worker, partitions: usize, chosen: Option<&InstanceId>) -> Line<'static> {
    let is_chosen = chosen == Some(&worker.id);
    let bar_width = 16;
    let filled = (worker.partitions * bar_width).div_ceil(partitions.max(1)).min(bar_width);
    let (state, style) = match (worker.crashed, worker.frozen) {
        (true, _) => ("dead", bad()),
        (_, true) => ("frozen", colour(bold(), Color::Blue)),
        _ => ("runs", colour(Style::new(), Color::Green)),
    };
    let text = format!(
        "{} {:<10}{:>10}  {:<18}{:>8}{:>9}  ",
        if is_chosen { ">" } else { " " },
        cut(worker.id.as_str(), 10),
        worker.partitions,
        "█".repeat(filled),
        grouped(worker.events_per_second),
        grouped(worker.lag),
    );
    let line = if is_chosen { Span::styled(text, bold()) } else { Span::raw(text) };
    Line::from(vec![line, Span::styled(state, style)])
}

fn paint_moves(board: &Board, frame: &mut Frame<'_>, area: Rect) {
    let heading = format!(
        "{:>7} {:>4}  {:<9}   {:<9}  {:<17}{:>10}{:>7}",
        "moved", "part", "from", "to", "why", "gap", "epoch"
    );
    let mut lines = vec![Line::styled(heading, bold())];
    lines.extend(board.moves.iter().take(usize::from(area.height)).map(moved));
    frame.render_widget(Paragraph::new(lines), area);
}

fn moved((moved, gap): &(Move, Option<Duration>)) -> Line<'static> {
    let name = |id: &Option<InstanceId>| cut(id.as_ref().map_or("nobody", InstanceId::as_str), 9);
    let gap = gap.map_or("-".into(), |gap| match gap.as_secs_f64() {
        seconds if seconds >= 1.0 => format!("{seconds:.2} s"),
        seconds => format!("{:.1} ms", seconds * 1_000.0),
    });
    Line::raw(format!(
        "{:>6.1}s {:>4}  {:<9} > {:<9}  {:<17}{gap:>10}{:>7}",
        moved.at.as_secs_f64(),
        moved.partition,
        name(&moved.from),
        name(&moved.to),
        moved.reason.as_str(),
        moved.epoch.to_string(),
    ))
}

fn note(note: &Note) -> Line<'static> {
    let style = if note.bad { bad() } else { colour(Style::new(), Color::Yellow) };
    Line::from(vec![
        Span::raw(format!("{:>6.1}s ", note.at.as_secs_f64())),
        Span::styled(note.text.clone(), style),
    ])
}

fn cut(text: &str, width: usize) -> String {
    text.chars().take(width).collect()
}

#[cfg(test)]
mod tests {
    use partita::Epoch;
    use partita::store::MoveReason;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::super::testing::moved;
    use super::*;

    fn picture(partitions: usize, workers: usize) -> Picture {
        let id = |n: usize| InstanceId::new(format!("home-{}", n + 1));
        let rows = (0..partitions).map(|partition| Row {
            partition,
            owner: (partition != 5).then(|| id(partition % workers)),
            epoch: Some(Epoch(12)),
            events_per_second: 1_250,
            lag: 23_456,
            checkpoint_age: Some(Duration::from_millis(700)),
        });
        let workers = (0..workers).map(|n| Worker {
            id: id(n),
            partitions: partitions / workers,
            events_per_second: 5_000,
            lag: 12,
            crashed: n == 1,
            frozen: n == 2,
        });
        let mut picture = Picture {
            title: "Partita demo".into(),
            places: vec![
                "data in partita-demo, hub homes on localhost:41234".into(),
                "hub on localhost:41234".into(),
            ],
            board: Board {
                at: Duration::from_secs(7),
                length: Duration::from_secs(20),
                rows: rows.collect(),
                workers: workers.collect(),
                moves: vec![(moved(3, 9, MoveReason::HandedOff), Some(Duration::from_micros(2_100))); 30],
            },
            chosen: Some(id(0)),
            ..Picture::default()
        };
        picture.add(Duration::from_secs(5), "home-4 has joined the group".into(), false);
        picture
    }

    fn drawn(picture: &Picture, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| paint(picture, frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..height).map(line).collect()
    }

    #[test]
    fn everything_is_seen_on_the_smallest_usual_terminal() {
        let lines = drawn(&picture(16, 4), 80, 24);
        let text = lines.join("\n");
        for part in [
            "Partita demo  7s of 20s  20,000 events/s  lag 375,296  hub on localhost:41234",
            "part owner     epoch   ev/s    lag ckpt part",
            "   0 home-1       12  1,250 23,456 0.7s    8",
            "   5 nobody",
            "  15 home-4",
            "> home-1",
            "dead",
            "frozen",
            "hand-off",
            "2.1 ms",
            "home-4 has joined the group",
            "a add   r remove   k kill",
            "q end",
        ] {
            assert!(text.contains(part), "no {part:?} in:\n{text}");
        }
    }

    #[test]
    fn what_does_not_fit_is_said() {
        let text = drawn(&picture(1_024, 40), 80, 24).join("\n");
        assert!(text.contains("not shown"), "{text}");
        assert!(text.contains("and 3"), "{text}");
    }

    #[test]
    fn any_terminal_is_drawn_on() {
        for width in (1..=240).step_by(13) {
            for height in 1..=60 {
                drawn(&picture(16, 4), width, height);
            }
        }
    }
}
