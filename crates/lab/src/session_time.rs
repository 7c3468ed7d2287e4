//! A look at where a server's sessions spend their time, for runs that are to say why one build is slower: it costs some
//! cpu, so no other run has it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use telemetry::gates::three_digits;
use telemetry::session_time::{Place, Sample, SessionSampler};

use crate::hooks::{Attach, Found, Hook, Part, RunContext};

/// Between two looks.
const PERIOD: Duration = Duration::from_millis(5);

/// Looks at the sessions of a run beside what `attach` does.
pub(crate) struct SessionTimes<'a>(pub(crate) &'a dyn Attach);

impl Attach for SessionTimes<'_> {
    fn attach(&self, context: &RunContext, told: &dyn Fn(&str)) -> Vec<Box<dyn Hook>> {
        let mut hooks = self.0.attach(context, told);
        let sampler = match context.server_pid {
            Some(pid) => SessionSampler::start(pid, PERIOD),
            None => Err("the server's process cannot be seen".to_owned()),
        };
        hooks.push(Box::new(Watching { sampler, windows: Vec::new() }));
        hooks
    }
}

struct Watching {
    sampler: Result<SessionSampler, String>,
    /// From and to of the measured phase of each step.
    windows: Vec<(Instant, Instant)>,
}

impl Hook for Watching {
    fn event(&mut self, event: &load::Event<'_>) {
        match event {
            load::Event::StepStarted { step, .. } => {
                let from = Instant::now() + step.warmup;
                self.windows.push((from, from));
            }
            load::Event::StepEnded { result, .. } => {
                if let Some((from, to)) = self.windows.last_mut() {
                    *to = *from + Duration::from_secs_f64(result.duration_s);
                }
            }
            _ => {}
        }
    }

    fn finish(self: Box<Self>, parts: &[Part<'_>]) -> Vec<Found> {
        let samples = match self.sampler {
            Ok(sampler) => sampler.stop(),
            Err(why) => {
                let facts = vec![("not measured/time of sessions".to_owned(), why)];
                return vec![Found { facts, ..Found::default() }; parts.len()];
            }
        };
        let found = |part: &Part<'_>| {
            let own: Vec<(Instant, Instant)> = match part.slices {
                Some(is_own) => {
                    let own = self.windows.iter().zip(is_own).filter(|(_, is_own)| **is_own);
                    own.map(|(window, _)| *window).collect()
                }
                None => self.windows.clone(),
            };
            let committed: u64 = part.steps.iter().map(|step| step.outcomes.committed).sum();
            let sessions = part.steps.first().map_or(0, |step| step.sessions);
            Found { facts: facts(&samples, &own, sessions, committed), ..Found::default() }
        };
        parts.iter().map(found).collect()
    }
}

/// Microseconds of sessions' time by transaction, as the other figures by transaction are kept.
fn facts(
    samples: &[Sample],
    windows: &[(Instant, Instant)],
    sessions: u32,
    committed: u64,
) -> Vec<(String, String)> {
    if committed == 0 {
        return Vec::new();
    }
    let mut sums =
        BTreeMap::from([Place::Lock, Place::Disk, Place::Sleep, Place::Cpu].map(|place| (place, 0.0)));
    let is_in = |at: Instant| windows.iter().any(|(from, to)| (*from..*to).contains(&at));
    for (place, seconds) in samples.iter().filter(|sample| is_in(sample.at)).flat_map(|sample| &sample.places)
    {
        *sums.entry(*place).or_default() += seconds;
    }
    let by_transaction = sums.into_iter().map(|(place, seconds)| {
        let name = match place {
            Place::Lock => "session_at_locks",
            Place::Disk => "session_at_disk",
            Place::Sleep => "session_asleep",
            Place::Cpu => "session_at_cpu",
            Place::Client => "session_at_client",
        };
        let us = 1e6 * seconds / committed as f64;
        (format!("per_transaction/{sessions}/{name}"), format!("{} us", three_digits(us)))
    });
    by_transaction.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_seen_in_the_windows_counts() {
        let began = Instant::now();
        let at = |ms: u64| began + Duration::from_millis(ms);
        let sample = |ms: u64, place: Place| Sample { at: at(ms), places: vec![(place, 0.01)] };
        let samples = [
            sample(50, Place::Lock),
            sample(150, Place::Lock),
            sample(160, Place::Cpu),
            sample(250, Place::Lock),
        ];
        let facts = facts(&samples, &[(at(100), at(200))], 8, 10);
        let of =
            |name: &str| facts.iter().find(|(fact, _)| fact.ends_with(name)).map(|(_, text)| text.as_str());
        assert_eq!(of("8/session_at_locks"), Some("1000 us"));
        assert_eq!(of("session_at_cpu"), Some("1000 us"));
        assert_eq!(of("session_asleep"), Some("0 us"));
    }
}
