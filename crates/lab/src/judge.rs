//! What a run is worth: the gates over the load itself, and what follows from all gates of a run.

use load::{LoadResult, StepResult};
use store::{Finding, GATES_OF_EVERY_RUN, Gate, GateKind, RunEnd, Status};
use telemetry::gates;

use crate::observe::{Effect, Tripped};

/// Faults that a study may let pass (`gates = "warn"`): they doubt how well was measured. The others doubt what was
/// measured, and nothing lets them pass.
const MAY_PASS: [&str; 6] =
    ["client_bound", "noisy_host", "swapping", "cpu_frequency", "cache_state", "waiting_server"];

/// Faults of the machine that a duel lets pass with a word: slices that others disturbed are left out already, and where
/// there are too few others the noise meets all sides, in an order that is drawn. Equal servers suffer alike; of unlike
/// ones a crowded machine may tell another ratio than a quiet one, which is why the word stays beside the verdict.
const ALIKE_IN_DUELS: [&str; 2] = ["noisy_host", "cpu_frequency"];

/// Done, or invalid where a gate found a fault of the measurement. What the server did is a result: it is told and
/// excludes nothing, or servers that misbehave in some of their runs would be compared by the others alone.
pub(crate) fn judge(end: &mut RunEnd, is_lenient: bool) -> Status {
    let is_in_turns = end.duel.is_some();
    let all = if end.interventions.is_empty() { "sides of a duel" } else { "states of the server" };
    let alike = format!("alike for all {all}");
    for gate in end.gates.iter_mut().filter(|gate| gate.is_tripped()) {
        let is_alike = is_in_turns && ALIKE_IN_DUELS.contains(&gate.name.as_str());
        let may_pass = is_alike || is_lenient && MAY_PASS.contains(&gate.name.as_str());
        gate.is_allowed = may_pass && gate.kind() == GateKind::Measurement;
        let so = match gate.kind() {
            GateKind::Server => "how the server behaved, which counts",
            GateKind::Measurement if is_alike => &alike,
            GateKind::Measurement if gate.is_allowed => "allowed by this study",
            GateKind::Measurement => continue,
        };
        let warning = format!("{}, {so}: {} ({})", gate.name, gate.text(), gate.remedy);
        if !end.warnings.contains(&warning) {
            end.warnings.push(warning);
        }
    }
    let faults = end.gates.iter().filter(|gate| gate.excludes());
    let faults: Vec<String> = faults.map(|gate| format!("{} ({})", gate.text(), gate.remedy)).collect();
    if faults.is_empty() {
        return Status::Done;
    }
    end.error = Some(faults.join("; "));
    Status::Invalid
}

/// Gates that have tripped, each once, for people.
pub(crate) fn tripped(end: &RunEnd) -> Vec<Tripped> {
    let mut told: Vec<Tripped> = Vec::new();
    for gate in end.gates.iter().filter(|gate| gate.is_tripped()) {
        let effect = match gate.kind() {
            GateKind::Server => Effect::Noted,
            GateKind::Measurement if gate.is_allowed => Effect::Allowed,
            GateKind::Measurement => Effect::Excluded,
        };
        if !told.iter().any(|known| known.name == gate.name) {
            told.push(Tripped { name: gate.name.clone(), remedy: gate.remedy.clone(), effect });
        }
    }
    told
}

/// Adds what is known of other machines for the whole run to what each gate of the same name says, of whichever level:
/// the worse of the two is found.
pub(crate) fn beside(gates: &mut Vec<Gate>, of_others: &[Gate]) {
    let badness = |finding: Finding| match finding {
        Finding::Held => 0,
        Finding::NotChecked => 1,
        Finding::Tripped => 2,
    };
    for other in of_others {
        let mut known = gates.iter_mut().filter(|gate| gate.name == other.name).peekable();
        if known.peek().is_none() {
            gates.push(other.clone());
            continue;
        }
        for gate in known {
            gate.detail = format!("{}; {}", gate.detail, other.detail);
            if badness(other.finding) > badness(gate.finding) {
                gate.finding = other.finding;
                gate.remedy.clone_from(&other.remedy);
            }
        }
    }
}

/// Every run answers for the same gates: adds those that nobody looked at, with the reason.
pub(crate) fn complete(end: &mut RunEnd, why: &str) {
    for name in GATES_OF_EVERY_RUN {
        if !end.gates.iter().any(|gate| gate.name == name) {
            end.gates.push(stored(&gates::Gate::not_checked(name, why), None));
        }
    }
}

/// A gate in the words of the results file; `level` names the load level where the run has several.
pub(crate) fn stored(gate: &gates::Gate, level: Option<u32>) -> Gate {
    Gate {
        name: gate.name.to_owned(),
        finding: match gate.finding {
            gates::Finding::Held => Finding::Held,
            gates::Finding::Tripped => Finding::Tripped,
            gates::Finding::NotChecked => Finding::NotChecked,
        },
        level,
        detail: gate.detail.clone(),
        remedy: gate.remedy.clone(),
        is_allowed: false,
    }
}

/// What the load itself says about each of its levels: the client, an open loop's backlog, times without a commit.
pub(crate) fn of_load(result: &LoadResult, steps: &[store::Step]) -> Vec<Gate> {
    let of_step = |(step, recorded): (&StepResult, &store::Step)| {
        let level = (result.steps.len() > 1).then_some(step.sessions);
        let found = [Some(client_bound(step)), overloaded(step, recorded), Some(stalls(step))];
        found.into_iter().flatten().map(move |gate| stored(&gate, level))
    };
    result.steps.iter().zip(steps).flat_map(of_step).collect()
}

/// Of several client processes, the one that is worst off.
fn client_bound(step: &StepResult) -> gates::Gate {
    let of = |client: &load::ClientUsage| {
        gates::client_bound(&gates::ClientLoad {
            cpu_share: client.cpu_share,
            run_queue_share: client.run_queue_share,
            schedule_lag_p99_ms: client.schedule_lag_p99_ms,
            is_bound: client.is_bound,
        })
    };
    let ill = |client: &load::ClientUsage| (client.is_bound, client.cpu_share);
    let worst = step.clients.iter().enumerate().max_by(|(_, one), (_, other)| {
        let ((bound, share), (is_other, others)) = (ill(one), ill(other));
        bound.cmp(&is_other).then(share.total_cmp(&others))
    });
    let Some((at, worst)) = worst else { return of(&step.client) };
    let gate = of(worst);
    let host = worst.host.as_ref().map_or_else(String::new, |host| format!(" on {host}"));
    gates::Gate {
        detail: format!("client {} of {}{host}: {}", at + 1, step.clients.len(), gate.detail),
        ..gate
    }
}

/// Whether more arrived in an open loop than was served; a closed loop has no arrivals.
fn overloaded(step: &StepResult, recorded: &store::Step) -> Option<gates::Gate> {
    let is_whole = |second: &&store::Second| second.second >= 1 && second.duration_s > 0.99;
    Some(gates::overloaded(&gates::Offered {
        arrivals: step.arrivals?,
        backlog_at_end: step.backlog_at_end,
        sessions: step.sessions,
        backlogs: recorded.seconds.iter().filter(is_whole).map(|second| second.backlog).collect(),
    }))
}

/// A wait is worth a word from this long on.
const WAIT_TOLD_S: f64 = 1.0;
/// And where it is so many times the median: all that some statements do takes seconds.
const WAIT_TOLD_FACTOR: f64 = 10.0;

/// Half of the answers took at most so long, and from which length on a wait is worth a word; in seconds.
fn median_and_limit_s(step: &StepResult) -> (f64, f64) {
    // Of an overload every response time is long; service times tell how long the server takes.
    let service = step.latency.service.as_ref().unwrap_or(&step.latency.response);
    let median_s = service.quantile_ms(0.5) / 1e3;
    (median_s, WAIT_TOLD_S.max(WAIT_TOLD_FACTOR * median_s))
}

fn stalls(step: &StepResult) -> gates::Gate {
    gates::stalls(step.stalls.seconds, step.stalls.longest_s, median_and_limit_s(step).1)
}

/// Says where a single answer took very much longer than the others, and which transactions never ended.
pub(crate) fn waits(result: &LoadResult) -> Vec<String> {
    let mut told = Vec::new();
    for step in &result.steps {
        let service = step.latency.service.as_ref().unwrap_or(&step.latency.response);
        let (median_s, limit_s) = median_and_limit_s(step);
        let level = if result.steps.len() > 1 {
            format!("at {}: ", store::counted(step.sessions, "session"))
        } else {
            String::new()
        };
        // While the whole server stands still every answer is slow: the gate tells that.
        if step.stalls.longest_s < limit_s && service.max_ms() / 1e3 >= limit_s {
            told.push(format!(
                "{level}the slowest answer took {:.1} s, half of them at most {:.1} ms; look at what the server's log and \
                 the series say of that time (checkpoints, flushing, purge, storage)",
                service.max_ms() / 1e3,
                1e3 * median_s
            ));
        }
        if !step.unended.is_empty() {
            let them = match step.unended.len() {
                1 => "it with the time that it",
                _ => "them with the time that they",
            };
            told.push(format!(
                "{level}{} never ended; response times count {them} had waited, so \
                 that percentiles from {:.1} ms on are lower bounds",
                store::counted(step.unended.len(), "transaction"),
                step.unended.min_ms()
            ));
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(name: &str, finding: Finding, level: Option<u32>) -> Gate {
        let (detail, remedy) = (format!("{name} was seen"), "do something".to_owned());
        Gate { name: name.to_owned(), finding, level, detail, remedy, is_allowed: false }
    }

    fn end(gates: Vec<Gate>) -> RunEnd {
        RunEnd { gates, ..RunEnd::new(Status::Failed, 0) }
    }

    #[test]
    fn behaviour_of_the_server_is_told_and_excludes_nothing() {
        for name in ["not_steady", "debt_growing", "errors", "server_restarted", "stalls", "overloaded"] {
            let mut end = end(vec![gate(name, Finding::Tripped, None)]);
            assert_eq!(judge(&mut end, false), Status::Done, "{name}");
            assert_eq!(end.error, None);
            assert!(end.warnings[0].starts_with(&format!("{name}, how the server behaved")), "{end:?}");
            assert_eq!(tripped(&end)[0].effect, Effect::Noted);
            // Judged again (a record that samplers add to), it is told once.
            judge(&mut end, false);
            assert_eq!(end.warnings.len(), 1);
        }
    }

    #[test]
    fn a_fault_of_the_measurement_excludes_unless_the_study_lets_it_pass() {
        for (name, may_pass) in [("noisy_host", true), ("client_bound", true), ("consistency", false)] {
            let tripping = || end(vec![gate(name, Finding::Tripped, None)]);
            let mut strict = tripping();
            assert_eq!(judge(&mut strict, false), Status::Invalid, "{name}");
            assert!(strict.error.unwrap().contains("was seen (do something)"));
            let mut lenient = tripping();
            assert_eq!(judge(&mut lenient, true) == Status::Done, may_pass, "{name}");
            assert_eq!(lenient.gates[0].is_allowed, may_pass);
            assert_eq!(lenient.warnings.len(), usize::from(may_pass), "{lenient:?}");
        }
        assert_eq!(judge(&mut end(vec![gate("noisy_host", Finding::NotChecked, None)]), false), Status::Done);
    }

    #[test]
    fn what_meets_all_sides_of_a_duel_alike_excludes_none() {
        let duel = || Some(store::Duel { sides: 2, side: 0, slices: Vec::new() });
        for (name, status) in [("noisy_host", Status::Done), ("waiting_server", Status::Invalid)] {
            let mut end = RunEnd { duel: duel(), ..end(vec![gate(name, Finding::Tripped, None)]) };
            assert_eq!(judge(&mut end, false), status, "{name}");
        }
        let mut alone = end(vec![gate("noisy_host", Finding::Tripped, None)]);
        assert_eq!(judge(&mut alone, false), Status::Invalid);
    }

    #[test]
    fn a_level_at_fault_does_not_take_the_others_of_its_climb_along() {
        let mut end = end(vec![
            gate("client_bound", Finding::Held, Some(8)),
            gate("client_bound", Finding::Tripped, Some(64)),
        ]);
        end.status = judge(&mut end, false);
        assert_eq!(end.status, Status::Invalid);
        assert!(end.error.as_ref().unwrap().starts_with("at 64 sessions: client_bound was seen"));
        assert_eq!((end.counts_at(8), end.counts_at(64)), (true, false));
        // What is wrong with the whole run is wrong with each level.
        end.gates.push(gate("consistency", Finding::Tripped, None));
        assert!(!end.counts_at(8));
    }

    #[test]
    fn the_worst_machine_decides() {
        let of = |finding, level| gate("noisy_host", finding, level);
        let mut gates = vec![of(Finding::Held, Some(8)), of(Finding::Tripped, Some(64))];
        beside(&mut gates, &[of(Finding::NotChecked, None), of(Finding::Held, None)]);
        let found: Vec<Finding> = gates.iter().map(|gate| gate.finding).collect();
        assert_eq!(found, [Finding::NotChecked, Finding::Tripped]);
        assert_eq!(gates[0].detail, ["noisy_host was seen"; 3].join("; "));
        let mut none = Vec::new();
        beside(&mut none, &[of(Finding::Tripped, None)]);
        assert!(none[0].is_tripped(), "the server's machine was not looked at");
    }

    #[test]
    fn every_gate_is_answered_for() {
        let mut end = end(vec![gate("errors", Finding::Held, Some(8))]);
        complete(&mut end, "the run failed before");
        let not_checked = |name: &&str| {
            let mut of_name = end.gates.iter().filter(|gate| gate.name == **name);
            of_name.next().is_some_and(|gate| gate.finding == Finding::NotChecked)
        };
        let unseen: Vec<&str> = GATES_OF_EVERY_RUN.into_iter().filter(not_checked).collect();
        assert_eq!(unseen.len(), GATES_OF_EVERY_RUN.len() - 1);
        assert!(!unseen.contains(&"errors"));
        assert!(end.gates[1].detail.contains("failed before"));
    }
}
