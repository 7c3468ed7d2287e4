//! A bar for fetches and copies of the commands that show nothing else: one line on standard error, drawn over.

use std::io::Write;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::terminal::tell;
use super::{bytes, is_capable};

/// Least time between two drawings.
const PAUSE: Duration = Duration::from_millis(100);
/// Cells of the bar.
const WIDTH: u64 = 30;

#[derive(Debug, Default)]
struct State {
    is_drawn: bool,
    drawn_at: Option<Instant>,
}

/// Tells steps as lines, and on a terminal how far the present one is.
#[derive(Debug, Default)]
pub(crate) struct Bar {
    state: Mutex<State>,
}

impl Bar {
    /// A new step, on a line of its own.
    pub(crate) fn step(&self, text: &str) {
        let mut state = self.state.lock().unwrap_or_else(|e| e.into_inner());
        clear(&mut state);
        state.drawn_at = None;
        tell!("{text}");
    }

    /// How far the step is; nothing where standard error is no terminal.
    pub(crate) fn bytes(&self, done: u64, total: Option<u64>) {
        let error = std::io::stderr();
        if !is_capable(&error) {
            return;
        }
        let mut state = self.state.lock().unwrap_or_else(|e| e.into_inner());
        let is_whole = total == Some(done);
        if !is_whole && state.drawn_at.is_some_and(|at| at.elapsed() < PAUSE) {
            return;
        }
        // A terminal that is gone is no reason to stop fetching.
        let _ = write!(error.lock(), "\r\x1b[K{}", line(done, total));
        *state = State { is_drawn: true, drawn_at: Some(Instant::now()) };
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        clear(&mut self.state.lock().unwrap_or_else(|e| e.into_inner()));
    }
}

fn clear(state: &mut State) {
    if std::mem::take(&mut state.is_drawn) {
        let _ = write!(std::io::stderr().lock(), "\r\x1b[K");
    }
}

fn line(done: u64, total: Option<u64>) -> String {
    let Some(total) = total.filter(|&total| total > 0) else { return format!("  {}", bytes(done)) };
    let share = (done.min(total) as f64) / total as f64;
    let cells = (share * WIDTH as f64).floor() as usize;
    let bar = "#".repeat(cells) + &" ".repeat(WIDTH as usize - cells);
    format!("  [{bar}] {:>3.0} %  {} of {}", 100.0 * share, bytes(done), bytes(total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_fills_up() {
        assert_eq!(line(0, Some(100 << 20)), format!("  [{}]   0 %  0 B of 100 MB", " ".repeat(30)));
        let half = format!("  [{}{}]  50 %  50 MB of 100 MB", "#".repeat(15), " ".repeat(15));
        assert_eq!(line(50 << 20, Some(100 << 20)), half);
        assert_eq!(line(200, Some(100)), format!("  [{}] 100 %  200 B of 100 B", "#".repeat(30)));
        assert_eq!(line(3 << 20, None), "  3 MB");
        assert_eq!(line(3 << 20, Some(0)), "  3 MB");
    }
}
