//! The server that a search is made on: one life after the other, where it does not last.

use std::time::Duration;

use workload::{Baseline, Ran};

use super::probe::{Tried, Wanted, probe};
use super::{Promise, Request};
use crate::checks;
use crate::error::Error;
use crate::observe::Stage;
use crate::provision::{self, Failed, Provisioned, connect, provision};
use crate::run::Around;
use crate::subject::{Subject, next_number};

/// A running server with loaded tables, and what was done to them.
pub(super) struct Life<'a> {
    pub(super) server: Provisioned<'a>,
    baseline: Baseline,
    ran: Ran,
}

/// Before the first probe of a life, what the server has put off is let go within this time.
const DRAIN_MAX: Duration = Duration::from_secs(60);

impl<'a> Life<'a> {
    /// Starts and loads it.
    pub(super) fn begin(
        home: &sandbox::Home,
        request: &Request,
        subject: &'a Subject,
        around: Around<'_>,
    ) -> Result<Life<'a>, Error> {
        let (place, _) = subject.place(|build| {
            let name = format!("line-{}-{}", std::process::id(), next_number());
            let mut spec = sandbox::Spec::new(name, build.clone());
            spec.settings = request.settings.clone();
            spec.profile = request.profile;
            Ok(spec)
        })?;
        checks::descriptors(request.sessions_max)?;
        let wanted = provision::Wanted {
            home,
            workload: &*request.workload,
            options: &request.options,
            engine: None,
            data: request.data,
            sessions_max: request.sessions_max,
            stop: around.stop,
            observer: around.observer,
        };
        let tell = |stage| (around.observer)(crate::Event::Stage(stage));
        let server = provision(place, &wanted, &mut |stage| tell(stage)).map_err(told)?;
        tell(Stage::Check);
        let mut control = connect(&server.target)?;
        checks::server(&mut control, server.target.protocol, server.configured.needs(request.sessions_max))?;
        control.close();
        let baseline = server
            .configured
            .baseline(&server.target)
            .map_err(|error| Error::Run(format!("the tables cannot be used: {error}")))?;
        tell(Stage::Drain);
        let terms = telemetry::drain::Terms {
            limit: DRAIN_MAX,
            is_ours: server.sandbox().is_some(),
            is_cold: false,
            only_reads: false,
            datadir: server.sandbox().map(sandbox::Sandbox::datadir),
            told: &|text| (around.observer)(crate::Event::Doing(text)),
        };
        if let Err(error) = telemetry::drain::drain(&server.target, &terms) {
            let text = format!("what the server had put off could not be waited for: {error}");
            (around.observer)(crate::Event::Warning(&text));
        }
        tell(Stage::Measure);
        Ok(Life { server, baseline, ran: Ran::default() })
    }

    /// Tries a rate on it.
    ///
    /// # Errors
    /// As [`probe`]'s.
    pub(super) fn probe(
        &mut self,
        promises: &[Promise],
        wanted: Wanted,
        around: Around<'_>,
    ) -> Result<Tried, Error> {
        let factory = self.server.configured.sessions(&self.server.target, wanted.seed);
        let tried = probe(factory.as_ref(), promises, wanted, around.observer, around.stop)?;
        self.ran.committed += tried.ran.committed;
        self.ran.rolled_back += tried.ran.rolled_back;
        self.ran.failed += tried.ran.failed;
        self.ran.in_doubt += tried.ran.in_doubt;
        Ok(tried)
    }

    /// Whether the server's process is gone; of an attached one, whether it does not answer.
    pub(super) fn is_over(&self) -> bool {
        match self.server.sandbox() {
            Some(sandbox) => sandbox.pid().is_none(),
            None => connect(&self.server.target).is_err(),
        }
    }

    /// Looks whether the tables are what the outcomes imply, and stops it. What is wrong with them.
    pub(super) fn end(self, around: Around<'_>) -> Result<Vec<String>, Error> {
        (around.observer)(crate::Event::Stage(Stage::Verify));
        let checked = self.server.configured.check(&self.server.target, &self.baseline, &self.ran);
        (around.observer)(crate::Event::Stage(Stage::Stop));
        self.server.release(around.stop)?;
        let checks = checked.map_err(|error| {
            Error::Run(format!("the tables could not be checked after the search: {error}"))
        })?;
        let wrong = checks.iter().filter(|check| !check.passed);
        Ok(wrong
            .map(|check| format!("{}: {} expected, {} found", check.name, check.expected, check.found))
            .collect())
    }

    /// Removes what is left of a server that is gone.
    pub(super) fn bury(self, around: Around<'_>) {
        // It may not stop any more; what is left of it is removed by the next plimsoll.
        let _ = self.server.release(around.stop);
    }
}

fn told(failed: Failed) -> Error {
    match failed.error {
        Error::Server(text) if !failed.log_tail.is_empty() => {
            Error::Server(format!("{text}\nthe last lines of its log:\n{}", failed.log_tail))
        }
        error => error,
    }
}
