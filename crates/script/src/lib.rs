//! LuaJIT and the sysbench API: existing scripts run unchanged, each session in a Lua state of its own, on a
//! stack of its own on the load engine.
//!
//! Never here: anything the other rooms need.

pub mod course;
pub mod error;
pub mod ffi;
pub mod fiber;
pub mod histogram;
pub mod host;
mod lookout;
mod messages;
pub mod native;
pub mod options;
pub mod output;
pub mod run;
pub mod script;
pub mod session;
pub mod settings;
pub mod state;
pub mod symbols;
pub mod watch;

pub use error::Error;
pub use lookout::Stuck;
pub use run::{Finished, Onlooker, Outcome, run};
