//! What all workloads of drawn transactions have in common, once their options are fixed.

use std::collections::BTreeMap;
use std::sync::Arc;

use load::{SessionFactory, StepResult};
use wire::Target;

use crate::control::Control;
use crate::engine::sums::{self, Sum};
use crate::engine::tally::Tally;
use crate::engine::{self, Draw, DrawnWorkload};
use crate::loader::{self, LoadPlan, TableLoad};
use crate::options::Options;
use crate::{
    Baseline, Check, Configured, Error, Figure, LoadAt, LoadReport, Needs, Progress, Ran, StatementDoc,
};

/// A workload with its options fixed.
#[derive(Debug)]
pub(super) struct Drawn<D> {
    pub(super) options: Options,
    pub(super) workload: Arc<DrawnWorkload<D>>,
}

/// What is its own beside its transactions.
pub(super) trait Own: Send + Sync {
    /// See [`Configured::dataset_key`].
    fn key(&self) -> String;
    /// See [`Configured::data_bytes`].
    fn bytes_on_disk(&self) -> u64;
    fn tables(&self) -> Vec<TableLoad<'_>>;
    /// The names of the tables that runs leave with as many rows as a load makes.
    fn lasting_tables(&self) -> Vec<(String, u64)> {
        self.tables().into_iter().map(|table| (table.name, table.rows)).collect()
    }
    /// What the tables must hold after a run.
    fn sums(&self) -> Vec<Sum>;
    /// What else must be true of them.
    fn conditions(&self, _control: &mut Control) -> Result<Vec<Check>, Error> {
        Ok(Vec::new())
    }
    /// What stands for the table that a statement draws, for people.
    fn table_shown(&self) -> &str {
        ""
    }
    /// See [`Configured::one_process_only`].
    fn bound_to_one_process(&self) -> Option<String> {
        None
    }
    /// See [`Configured::figures`].
    fn own_figures(&self, _step: &StepResult) -> Vec<Figure> {
        Vec::new()
    }
}

impl<D: Draw> Configured for Drawn<D>
where
    Drawn<D>: Own,
{
    fn options(&self) -> BTreeMap<String, String> {
        self.options.all().clone()
    }

    fn statement_classes(&self) -> Vec<String> {
        self.workload.class_names()
    }

    fn statements(&self) -> Vec<StatementDoc> {
        self.workload.documentation(self.table_shown())
    }

    fn dataset_key(&self) -> String {
        self.key()
    }

    fn data_bytes(&self) -> u64 {
        self.bytes_on_disk()
    }

    fn needs(&self, sessions: u32) -> Needs {
        self.workload.needs(sessions)
    }

    fn load(&self, at: &LoadAt, progress: &(dyn Fn(Progress) + Sync)) -> Result<LoadReport, Error> {
        loader::load(at, &self.workload.dialect, LoadPlan { tables: self.tables() }, progress)
    }

    fn rows_by_table(&self) -> Result<Vec<(String, u64)>, Error> {
        Ok(self.lasting_tables())
    }

    fn baseline(&self, target: &Target, counted: &BTreeMap<String, u64>) -> Result<Baseline, Error> {
        sums::baseline(target, &self.sums(), &self.workload.tally, counted)
    }

    fn check(&self, target: &Target, before: &Baseline, _ran: &Ran) -> Result<Vec<Check>, Error> {
        let mut control = Control::connect(target, "check the tables after the run")?;
        let mut checks = sums::check(&mut control, &self.sums(), before, &self.workload.tally)?;
        checks.extend(self.conditions(&mut control)?);
        Ok(checks)
    }

    fn sessions(&self, target: &Target, seed: u64) -> Box<dyn SessionFactory> {
        engine::sessions(&self.workload, target, seed)
    }

    fn tally(&self) -> Option<&Tally> {
        Some(&self.workload.tally)
    }

    fn one_process_only(&self, _sessions: u32) -> Option<String> {
        self.bound_to_one_process()
    }

    fn figures(&self, step: &StepResult) -> Vec<Figure> {
        self.own_figures(step)
    }
}
