//! What can go wrong around a script, in words for its author.

use mlua::Value;

/// Any failure of a script or of its command line.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The script failed; file, line and traceback as Lua tells them.
    #[error("{0}")]
    Script(String),
    /// Somebody asked for the end.
    #[error("stopped by the user")]
    Stopped,
    /// The script cannot be found.
    #[error("Cannot find benchmark '{name}': no such built-in test, file or module")]
    NotFound {
        /// As given.
        name: String,
    },
    /// The command line is wrong.
    #[error("{0}")]
    Usage(String),
    /// A file cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The load engine failed.
    #[error(transparent)]
    Load(#[from] load::LoadError),
    /// A native workload refused.
    #[error("{0}")]
    Workload(String),
}

impl Error {
    /// A Lua error without the wrapping that mlua puts around it.
    pub fn lua(error: mlua::Error) -> Error {
        Error::Script(message_of(&error))
    }
}

fn message_of(error: &mlua::Error) -> String {
    match error {
        // The binding adds a traceback of its own glue behind the script's.
        mlua::Error::RuntimeError(text) => {
            text.rsplit_once("\nstack traceback:").map_or(text.as_str(), |(head, _)| head).to_owned()
        }
        mlua::Error::SyntaxError { message, .. } => message.clone(),
        mlua::Error::CallbackError { cause, .. } => message_of(cause),
        mlua::Error::WithContext { cause, .. } => message_of(cause),
        other => other.to_string(),
    }
}

/// An error value of Lua as text.
pub(crate) fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.to_string_lossy(),
        Value::Error(error) => message_of(error),
        Value::Table(table) => table
            .get::<Option<String>>("sql_errmsg")
            .ok()
            .flatten()
            .unwrap_or_else(|| "the script raised a table as an error".into()),
        other => other.to_string().unwrap_or_else(|_| "an error without a text".into()),
    }
}
