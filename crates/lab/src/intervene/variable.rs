//! Which variables of the server a statement changes, and whether it changes them for the sessions of the load.

/// A variable that a statement sets for the whole server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Assignment {
    pub(crate) name: String,
    /// `None` where it is no constant (`DEFAULT`, an expression, a reset).
    pub(crate) value: Option<String>,
}

/// What a statement does to variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Sets them for the whole server, at once.
    Global(Vec<Assignment>),
    /// Writes them into the server's configuration, which it reads again when it is told to (PostgreSQL).
    Configured(Vec<Assignment>),
    /// Has the server read its configuration.
    Reload,
    /// Sets something of the session that sends it.
    Session,
    /// Something else: an index, a flush, a switch of a plugin.
    Other,
}

/// What becomes of variables by a statement.
pub(crate) fn effect(sql: &str) -> Effect {
    let sql = sql.trim().trim_end_matches(';').trim_end();
    let lower = sql.to_ascii_lowercase();
    let words: Vec<&str> = lower.split_whitespace().collect();
    match words.as_slice() {
        ["set", ..] => set(sql[3..].trim_start()),
        ["alter", "system", "set", ..] => {
            let rest = after_words(sql, 3);
            Effect::Configured(assignment(rest, true).into_iter().collect())
        }
        ["alter", "system", "reset", name, ..] => {
            Effect::Configured(vec![Assignment { name: (*name).to_owned(), value: None }])
        }
        ["select", ..] if lower.contains("pg_reload_conf") => Effect::Reload,
        _ => Effect::Other,
    }
}

/// The text behind so many words.
fn after_words(text: &str, words: usize) -> &str {
    (0..words).fold(text, |rest, _| rest.find(char::is_whitespace).map_or("", |at| rest[at..].trim_start()))
}

/// `SET`, without that word. As in MySQL, an assignment without a scope has that of the one before it.
fn set(list: &str) -> Effect {
    let mut found = Vec::new();
    let mut is_global = false;
    for part in parts(list) {
        let part = part.trim();
        let lower = part.to_ascii_lowercase();
        let scope = ["@@global.", "@@persist.", "global ", "persist "]
            .iter()
            .find(|scope| lower.starts_with(**scope));
        let bare = match scope {
            Some(scope) => {
                is_global = true;
                &part[scope.len()..]
            }
            None if lower.starts_with("@@")
                || lower.starts_with("session ")
                || lower.starts_with("local ") =>
            {
                return Effect::Session;
            }
            None => part,
        };
        if !is_global {
            return Effect::Session;
        }
        found.extend(assignment(bare, false));
    }
    if is_global { Effect::Global(found) } else { Effect::Session }
}

/// `name = value`; `may_say_to`: or `name TO value`.
fn assignment(text: &str, may_say_to: bool) -> Option<Assignment> {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || "_.".contains(c);
    let text = text.trim_start();
    let end = text.find(|c| !is_of_name(c)).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let rest = rest.trim_start();
    let value = rest.strip_prefix(":=").or_else(|| rest.strip_prefix('=')).or_else(|| {
        let is_to = may_say_to && rest.get(..3).is_some_and(|word| word.eq_ignore_ascii_case("to "));
        is_to.then(|| &rest[3..])
    })?;
    (!name.is_empty()).then(|| Assignment { name: name.to_owned(), value: constant(value.trim()) })
}

fn constant(text: &str) -> Option<String> {
    for quote in ['\'', '"'] {
        let inner = text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
        if let Some(inner) = inner {
            return (!inner.contains(quote) && !inner.contains('\\')).then(|| inner.to_owned());
        }
    }
    let is_plain = !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "_.+-".contains(c));
    (is_plain && !text.eq_ignore_ascii_case("default")).then(|| text.to_owned())
}

/// The parts of a list between its commas, those in quotes and brackets left alone.
fn parts(list: &str) -> Vec<&str> {
    let (mut parts, mut from, mut depth, mut quote) = (Vec::new(), 0, 0_i32, None);
    for (at, c) in list.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"' | '`') => quote = Some(c),
            (None, '(') => depth += 1,
            (None, ')') => depth -= 1,
            (None, ',') if depth == 0 => {
                parts.push(&list[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&list[from..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set_to(name: &str, value: &str) -> Assignment {
        Assignment { name: name.to_owned(), value: Some(value.to_owned()) }
    }

    #[test]
    fn what_is_set_for_the_whole_server_is_known_by_name_and_value() {
        for (sql, name, value) in [
            ("SET GLOBAL general_log = ON", "general_log", "ON"),
            ("set global general_log=on;", "general_log", "on"),
            ("SET @@GLOBAL.log_output = 'TABLE'", "log_output", "TABLE"),
            ("SET PERSIST max_connections := 500", "max_connections", "500"),
        ] {
            assert_eq!(effect(sql), Effect::Global(vec![set_to(name, value)]), "{sql}");
        }
        let two = effect("SET GLOBAL log_output = 'FILE,TABLE', general_log = 1");
        assert_eq!(two, Effect::Global(vec![set_to("log_output", "FILE,TABLE"), set_to("general_log", "1")]));
        for sql in ["SET GLOBAL max_connections = DEFAULT", "SET GLOBAL max_connections = 2 * (3, 4)"] {
            let unknown = Assignment { name: "max_connections".to_owned(), value: None };
            assert_eq!(effect(sql), Effect::Global(vec![unknown]), "{sql}");
        }
    }

    #[test]
    fn postgresql_writes_first_and_reads_when_it_is_told() {
        let wanted = Effect::Configured(vec![set_to("synchronous_commit", "off")]);
        for sql in
            ["ALTER SYSTEM SET synchronous_commit = off", "alter system  set synchronous_commit TO 'off'"]
        {
            assert_eq!(effect(sql), wanted, "{sql}");
        }
        let reset = Assignment { name: "synchronous_commit".to_owned(), value: None };
        assert_eq!(effect("ALTER SYSTEM RESET synchronous_commit;"), Effect::Configured(vec![reset]));
        assert_eq!(effect("SELECT pg_reload_conf()"), Effect::Reload);
    }

    #[test]
    fn what_a_session_sets_is_its_own() {
        for sql in [
            "SET general_log = ON",
            "SET SESSION sort_buffer_size = 1000",
            "SET @@sort_buffer_size = 1",
            "SET @@session.sort_buffer_size = 1",
            "SET sort_buffer_size = 1, GLOBAL general_log = ON",
            "set synchronous_commit to off",
        ] {
            assert_eq!(effect(sql), Effect::Session, "{sql}");
        }
        for sql in ["CREATE INDEX k ON sbtest1 (c)", "SELECT 1", "settle", ""] {
            assert_eq!(effect(sql), Effect::Other, "{sql}");
        }
    }
}
