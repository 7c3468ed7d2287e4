//! What is known of a run while it goes on, and the record that it becomes: the same for every run, whoever drives its
//! load.

use std::time::{Duration, Instant};

use load::{Length, LoadResult, StepResult};
use store::{RunEnd, Slice, Status};

use crate::duel::crowd::Taken;
use crate::hooks::{Found, Hook};
use crate::judge;
use crate::observe::Stage;
use crate::progress::{Detail, Progress, append};

pub(crate) struct Recording<'a> {
    pub(crate) began: Instant,
    /// What has been found so far.
    pub(crate) end: RunEnd,
    progress: Progress<'a>,
    /// Who watches the load.
    pub(crate) hooks: Vec<Box<dyn Hook>>,
    /// When the measured phase of each level began, in seconds since the run did.
    offsets_s: Vec<f64>,
    stage: Option<(Stage, Instant)>,
}

impl<'a> Recording<'a> {
    /// A run begins.
    pub(crate) fn new(end: RunEnd, detail: Detail<'a>) -> Recording<'a> {
        Recording {
            began: Instant::now(),
            end,
            progress: Progress::new(detail),
            hooks: Vec::new(),
            offsets_s: Vec::new(),
            stage: None,
        }
    }

    /// The stage before this one has ended; `None`: the last one has.
    pub(crate) fn stage(&mut self, stage: Option<Stage>) {
        let now = Instant::now();
        if let Some((before, began)) = self.stage.take() {
            let duration_s = (now - began).as_secs_f64();
            self.end.phases.push(store::Phase { name: before.phase().to_owned(), duration_s });
        }
        self.stage = stage.map(|stage| (stage, now));
    }

    /// Takes what the load tells.
    ///
    /// # Errors
    /// A batch of seconds could not be recorded; they are kept and tried again.
    pub(crate) fn event(&mut self, event: &load::Event<'_>) -> Result<(), store::Error> {
        if let load::Event::StepStarted { step, .. } = event {
            self.offsets_s.push((self.began.elapsed() + step.warmup).as_secs_f64());
        }
        let hooks = &mut self.hooks;
        hooks.iter_mut().for_each(|hook| hook.event(event));
        let series = || hooks.iter_mut().flat_map(|hook| hook.take_series()).collect();
        self.progress.event(event, series).map(|_| ())
    }

    /// The load is over: its levels, as they were planned, are part of the record.
    pub(crate) fn load_ended(&mut self, planned: &[load::Step], result: &LoadResult) {
        self.end.steps = self.progress.steps(planned, result, &self.offsets_s);
    }

    /// [`Recording::load_ended`] for the slices of a duel, which are recorded, and answered, as one level: `taken` has for
    /// each what others took of the machine meanwhile, and whether it counts.
    pub(crate) fn slices_ended(
        &mut self,
        planned: &[load::Step],
        result: LoadResult,
        taken: &[Taken],
    ) -> (LoadResult, Vec<Slice>) {
        let slices = self.offsets_s.iter().zip(&result.steps).enumerate();
        let slices: Vec<Slice> = slices
            .map(|(at, (&at_s, step))| {
                let Taken { share, is_counted } = taken.get(at).copied().unwrap_or(Taken::UNSEEN);
                let (duration_s, committed) = (step.duration_s, step.outcomes.committed);
                Slice { at_s, duration_s, committed, taken_share: share, is_counted }
            })
            .collect();
        let (mut counted, mut left_out) = (Vec::new(), Vec::new());
        for (slice, step) in slices.iter().zip(result.steps) {
            if slice.is_counted { &mut counted } else { &mut left_out }.push(step);
        }
        let mut merged = StepResult::merged(&counted);
        merged.ended_by = merged.ended_by.or_else(|| left_out.iter().find_map(|step| step.ended_by.clone()));
        let merged = LoadResult { steps: vec![merged], ..result };
        let is_counted: Vec<bool> = slices.iter().map(|slice| slice.is_counted).collect();
        self.progress.splice(&is_counted);
        self.offsets_s = slices.iter().filter(|slice| slice.is_counted).map(|slice| slice.at_s).collect();
        let whole = Length::Time(Duration::from_secs_f64(merged.steps[0].duration_s));
        let level: Vec<load::Step> =
            planned.iter().take(1).map(|step| load::Step { length: whole, ..*step }).collect();
        self.load_ended(&level, &merged);
        (merged, slices)
    }

    /// Adds what the load says about itself: whether the client set the limit, and how the server answered.
    pub(crate) fn judge_load(&mut self, result: &LoadResult) {
        self.end.gates.extend(judge::of_load(result, &self.end.steps));
    }

    /// Adds what those who watched have found. Their suspicions are answered, for they have to be told.
    pub(crate) fn look(&mut self) -> Vec<String> {
        let mut told = Vec::new();
        for hook in std::mem::take(&mut self.hooks) {
            let Found { series, hot_locks, gates, warnings, facts } =
                hook.finish(&self.end.steps, self.end.duel.as_ref());
            append(&mut self.progress.series, series);
            self.end.hot_locks.extend(hot_locks);
            self.end.gates.extend(gates);
            self.end.facts.extend(facts);
            told.extend(warnings);
        }
        self.end.series = std::mem::take(&mut self.progress.series);
        told
    }

    /// The run is over: `Ok` where its load came to its end, else how the run stands. `why` tells of the gates that nobody
    /// has looked at.
    pub(crate) fn close(mut self, ended: Result<(), Status>, is_lenient: bool, why: &str) -> RunEnd {
        self.stage(None);
        self.end.status = match ended {
            Ok(()) => judge::judge(&mut self.end, is_lenient),
            Err(status) => status,
        };
        judge::complete(&mut self.end, why);
        self.end.ended_at_ms = load::time::unix_ms();
        self.end
    }
}
