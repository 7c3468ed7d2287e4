//! Workloads by the names that studies and the command line use: built-in ones, or the path of a file.

use std::collections::BTreeSet;

use workload::Workload;

use crate::error::Error;
use crate::study::nearest;

/// Names of all built-in workloads.
pub fn names() -> Vec<&'static str> {
    workload::all().iter().map(|workload| workload.name()).collect()
}

/// Whether the name can be a workload.
pub fn is_known(name: &str) -> bool {
    workload::find(name).is_some()
}

/// Names of the options that a workload has; empty for an unknown one.
pub fn option_names(name: &str) -> BTreeSet<String> {
    workload::find(name)
        .map(|workload| workload.options().iter().map(|option| option.name.to_string()).collect())
        .unwrap_or_default()
}

/// The workload of that name.
pub fn find(name: &str) -> Result<&'static dyn Workload, Error> {
    workload::find(name).ok_or_else(|| {
        let hint = match nearest(name, names()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "`plimsoll workloads` lists them".to_owned(),
        };
        Error::Usage(format!("there is no workload `{name}`: {hint}"))
    })
}
