//! Whether the lines of a search are those that its probes let it have.
//!
//! What a probe saw is kept as counts, not as histograms, and the middle and interval of a line come out of a fit that each
//! version makes in its own way: these are not computed again, and a proof says so.

use store::{Line, LineProbe, LineSearch};

use super::Different;
use super::sound::different;

/// Lines that no probe was held at, and what else of finished searches contradicts itself.
pub(super) fn contradictions(searches: &[LineSearch]) -> Vec<Different> {
    searches.iter().flat_map(of_search).collect()
}

/// What of searches for lines is not computed again, a sentence each.
pub(super) fn unproved(searches: &[LineSearch]) -> Vec<String> {
    let count = searches.iter().filter(|search| search.found.is_some()).count();
    let of_all = (count > 0).then(|| {
        format!(
            "what the probes of {} for lines saw, and the middles and intervals fitted to it, which are as the search \
             left them: lines were held against the counts of their probes only",
            if count == 1 { "one search".to_owned() } else { format!("{count} searches") }
        )
    });
    let is_unseen = |search: &&LineSearch| {
        let mut lines = search.found.iter().flat_map(|found| &found.lines);
        !has_holds(search) && lines.any(|line| line.hold.is_some())
    };
    let unseen = searches.iter().filter(is_unseen);
    let told = |search: &LineSearch| {
        format!("that the lines of search {} were held or broken: it has no probe of it", search.id.0)
    };
    of_all.into_iter().chain(unseen.map(told)).collect()
}

fn has_holds(search: &LineSearch) -> bool {
    search.tried().iter().any(LineProbe::is_hold)
}

fn of_search(search: &LineSearch) -> Vec<Different> {
    let lines = search.found.iter().flat_map(|found| &found.lines).enumerate();
    lines.flat_map(|(at, line)| of_line(search, at, line)).collect()
}

/// `at`: the place of the line's promise among all of the search.
fn of_line(search: &LineSearch, at: usize, line: &Line) -> Vec<Different> {
    let place = format!("search {} under {}", search.id.0, line.promise);
    let mut found = Vec::new();
    let is_kept = |probe: &LineProbe| search.held(probe, at, line.allowed) == Some(true);
    let kept = || search.tried().iter().filter(|probe| is_kept(probe));
    // Where no hold is kept at all the proof says that it cannot tell.
    if let Some(hold) = line.hold.filter(|_| has_holds(search)) {
        let focus = search.climb().and_then(|climb| climb.place(at));
        let is_it = |probe: &&LineProbe| {
            let is_of_it = probe.is_hold() && Some(probe.focus) == focus;
            is_of_it && (probe.seconds, probe.p99_ms) == (hold.seconds, hold.p99_ms)
        };
        let held: Vec<bool> = search.tried().iter().filter(is_it).map(is_kept).collect();
        if !held.contains(&hold.held) {
            let recomputed = held.first().map_or_else(|| "no such hold".into(), |held| (*held).into());
            found.push(Different { recomputed, ..different(&place, "held", hold.held, false) });
        }
        // What was held is the rate of a probe, to the digit.
        let line_tps = line.line_tps.filter(|_| hold.held);
        if let Some(line_tps) = line_tps.filter(|line_tps| kept().all(|probe| probe.rate != *line_tps)) {
            let highest = kept().map(|probe| probe.rate).fold(0.0, f64::max);
            found.push(different(
                &place,
                "line, and the highest rate that kept the promise",
                line_tps,
                highest,
            ));
        }
    }
    let ends = [line.low, line.line_tps, line.high].into_iter().flatten().collect::<Vec<f64>>();
    if !ends.is_sorted() {
        found.push(different(&place, "line, within its interval", ends.clone(), {
            let mut sorted = ends;
            sorted.sort_by(f64::total_cmp);
            sorted
        }));
    }
    found
}

#[cfg(test)]
mod tests {
    use store::{LineCount, LineFound, LineHold, LineId, LineSeen, LineStart};

    use super::*;

    fn probe(purpose: &str, rate: f64, over: u64) -> LineProbe {
        let total = LineCount { transactions: 1000, over };
        LineProbe {
            purpose: purpose.to_owned(),
            rate,
            seconds: 60.0,
            p99_ms: Some(rate / 10.0),
            seen: vec![LineSeen { seconds: Vec::new(), total }],
            broken: vec![None],
            ..LineProbe::default()
        }
    }

    /// 110/s was broken when it was held, 100/s was kept.
    fn search() -> LineSearch {
        let hold = LineHold { seconds: 60.0, held: true, p99_ms: Some(10.0) };
        let line = Line {
            promise: "p99 < 20ms".to_owned(),
            allowed: 0.01,
            line_tps: Some(100.0),
            low: Some(95.0),
            high: Some(105.0),
            hold: Some(hold),
            ..Line::default()
        };
        let start =
            LineStart { fingerprint: String::new(), command: String::new(), started_at_ms: 1, seed: 1 };
        LineSearch {
            id: LineId(1),
            start,
            is_over: true,
            found: Some(LineFound { lines: vec![line], seconds_total: 300.0 }),
            probes: vec![
                probe("climb", 200.0, 0),
                probe("refine", 90.0, 2),
                probe("hold", 110.0, 30),
                probe("hold", 100.0, 10),
            ],
        }
    }

    /// What is told of a search of which one thing was changed.
    fn told(change: impl Fn(&mut Line, &mut Vec<LineProbe>)) -> Vec<String> {
        let mut search = search();
        let mut lines = search.found.take().map(|found| found.lines).unwrap_or_default();
        change(&mut lines[0], &mut search.probes);
        search.found = Some(LineFound { lines, seconds_total: 300.0 });
        let told = |one: Different| format!("{}: {}, {}", one.where_, one.stored, one.recomputed);
        of_search(&search).into_iter().map(told).collect()
    }

    #[test]
    fn a_line_is_at_a_rate_that_was_held() {
        assert_eq!(told(|_, _| {}), Vec::<String>::new());
        let place = "search 1 under p99 < 20ms";
        let raised = told(|line, _| line.line_tps = Some(104.0));
        assert_eq!(
            raised,
            [format!("{place}: line, and the highest rate that kept the promise: 104.0, 100.0")]
        );
        let broken = told(|_, probes| probes[3].seen[0].total.over = 11);
        assert_eq!(broken.first(), Some(&format!("{place}: held: true, false")), "{broken:?}");
        let none = told(|line, _| line.hold = Some(LineHold { seconds: 61.0, ..line.hold.unwrap() }));
        assert_eq!(none, [format!("{place}: held: true, \"no such hold\"")]);
        let of_another = told(|_, probes| probes[3].focus = 1);
        assert_eq!(of_another, none);
        let above = told(|line, _| line.high = Some(99.0));
        assert_eq!(
            above,
            [format!("{place}: line, within its interval: [95.0,100.0,99.0], [95.0,99.0,100.0]")]
        );
    }

    #[test]
    fn a_line_that_was_not_held_does_not_say_that_it_was() {
        let claimed = told(|line, _| {
            line.line_tps = Some(103.0);
            line.hold = Some(LineHold { seconds: 60.0, held: true, p99_ms: Some(11.0) });
        });
        assert_eq!(claimed.first(), Some(&"search 1 under p99 < 20ms: held: true, false".to_owned()));
        let told = told(|line, _| {
            line.line_tps = Some(103.0);
            line.hold = Some(LineHold { seconds: 60.0, held: false, p99_ms: Some(11.0) });
        });
        assert_eq!(told, Vec::<String>::new());
    }

    #[test]
    fn of_a_search_without_holds_is_said_that_they_are_not_proved() {
        let mut without = LineSearch { id: LineId(2), ..search() };
        without.probes.retain(|probe| !probe.is_hold());
        let searches = [search(), without];
        assert_eq!(contradictions(&searches), []);
        let told = unproved(&searches);
        assert!(told[0].starts_with("what the probes of 2 searches for lines saw"), "{told:?}");
        assert_eq!(told[1..], ["that the lines of search 2 were held or broken: it has no probe of it"]);
    }
}
