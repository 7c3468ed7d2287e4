//! The Super Smack language: .smack files as Super Smack 1.2 and 1.3 run them, on Plimsoll's load engine.
//!
//! Never here: anything the other rooms need.

mod arguments;
pub mod builtin;
mod dictionary;
mod error;
mod gen_data;
mod lexer;
mod parse;
pub mod program;
mod report;
pub mod run;
mod session;
pub mod smacks;
mod statement;
mod syntax;
mod table;

pub use arguments::check;
pub use error::Error;
pub use report::{Report, Timing};
pub use run::{Options, run};
pub use session::Printer;
