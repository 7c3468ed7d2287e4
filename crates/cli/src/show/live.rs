//! The live view of `run`: what goes on, how far it is, the last minute's throughput.

use std::io::{Stderr, stderr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lab::{Event, StopSwitch};
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, KeyCode, KeyModifiers};
use ratatui::crossterm::{execute, terminal};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Axis, Block, Chart, Dataset, Gauge, GraphType, Paragraph, Wrap};
use ratatui::{Frame, Terminal};

use super::state::{CHART_S, State};
use super::{has_colour, number, time};

/// How often the screen is drawn.
const REDRAW: Duration = Duration::from_millis(250);

/// The terminal belongs to the view: a line written to it now would stand in the middle of the picture.
static IS_DRAWING: AtomicBool = AtomicBool::new(false);

/// Whether the view has the terminal.
pub(crate) fn is_drawing() -> bool {
    IS_DRAWING.load(Ordering::Relaxed)
}

/// Draws on standard error until it is dropped.
pub(crate) struct Live {
    state: Arc<Mutex<State>>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Live {
    /// Takes the terminal. `None` where there is none that can draw.
    pub(crate) fn start(stop: &StopSwitch) -> Option<Live> {
        if !super::is_capable(&stderr()) {
            return None;
        }
        terminal::enable_raw_mode().ok()?;
        IS_DRAWING.store(true, Ordering::Relaxed);
        if execute!(stderr(), terminal::EnterAlternateScreen).is_err() {
            restore();
            return None;
        }
        // A panic must not leave the terminal as it is now.
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            restore();
            before(info);
        }));
        let Ok(screen) = Terminal::new(CrosstermBackend::new(stderr())) else {
            restore();
            return None;
        };
        let state = Arc::new(Mutex::new(State::default()));
        let over = Arc::new(AtomicBool::new(false));
        let thread = std::thread::Builder::new().name("live view".into()).spawn({
            let (state, over, stop) = (Arc::clone(&state), Arc::clone(&over), stop.clone());
            move || draw_until(screen, &state, &over, &stop)
        });
        let Ok(thread) = thread else {
            restore();
            return None;
        };
        Some(Live { state, over, thread: Some(thread) })
    }

    pub(crate) fn event(&self, event: &Event<'_>) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).event(event, Instant::now());
    }

    /// Gives the terminal back, and returns what should stay on it: ended runs that need a look, and warnings.
    pub(crate) fn finish(mut self) -> Vec<String> {
        self.end();
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = state.ended.iter().filter(|line| line.contains(": failed (")).cloned();
        let warnings = state.warnings.iter().map(|text| format!("warning: {text}"));
        failed.chain(warnings).chain(state.gates()).collect()
    }

    fn end(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Its panic has been reported by the hook.
            let _ = thread.join();
            restore();
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.end();
    }
}

/// Back to an ordinary terminal, where the view had taken it. Safe to call twice.
pub(crate) fn restore() {
    // Escape codes are for the terminal that was drawn on, never for a pipe.
    if !IS_DRAWING.swap(false, Ordering::Relaxed) {
        return;
    }
    // Nothing can be done about a terminal that has gone away.
    let _ = terminal::disable_raw_mode();
    let _ = execute!(stderr(), terminal::LeaveAlternateScreen, ratatui::crossterm::cursor::Show);
}

fn draw_until(
    mut screen: Terminal<CrosstermBackend<Stderr>>,
    state: &Mutex<State>,
    over: &AtomicBool,
    stop: &StopSwitch,
) {
    let coloured = has_colour(&stderr());
    while !over.load(Ordering::Relaxed) {
        {
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            state.stop_presses = stop.presses();
            // A frame that cannot be drawn is followed by another one.
            let _ = screen.draw(|frame| draw(frame, &state, coloured, Instant::now()));
        }
        // Raw mode makes Ctrl-C a key.
        if matches!(event::poll(REDRAW), Ok(true))
            && let Ok(event::Event::Key(key)) = event::read()
        {
            let is_break = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
            if (is_break || key.code == KeyCode::Char('q')) && stop.press() > 2 {
                restore();
                std::process::exit(crate::exit::class_code(lab::Class::Interrupted));
            }
        }
    }
}

/// Colours, or none of them.
struct Palette {
    accent: Style,
    dim: Style,
    warn: Style,
    bad: Style,
}

impl Palette {
    fn new(coloured: bool) -> Palette {
        let colour = |colour| if coloured { Style::new().fg(colour) } else { Style::new() };
        Palette {
            accent: colour(Color::Cyan),
            dim: if coloured { Style::new().add_modifier(Modifier::DIM) } else { Style::new() },
            warn: colour(Color::Yellow),
            bad: colour(Color::Red),
        }
    }
}

pub(crate) fn draw(frame: &mut Frame<'_>, state: &State, coloured: bool, now: Instant) {
    let palette = Palette::new(coloured);
    let (shown_warnings, warning_lines) =
        last_warnings(&state.warnings, frame.area().width.saturating_sub(2));
    let warnings = if warning_lines == 0 { 0 } else { warning_lines + 2 };
    let [head, bar, current, chart, ended, warned, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(4),
        Constraint::Min(6),
        Constraint::Percentage(30),
        Constraint::Length(warnings),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let title = if state.title.is_empty() { "plimsoll" } else { &state.title };
    frame.render_widget(Line::from(title.to_owned()).style(Style::new().add_modifier(Modifier::BOLD)), head);
    draw_bar(frame, bar, state, &palette, now);
    draw_current(frame, current, state, &palette, now);
    draw_chart(frame, chart, state, &palette);
    let rows = usize::from(ended.height.saturating_sub(1));
    let shown = state.ended.iter().skip(state.ended.len().saturating_sub(rows));
    let lines: Vec<Line<'_>> = shown
        .map(|line| {
            let style = match line {
                line if line.contains(": failed (") => palette.bad,
                line if line.contains(", invalid (") => palette.warn,
                _ => Style::new(),
            };
            Line::from(line.as_str()).style(style)
        })
        .collect();
    frame.render_widget(
        Paragraph::new(lines).block(Block::new().title(Span::styled("ended runs", palette.dim))),
        ended,
    );
    let lines: Vec<Line<'_>> = shown_warnings.iter().map(|text| Line::from(text.as_str())).collect();
    let block = Block::bordered().title("warnings").border_style(palette.warn);
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: true }).block(block), warned);
    let hint = match state.stop_presses {
        0 => "Ctrl-C stops; the same command goes on from there",
        1 => "stopping: transactions in flight may finish. Ctrl-C again stops at once",
        _ => "stopping at once. Ctrl-C again leaves",
    };
    frame.render_widget(Line::from(hint).style(palette.dim), foot);
}

/// Lines that warnings may take.
const WARNING_LINES_MAX: u16 = 5;

/// The newest warnings that can be shown in full, and how many lines of this width they take. One of them is always
/// shown, as far as it goes.
fn last_warnings(warnings: &[String], width: u16) -> (&[String], u16) {
    let mut lines = 0;
    let mut first = warnings.len();
    while first > 0 {
        let more = wrapped_lines(&warnings[first - 1], width);
        let all = more.saturating_add(lines);
        if lines > 0 && all > WARNING_LINES_MAX {
            break;
        }
        lines = all.min(WARNING_LINES_MAX);
        first -= 1;
    }
    (&warnings[first..], lines)
}

/// Lines that a text takes when it is broken between words.
fn wrapped_lines(text: &str, width: u16) -> u16 {
    let width = usize::from(width.max(1));
    let (mut lines, mut used) = (1, 0);
    for word in text.split_whitespace().map(|word| word.chars().count()) {
        let gap = usize::from(used > 0);
        if used + gap + word <= width {
            used += gap + word;
            continue;
        }
        lines += usize::from(used > 0);
        // A word longer than a line is broken within.
        lines += word.saturating_sub(1) / width;
        used = (word - 1) % width + 1;
    }
    u16::try_from(lines).unwrap_or(u16::MAX)
}

fn draw_bar(frame: &mut Frame<'_>, area: Rect, state: &State, palette: &Palette, now: Instant) {
    if state.runs == 0 {
        return;
    }
    let done = state.finished + state.made;
    let left = state.left(now).map_or_else(String::new, |left| format!(", {} left", time(left)));
    let trouble = match (state.failed, state.invalid) {
        (0, 0) => String::new(),
        (failed, invalid) => format!(", {failed} failed, {invalid} invalid"),
    };
    let text = format!("{done} of {}{trouble}{left}", store::counted(state.runs, "run"));
    let gauge = Gauge::default()
        .ratio((done as f64 / state.runs as f64).clamp(0.0, 1.0))
        .label(text)
        .gauge_style(palette.accent)
        .use_unicode(true);
    frame.render_widget(gauge, area);
}

fn draw_current(frame: &mut Frame<'_>, area: Rect, state: &State, palette: &Palette, now: Instant) {
    let mut lines = Vec::new();
    if let Some(label) = &state.label {
        let place = format!("block {}/{}  run {}/{}  ", label.block, label.blocks, label.number, label.of);
        lines.push(Line::from(vec![Span::styled(place, palette.dim), Span::raw(label.text())]));
    }
    let progress = match (state.progress, state.step_began) {
        (Some((done, total)), _) if total > 0 => format!(" {:.0} %", done as f64 / total as f64 * 100.0),
        (_, Some((began, Some(length)))) => {
            format!(" {} of {}", time(now.duration_since(began).min(length)), time(length))
        }
        (_, Some((began, None))) => format!(" for {}", time(now.duration_since(began))),
        _ => String::new(),
    };
    let warmup = if state.second.is_some_and(|second| second.is_warmup) { " (warm-up)" } else { "" };
    lines.push(Line::from(vec![Span::styled(format!("{}{progress}{warmup}", state.doing), palette.accent)]));
    if let Some(second) = state.second {
        let figure = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), number);
        let mut figures = vec![
            Span::styled(format!("{} TPS", number(second.tps)), Style::new().add_modifier(Modifier::BOLD)),
            Span::raw(format!("  {} QPS", number(second.qps))),
            Span::raw(format!(
                "  p50 {} ms  p95 {} ms  p99 {} ms  ",
                figure(second.p50_ms),
                figure(second.p95_ms),
                figure(second.p99_ms)
            )),
        ];
        let style = if state.errors > 0 { palette.bad } else { palette.dim };
        figures.push(Span::styled(format!("{} errors", state.errors), style));
        lines.push(Line::from(figures));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

fn draw_chart(frame: &mut Frame<'_>, area: Rect, state: &State, palette: &Palette) {
    let first = CHART_S - state.tps.len();
    // Runs are lines of their own: nothing was measured between them.
    let mut runs: Vec<Vec<(f64, f64)>> = vec![Vec::new()];
    for (at, tps) in state.tps.iter().enumerate() {
        match (tps, runs.last_mut()) {
            (Some(tps), Some(run)) => run.push(((first + at) as f64, *tps)),
            _ => runs.push(Vec::new()),
        }
    }
    let top = state.tps.iter().flatten().copied().fold(1.0, f64::max) * 1.1;
    let line = |points| {
        Dataset::default()
            .marker(Marker::Braille)
            .graph_type(GraphType::Line)
            .style(palette.accent)
            .data(points)
    };
    let datasets = runs.iter().filter(|run| !run.is_empty()).map(|run| line(run)).collect();
    let x = Axis::default().bounds([0.0, CHART_S as f64]).labels(["-60 s", "now"]).style(palette.dim);
    let y = Axis::default().bounds([0.0, top]).labels(["0".to_owned(), number(top)]).style(palette.dim);
    let block = Block::new().title(Span::styled("TPS of the last minute", palette.dim));
    frame.render_widget(Chart::new(datasets).block(block).x_axis(x).y_axis(y), area);
}

#[cfg(test)]
mod tests {
    use ratatui::backend::TestBackend;

    use super::*;

    fn screen(state: &State) -> String {
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal.draw(|frame| draw(frame, state, false, Instant::now())).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn the_view_shows_what_goes_on() {
        let mut state = State::default();
        let now = Instant::now();
        let planned = Event::Planned {
            title: "MariaDB and PostgreSQL side by side",
            runs: 60,
            finished: 12,
            to_do: 48,
            cells: 4,
            blocks: 5,
            seed: 1,
            run_length: None,
        };
        state.event(&planned, now);
        let label = lab::observe::RunLabel {
            number: 13,
            of: 60,
            block: 2,
            blocks: 5,
            key: [("server".into(), "mariadb@10.11.19".into()), ("workload".into(), "oltp_read_only".into())]
                .into(),
            levels: vec![64],
            against: Vec::new(),
        };
        state.event(&Event::RunStarted(&label), now);
        state.event(&Event::Phase(lab::observe::Phase::Measure), now);
        state.event(&Event::StepStarted { sessions: 64, length: Some(Duration::from_secs(5)) }, now);
        let mut interval =
            load::IntervalResult { second: 1, duration_s: 1.0, ..load::IntervalResult::default() };
        interval.outcomes.committed = 1234;
        interval.outcomes.deadlock = 2;
        state.event(&Event::Interval { sessions: 64, interval: &interval }, now);
        state.event(&Event::Warning("the client used 92 % of its cpu: add --workers"), now);
        let text = screen(&state);
        for wanted in [
            "side by side",
            "12 of 60 runs",
            "block 2/5",
            "mariadb@10.11.19 oltp_read_only, 64 sessions",
            "1,234 TPS",
            "p99",
            "2 errors",
            "add --workers",
            "Ctrl-C stops",
            "TPS of the last minute",
        ] {
            assert!(text.contains(wanted), "{wanted} is not on the screen:\n{text}");
        }
    }

    #[test]
    fn the_newest_warnings_are_shown_in_full() {
        assert_eq!(
            [("", 10), ("one two", 7), ("one two", 6), ("abcdefgh", 3)].map(|(t, w)| wrapped_lines(t, w)),
            [1, 1, 2, 3]
        );
        let long = "word ".repeat(30);
        let warnings = ["first".to_owned(), long.clone(), "last".to_owned()];
        // 30 words of 4 letters: 16 on a line of 80, so two lines; all three fit into five.
        assert_eq!(last_warnings(&warnings, 80), (&warnings[..], 4));
        // Six lines of 25 do not fit beside the newest one.
        assert_eq!(last_warnings(&warnings, 25), (&warnings[2..], 1));
        assert_eq!(last_warnings(&warnings[..2], 10), (&warnings[1..2], 5));
        assert_eq!(last_warnings(&[], 80).1, 0);
        let mut state = State::default();
        state.event(&Event::Warning(long.trim()), Instant::now());
        assert_eq!(screen(&state).matches("word").count(), 30);
    }

    #[test]
    fn a_small_terminal_is_no_reason_to_panic() {
        let state = State::default();
        for (width, height) in [(1, 1), (10, 3), (200, 5)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            terminal.draw(|frame| draw(frame, &state, true, Instant::now())).unwrap();
        }
    }
}
