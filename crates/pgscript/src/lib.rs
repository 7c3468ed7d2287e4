//! pgbench's script language: scripts are read into [`Script`]s, expressions are evaluated, random numbers are drawn.
//! `plimsoll pgbench` and the workloads of pgbench's scripts both use it.
//!
//! Never here: servers, sockets, clocks, files, threads.

pub mod builtin;
mod commands;
mod evaluate;
mod expression;
mod function;
pub mod random;
mod script;
mod sql;
mod token;
mod value;

pub use evaluate::Scope;
pub use expression::Expr;
pub use script::{Action, Argument, Command, Names, Place, Script, SyntaxError};
pub use sql::{Sql, Store, statements};
pub use value::Value;
