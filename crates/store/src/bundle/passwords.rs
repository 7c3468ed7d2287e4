//! Passwords in texts of others: what a statement, an option or a variable of the environment sets. Those of URLs go with
//! their users, see [`super::private`].

/// What stands in their place.
pub(super) const INSTEAD: &str = "***";

/// Names that end so have a secret for their value.
const NAMES: [&str; 5] = ["password", "passwd", "_pwd", "secret", "_token"];
/// Whatever follows these is a secret, up to a blank: tokens of HTTP and of hubs.
const TOKENS: [&str; 4] = ["authorization: bearer ", "authorization: basic ", "plimsoll_", "token="];
/// Shorter ones are words.
const TOKEN_MIN: usize = 12;
/// What is said about passwords and is none: `(using password: YES)`, `disconnect_on_expired_password = ON`.
const NO_SECRETS: [&str; 8] = ["yes", "no", "on", "off", "true", "false", "null", "none"];
/// Between `IDENTIFIED` and the text that it is by.
const CLAUSE_MAX: usize = 80;

/// The text without them, and how many there were.
pub(super) fn without(text: &str) -> (String, u64) {
    // Of ASCII letters alone, so that places are the same.
    let lower = text.to_ascii_lowercase();
    let mut found: Vec<(usize, usize)> = Vec::new();
    for name in NAMES {
        let places = lower.match_indices(name).map(|(at, _)| at + name.len());
        found.extend(places.filter_map(|at| value_of(&lower, at)));
    }
    found.extend(lower.match_indices("identified").filter_map(|(at, _)| identified(&lower, at)));
    found.extend(lower.match_indices("password for ").filter_map(|(at, _)| set_for(&lower, at)));
    for token in TOKENS {
        let places = lower.match_indices(token).map(|(at, _)| at + token.len());
        found.extend(places.filter_map(|at| token_at(&lower, at)));
    }
    found.extend(lower.match_indices(" -p").filter_map(|(at, _)| of_client(&lower, at)));
    found.sort_unstable();
    let (mut out, mut at, mut count) = (String::with_capacity(text.len()), 0, 0);
    for (start, end) in found {
        // Two names can lead to one value.
        if start < at || text[start..end].is_empty() || &text[start..end] == INSTEAD {
            continue;
        }
        out.push_str(&text[at..start]);
        out.push_str(INSTEAD);
        (at, count) = (end, count + 1);
    }
    out.push_str(&text[at..]);
    (out, count)
}

/// Where the value stands of a name that ends here: `name = "..."`, `"name": "..."`, `NAME=...`, `PASSWORD '...'`.
fn value_of(lower: &str, end: usize) -> Option<(usize, usize)> {
    let rest = &lower[end..];
    // The name's own closing quote, escaped where the text is within another.
    let name_end = rest.len() - rest.trim_start_matches(['"', '\\']).len();
    let spaced = &rest[name_end..];
    let sign_at = name_end + spaced.len() - spaced.trim_start_matches([' ', '\t']).len();
    let sign = rest[sign_at..].chars().next().filter(|sign| "=:(".contains(*sign));
    let after = sign_at + usize::from(sign.is_some());
    let value_at = after + rest[after..].len() - rest[after..].trim_start_matches([' ', '\t']).len();
    if let Some((start, length)) = quoted(&rest[value_at..]) {
        // A quote behind a bare word may begin anything but in SQL.
        let is_of_sql = ["'", "e'", "n'", "$$"].iter().any(|quote| rest[value_at..].starts_with(quote));
        let is_value = sign.is_some() || (name_end == 0 && is_of_sql);
        let span = (end + value_at + start, end + value_at + start + length);
        return (is_value && is_secret(&lower[span.0..span.1])).then_some(span);
    }
    let is_bare = matches!(sign, Some('=' | ':')) && sign_at == 0;
    let length = rest[value_at..].find([' ', '\t', '\n', ';', ',', '"', '\'', ')', '\\', '&']);
    let length = length.unwrap_or(rest.len() - value_at);
    let value = &rest[value_at..value_at + length];
    // A statement's parameters are none.
    let is_parameter = value.starts_with([':', '$', '?', '@']);
    (is_bare && !is_parameter && is_secret(value)).then_some((end + value_at, end + value_at + length))
}

/// `SET PASSWORD FOR 'u'@'h' = '...'`.
fn set_for(lower: &str, at: usize) -> Option<(usize, usize)> {
    let clause = &lower[at..];
    let sign = clause.find(['=', ';', '\n']).filter(|sign| clause[*sign..].starts_with('='))?;
    let value = sign + 1 + clause[sign + 1..].len() - clause[sign + 1..].trim_start().len();
    let (start, length) = quoted(&clause[value..])?;
    Some((at + value + start, at + value + start + length))
}

fn token_at(lower: &str, at: usize) -> Option<(usize, usize)> {
    let is_of_token = |c: char| c.is_ascii_alphanumeric() || "-._~+/=".contains(c);
    let length = lower[at..].find(|c| !is_of_token(c)).unwrap_or(lower.len() - at);
    (length >= TOKEN_MIN).then_some((at, at + length))
}

/// `mysql -uroot -p...`, on a line that calls a client of these servers; elsewhere `-p` is a port, a path or a process.
fn of_client(lower: &str, at: usize) -> Option<(usize, usize)> {
    let line = &lower[lower[..at].rfind('\n').map_or(0, |end| end + 1)..at];
    let is_client = ["mysql", "mariadb"].iter().any(|name| {
        line.match_indices(name).any(|(from, _)| {
            line[from..].starts_with(&format!("{name} ")) || line[from..].starts_with(&format!("{name}dump "))
        })
    });
    let start = at + " -p".len();
    let length = lower[start..].find(char::is_whitespace).unwrap_or(lower.len() - start);
    (is_client && length > 0).then_some((start, start + length))
}

fn is_secret(value: &str) -> bool {
    !value.is_empty() && !NO_SECRETS.contains(&value)
}

/// The text of `IDENTIFIED [WITH plugin] BY '...'`, and of a hash behind `AS`.
fn identified(lower: &str, at: usize) -> Option<(usize, usize)> {
    let clause = &lower[at..];
    let end = clause.find([';', '\n']).unwrap_or(clause.len()).min(CLAUSE_MAX);
    let head = clause.get(..end).unwrap_or(clause);
    let by =
        [" by ", " as ", " password "].iter().filter_map(|word| Some(head.find(word)? + word.len())).max()?;
    let (start, length) = quoted(clause[by..].trim_start())?;
    let by = by + clause[by..].len() - clause[by..].trim_start().len();
    Some((at + by + start, at + by + start + length))
}

/// Where the inside of a quoted text begins, and its length, where the text begins with a quote: also `E'...'`, `$$...$$`,
/// and with quotes in it that are doubled.
fn quoted(text: &str) -> Option<(usize, usize)> {
    if let Some(inside) = text.strip_prefix("$$") {
        return Some((2, inside.find("$$")?));
    }
    if let Some(rest) = text.strip_prefix(['e', 'n']).filter(|rest| rest.starts_with('\'')) {
        return quoted(rest).map(|(start, length)| (start + 1, length));
    }
    let escape = text.len() - text.trim_start_matches('\\').len();
    let quote = text[escape..].chars().next().filter(|quote| "'\"".contains(*quote))?;
    let start = escape + 1;
    // The end is written as the beginning.
    let ending = format!("{}{quote}", &text[..escape]);
    let mut end = start + text[start..].find(&ending)?;
    while escape == 0 && text[end + 1..].starts_with(quote) {
        end += 2 + text[end + 2..].find(quote)?;
    }
    Some((start, end - start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_found_where_they_are_set_and_nothing_else_is() {
        for (text, without_it) in [
            ("CREATE USER a IDENTIFIED BY 'geheim';", "CREATE USER a IDENTIFIED BY '***';"),
            (
                "create user a identified with mysql_native_password by \"geheim\"",
                "create user a identified with mysql_native_password by \"***\"",
            ),
            ("GRANT x IDENTIFIED BY PASSWORD '*AB12'", "GRANT x IDENTIFIED BY PASSWORD '***'"),
            ("ALTER ROLE a PASSWORD 'geheim' LOGIN", "ALTER ROLE a PASSWORD '***' LOGIN"),
            ("SET PASSWORD = PASSWORD('geheim')", "SET PASSWORD = PASSWORD('***')"),
            ("CHANGE MASTER TO MASTER_PASSWORD='geheim', x=1", "CHANGE MASTER TO MASTER_PASSWORD='***', x=1"),
            ("set = { PGPASSWORD = \"geheim\", A = \"b\" }", "set = { PGPASSWORD = \"***\", A = \"b\" }"),
            (r#"{"MYSQL_PWD":"geheim","A":"b"}"#, r#"{"MYSQL_PWD":"***","A":"b"}"#),
            (r#"{"x":"{\"MYSQL_PWD\":\"geheim\"}"}"#, r#"{"x":"{\"MYSQL_PWD\":\"***\"}"}"#),
            ("MYSQL_PWD=geheim mariadbd --x", "MYSQL_PWD=*** mariadbd --x"),
            ("mariadb --password=geheim -h x", "mariadb --password=*** -h x"),
            ("SET PASSWORD FOR 'u'@'h' = 'geheim'", "SET PASSWORD FOR 'u'@'h' = '***'"),
            ("ALTER ROLE a PASSWORD E'ge\\nheim'", "ALTER ROLE a PASSWORD E'***'"),
            ("ALTER ROLE a PASSWORD $$geheim$$;", "ALTER ROLE a PASSWORD $$***$$;"),
            ("CREATE USER a IDENTIFIED BY 'ge''heim', b", "CREATE USER a IDENTIFIED BY '***', b"),
            ("\\! mysql -uroot -pgeheim test", "\\! mysql -uroot -p*** test"),
            ("Authorization: Bearer abcdef0123456789", "Authorization: Bearer ***"),
            ("https://x/?token=0123456789abcdef", "https://x/?token=***"),
            ("with plimsoll_0123456789abcdef, or", "with plimsoll_***, or"),
        ] {
            assert_eq!(without(text), (without_it.to_owned(), 1), "{text}");
        }
        for text in [
            "Access denied for user 'a'@'b' (using password: YES)",
            "disconnect_on_expired_password = \"ON\"",
            "{\"default_authentication_plugin\":\"caching_sha2_password\",\"x\":\"y\"}",
            "password_encryption = 'scram-sha-256'",
            "FATAL: password authentication failed for user \"a\"",
            "SELECT 1 FROM t WHERE password = :word AND password=$1",
            "root@localhost has an empty password ! Please set one: 'x'",
            "PASSWORD '***'",
            "identified",
            "ps -p1234 of mysqld",
            "mariadbd -p3306",
            "a bearer of news",
            "plimsoll_quickstart",
            "Größe password",
        ] {
            assert_eq!(without(text), (text.to_owned(), 0), "{text}");
        }
    }
}
