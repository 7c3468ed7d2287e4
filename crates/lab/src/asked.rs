//! What is asked of a server's variables.

use std::collections::BTreeMap;

/// Server variables that a server was started with.
#[derive(Debug, Clone, Default)]
pub(crate) struct Asked {
    /// All of them, for the record.
    pub(crate) all: BTreeMap<String, String>,
    /// Those that the user (or a profile that the user named) wanted: a server that runs with others is not the one
    /// that the cell is about.
    pub(crate) by_user: BTreeMap<String, String>,
}

impl Asked {
    /// Of a sandbox that will be deployed.
    pub(crate) fn of(spec: &sandbox::Spec) -> Asked {
        let all = spec.effective_settings();
        let plain = sandbox::Spec { settings: BTreeMap::new(), profile: None, logging: None, ..spec.clone() };
        let defaults = plain.effective_settings();
        let mut by_user = all.clone();
        by_user.retain(|name, value| defaults.get(name) != Some(value) || spec.settings.contains_key(name));
        Asked { all, by_user }
    }

    /// Of a sandbox that was deployed by hand: all that is known are its settings.
    pub(crate) fn of_sandbox(sandbox: &sandbox::Sandbox) -> Asked {
        Asked { all: sandbox.settings().clone(), by_user: BTreeMap::new() }
    }
}
