//! LuaJIT and the sysbench API: existing scripts run unchanged, each session in a Lua state of its own, on a
//! stack of its own on the load engine.
//!
//! Never here: anything the other rooms need.

mod course;
mod error;
mod ffi;
mod fiber;
mod histogram;
mod host;
mod lookout;
mod messages;
mod native;
mod options;
mod output;
pub mod run;
mod script;
mod session;
mod settings;
mod state;
mod symbols;
mod watch;

pub use error::Error;
pub use lookout::Stuck;
pub use run::{Finished, Onlooker, Outcome, run};
