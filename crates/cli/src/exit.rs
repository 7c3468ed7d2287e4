//! Exit codes. One place, one exhaustive match.

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use lab::Class;

use crate::show::terminal::tell;

/// How a command ended.
#[derive(Debug)]
pub(crate) enum End {
    /// Everything that was asked for was done.
    Done,
    /// It was done, but a run failed.
    RunFailed,
    /// As the tool whose command line this is ends.
    OfTool(u8),
    /// It was done, but a verdict asked for as a gate was not met.
    GateUnmet,
    /// It was done, but too few runs count for a verdict that the study asks for.
    TooFewBlocks,
    /// It was done, and a bundle is not what it says.
    NotVerified,
}

/// Why a command could not do what it was asked for.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The lab's words and sort.
    Lab(lab::Error),
    /// Parts of it failed, each has been told; what is left is the exit code.
    Told(Class),
    /// The reader of standard output went away; nothing is wrong.
    OutputClosed,
    /// The flags themselves, as clap says it.
    Flags(clap::Error),
    /// Anything else that was asked for wrongly.
    Usage(String),
    /// Anything else that failed.
    Other(anyhow::Error),
}

impl<E: Into<lab::Error>> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::Lab(error.into())
    }
}

/// A failure to write an output, told apart from a reader that has seen enough.
pub(crate) fn output(error: std::io::Error) -> Failure {
    if error.kind() == std::io::ErrorKind::BrokenPipe {
        Failure::OutputClosed
    } else {
        Failure::Other(anyhow::Error::new(error).context("writing the output failed"))
    }
}

/// Says what went wrong, once, and gives the documented exit code: 0 done; 1 a run failed, a gate was not met,
/// too few runs count for a verdict, or a bundle does not verify; 2 usage or study-file error; 3 a server could not be had or
/// started; 4 interrupted, resumable.
pub(crate) fn code_of(ended: Result<End, Failure>) -> ExitCode {
    let code = match &ended {
        Ok(End::Done) | Err(Failure::OutputClosed) => 0,
        Ok(End::RunFailed | End::GateUnmet | End::TooFewBlocks | End::NotVerified)
        | Err(Failure::Other(_)) => 1,
        Ok(End::OfTool(code)) => i32::from(*code),
        Err(Failure::Usage(_)) => 2,
        Err(Failure::Flags(error)) => error.exit_code(),
        Err(Failure::Told(class)) => class_code(*class),
        Err(Failure::Lab(error)) => class_code(error.class()),
    };
    match ended {
        Ok(_) | Err(Failure::OutputClosed | Failure::Told(_)) => {}
        // A terminal that has gone away cannot be told so.
        Err(Failure::Flags(error)) => drop(without_bad_tip(error).print()),
        Err(Failure::Usage(text)) => tell!("error: {text}"),
        Err(Failure::Other(error)) => tell!("error: {error:#}"),
        Err(Failure::Lab(lab::Error::Study(problems) | lab::Error::StudyServer(problems))) => {
            // It colours what it quotes; what it quotes has been looked through.
            let text = problems.render(crate::show::has_colour(&std::io::stderr()));
            crate::show::terminal::draw(&format!("{text}\n"));
        }
        Err(Failure::Lab(error)) if error.class() == Class::Interrupted => tell!("{error}"),
        Err(Failure::Lab(error)) => tell!("error: {}", with_causes(&error)),
    }
    ExitCode::from(code as u8)
}

/// clap advises `-- -5` for an option that it does not know. Nothing here but the commands of sandboxes takes anything
/// behind `--`, and they say so themselves.
fn without_bad_tip(mut error: clap::Error) -> clap::Error {
    if error.kind() == clap::error::ErrorKind::UnknownArgument
        && let Some(ContextValue::StyledStrs(tips)) = error.get(ContextKind::Suggested)
        && tips.iter().any(|tip| tip.to_string().contains("as a value"))
    {
        error.remove(ContextKind::Suggested);
    }
    error
}

/// The exit code of a class.
pub(crate) fn class_code(class: Class) -> i32 {
    match class {
        Class::Run => 1,
        Class::Usage => 2,
        Class::Server => 3,
        Class::Interrupted => 4,
    }
}

/// An error and what caused it, where the error does not say that itself.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let words = next.to_string();
        if !text.contains(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        cause = next.source();
    }
    text
}
