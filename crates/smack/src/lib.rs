//! The Super Smack language: .smack files as Super Smack 1.2 and 1.3 run them, on Plimsoll's load engine.
//!
//! Never here: anything the other rooms need.

pub mod builtin;
pub mod dictionary;
pub mod error;
pub mod gen_data;
pub mod lexer;
pub mod parse;
pub mod program;
pub mod report;
pub mod run;
pub mod session;
pub mod smacks;
pub mod statement;
pub mod syntax;
pub mod table;

pub use error::Error;
pub use report::{Report, Timing};
pub use run::{Options, check, run};
pub use session::Printer;
