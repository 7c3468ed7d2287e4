//! The server's own counters, over a connection of the sampler's own, under common names where they mean the same.

mod mysql;
mod postgres;

pub(crate) use postgres::checkpoint_age as checkpoint_age_of_postgres;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use wire::blocking::Client;
use wire::{Protocol, Target};

use crate::sampler::Missing;
use crate::track::{Kind, Tracks};

/// How a server's figure is called here.
#[derive(Debug, Clone, Copy)]
struct Meaning {
    /// As the server calls it (a status variable, a column's alias).
    native: &'static str,
    name: &'static str,
    unit: &'static str,
    kind: Kind,
    /// Raw value to `unit`.
    factor: f64,
}

const fn counter(native: &'static str, name: &'static str, unit: &'static str) -> Meaning {
    Meaning { native, name, unit, kind: Kind::Counter, factor: 1.0 }
}

const fn gauge(native: &'static str, name: &'static str, unit: &'static str) -> Meaning {
    Meaning { native, name, unit, kind: Kind::Gauge, factor: 1.0 }
}

/// Samples one server's counters.
#[derive(Debug)]
pub(crate) struct ServerSampler {
    target: Target,
    client: Option<Client>,
    part: Part,
    /// After a lost connection: not before this moment again.
    retry_at: Option<Instant>,
    /// What could not be had, found at the first connection.
    pub missing: Vec<Missing>,
}

#[derive(Debug)]
enum Part {
    Mysql(mysql::Counters),
    Postgres(postgres::Counters),
}

/// A server that does not answer its counters within this is left alone for this second.
const PATIENCE: Duration = Duration::from_secs(3);

impl ServerSampler {
    /// Connects. A server that cannot be reached or refuses is a [`Missing`], tried again every five seconds.
    pub(crate) fn new(target: &Target) -> Self {
        let mut target = target.clone();
        target.connect_timeout = PATIENCE;
        target.statement_timeout = PATIENCE;
        let part = match target.protocol {
            Protocol::Mysql => Part::Mysql(mysql::Counters::default()),
            Protocol::Postgres => Part::Postgres(postgres::Counters::default()),
        };
        let mut sampler = Self { target, client: None, part, retry_at: None, missing: Vec::new() };
        sampler.connect();
        sampler
    }

    fn connect(&mut self) {
        let outcome = Client::connect(&self.target).and_then(|mut client| {
            let missing = match &mut self.part {
                Part::Mysql(counters) => counters.open(&mut client)?,
                Part::Postgres(counters) => counters.open(&mut client)?,
            };
            Ok((client, missing))
        });
        match outcome {
            Ok((client, missing)) => {
                self.client = Some(client);
                self.note(missing);
            }
            Err(error) => {
                self.retry_at = Some(Instant::now() + Duration::from_secs(5));
                self.note(vec![Missing::new("server counters", error.to_string())]);
            }
        }
    }

    fn note(&mut self, missing: Vec<Missing>) {
        for one in missing {
            if !self.missing.iter().any(|m| m.what == one.what) {
                self.missing.push(one);
            }
        }
    }

    /// One pass, at `t` seconds since the epoch.
    pub(crate) fn sample(&mut self, t: f64, tracks: &mut Tracks) {
        if self.client.is_none() && self.retry_at.is_none_or(|at| Instant::now() >= at) {
            self.connect();
        }
        let Some(client) = &mut self.client else { return };
        let outcome = match &mut self.part {
            Part::Mysql(counters) => counters.sample(client, t, tracks),
            Part::Postgres(counters) => counters.sample(client, t, tracks),
        };
        if let Err(error) = outcome {
            self.client = None;
            self.retry_at = Some(Instant::now() + Duration::from_secs(5));
            let why = format!("the sampler's connection was lost: {error}");
            self.note(vec![Missing::new("server counters of some seconds", why)]);
        }
    }

    pub(crate) fn close(self) {
        if let Some(client) = self.client {
            client.close();
        }
    }
}

/// Notes a figure under its common name, if it has one.
fn note(meanings: &[Meaning], native: &str, value: f64, t: f64, tracks: &mut Tracks) {
    let Some(meaning) = meanings.iter().find(|m| m.native.eq_ignore_ascii_case(native)) else { return };
    let value = value * meaning.factor;
    match meaning.kind {
        Kind::Counter => tracks.counter(t, "server", meaning.name, "", meaning.unit, value),
        Kind::Gauge => tracks.gauge(t, "server", meaning.name, "", meaning.unit, value),
    }
}

fn unix_now_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}
