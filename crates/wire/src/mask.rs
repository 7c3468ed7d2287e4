//! Where passwords stand in texts that hold servers' URLs, so that they can be shown without them.
//!
//! A URL that [`Target::parse`] accepts is taken apart as it does that. Of one that it refuses (a password with a `/` in
//! it ends the host early) everything is taken for the password that may be one.

use std::ops::Range;

use crate::target::Target;
use crate::url::decode;

/// What stands in a password's place.
const MASK: &str = "***";

/// A value or an argument of a command line, in which a URL goes on to the end (`--server=mysql://...`), without
/// passwords.
pub fn value(text: &str) -> String {
    replaced(text, &value_spans(text))
}

/// The same length, an asterisk for each byte of a password.
pub fn value_stars(text: &str) -> String {
    starred(text, &value_spans(text))
}

/// Prose, in which URLs end at blanks and quotes, without passwords.
pub fn prose(text: &str) -> String {
    replaced(text, &prose_spans(text))
}

/// The same length, an asterisk for each byte of a password.
pub fn prose_stars(text: &str) -> String {
    starred(text, &prose_spans(text))
}

/// Where the passwords of [`value`] are.
pub fn value_spans(text: &str) -> Vec<Range<usize>> {
    match text.find("://") {
        Some(at) => {
            let start = scheme_start(text, at);
            shifted(url_spans(&text[start..]), start)
        }
        None => Vec::new(),
    }
}

/// Where the passwords of [`prose`] are.
pub fn prose_spans(text: &str) -> Vec<Range<usize>> {
    let mut spans = Vec::new();
    let mut from = 0;
    while let Some(at) = text[from..].find("://").map(|at| from + at) {
        let start = scheme_start(text, at);
        let rest = &text[at + 3..];
        let until =
            |ends: &str| rest.find(|c: char| c.is_whitespace() || ends.contains(c)).unwrap_or(rest.len());
        let (mut length, wide) = (until("\"'`<>"), until("\"`<>"));
        // An apostrophe may be part of the password.
        if !rest[..length].contains('@') && rest[..wide].contains('@') {
            length = wide;
        }
        let end = at + 3 + length;
        spans.extend(shifted(url_spans(&text[start..end]), start));
        from = end.max(at + 3);
    }
    spans
}

fn scheme_start(text: &str, colon: usize) -> usize {
    let is_scheme = |c: char| c.is_ascii_alphanumeric() || c == '+';
    text[..colon]
        .rfind(|c: char| !is_scheme(c))
        .map_or(0, |before| before + text[before..].chars().next().map_or(1, char::len_utf8))
}

fn shifted(spans: Vec<Range<usize>>, by: usize) -> Vec<Range<usize>> {
    spans.into_iter().map(|span| span.start + by..span.end + by).collect()
}

/// Of a URL, from its scheme to its end.
fn url_spans(url: &str) -> Vec<Range<usize>> {
    let Some(authority) = url.find("://").map(|at| at + 3) else { return Vec::new() };
    // A `#` in a password begins a fragment for the parser, and what follows is still the password.
    let has_login_behind = url.split_once('#').is_some_and(|(_, fragment)| fragment.contains('@'));
    let is_known = Target::parse(url).is_ok() && !has_login_behind;
    let fragment = url.find('#').filter(|_| is_known).unwrap_or(url.len());
    let query = url[authority..fragment].find('?').map(|at| authority + at);
    let login = match is_known {
        true => {
            let end = query.unwrap_or(fragment);
            let end = url[authority..end].find('/').map_or(end, |at| authority + at);
            login_span(url, authority, end)
        }
        false => login_span(url, authority, url.len()).or_else(|| port_that_is_none(url, authority)),
    };
    let mut spans: Vec<Range<usize>> = login.into_iter().collect();
    let mut at = query.map_or(fragment, |query| query + 1);
    for pair in url[at..fragment].split('&') {
        if let Some((key, value)) = pair.split_once('=')
            && is_password(&decode(key).unwrap_or_else(|_| key.to_owned()))
        {
            let start = at + key.len() + 1;
            spans.push(start..start + value.len());
        }
        at += pair.len() + 1;
    }
    merged(spans)
}

/// `user:password@`, the password, where the last `@` before `end` ends it.
fn login_span(url: &str, authority: usize, end: usize) -> Option<Range<usize>> {
    let host = authority + url[authority..end].rfind('@')?;
    let colon = authority + url[authority..host].find(':')?;
    Some(colon + 1..host)
}

/// What stands in a port's place in a URL without a host behind it: `mysql://root:secret`.
fn port_that_is_none(url: &str, authority: usize) -> Option<Range<usize>> {
    let end = url[authority..].find(['/', '?', '#']).map_or(url.len(), |at| authority + at);
    let colon = authority + url[authority..end].rfind(':')?;
    let port = &url[colon + 1..end];
    (!port.is_empty() && !port.bytes().all(|byte| byte.is_ascii_digit())).then_some(colon + 1..end)
}

/// Whether what a name stands for is a password.
pub fn is_password(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["password", "passwd", "pwd"].iter().any(|word| name.ends_with(word))
}

fn merged(mut spans: Vec<Range<usize>>) -> Vec<Range<usize>> {
    spans.retain(|span| !span.is_empty());
    spans.sort_by_key(|span| span.start);
    let mut out: Vec<Range<usize>> = Vec::new();
    for span in spans {
        match out.last_mut() {
            Some(last) if span.start <= last.end => last.end = last.end.max(span.end),
            _ => out.push(span),
        }
    }
    out
}

fn replaced(text: &str, spans: &[Range<usize>]) -> String {
    let (mut out, mut at) = (String::with_capacity(text.len()), 0);
    for span in spans {
        out.push_str(&text[at..span.start]);
        out.push_str(MASK);
        at = span.end;
    }
    out.push_str(&text[at..]);
    out
}

fn starred(text: &str, spans: &[Range<usize>]) -> String {
    let (mut out, mut at) = (String::with_capacity(text.len()), 0);
    for span in spans {
        out.push_str(&text[at..span.start]);
        out.push_str(&"*".repeat(span.len()));
        at = span.end;
    }
    out.push_str(&text[at..]);
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn passwords_of_values_are_masked_wherever_a_url_has_them() {
        for (given, shown) in [
            ("mysql://root:geheim@h:1/db", "mysql://root:***@h:1/db"),
            ("--server=postgres://u:p@ss@h/db?x=a:b@c", "--server=postgres://u:***@c"),
            ("server=postgres://u:p@ss@h/db", "server=postgres://u:***@h/db"),
            ("mysql://root@h/db?password=geheim&tls=required", "mysql://root@h/db?password=***&tls=required"),
            (
                "mysql://root@h/db?tls=required&p%61ssword=ge%68eim",
                "mysql://root@h/db?tls=required&p%61ssword=***",
            ),
            ("mysql://root:one@h/db?password=two", "mysql://root:***@h/db?password=***"),
            ("mysql://root@h/db?passwd=geheim", "mysql://root@h/db?passwd=***"),
            // Refused by the parser, and yet somebody's password.
            ("mysql://root:ge/heim@h/db", "mysql://root:***@h/db"),
            ("mysql://root:ge?heim@h/db", "mysql://root:***@h/db"),
            ("mysql://root:ge#heim@h/db", "mysql://root:***@h/db"),
            ("mysql://root:12/34@h/db", "mysql://root:***@h/db"),
            ("mysql://root:ge heim'\"@h/db", "mysql://root:***@h/db"),
            ("mysql://root:geheim", "mysql://root:***"),
            ("oracle://u:secret@h/", "oracle://u:***@h/"),
            ("mysql://root@h:3306/db", "mysql://root@h:3306/db"),
            ("mysql://h/?password=", "mysql://h/?password="),
            ("mariadb@10.11", "mariadb@10.11"),
            ("größe://u:p@h", "größe://u:***@h"),
        ] {
            assert_eq!(value(given), shown, "{given}");
            assert_eq!(value(&value(given)), shown, "a second time");
        }
        assert_eq!(value_stars("mysql://u:größe@h"), "mysql://u:*******@h");
    }

    #[test]
    fn passwords_in_prose_are_masked() {
        for (given, shown) in [
            ("a = \"postgres://u:p@ss@h/d\" # x://y", "a = \"postgres://u:***@h/d\" # x://y"),
            (
                "a = 'mysql://u:p@h/d', 'mysql://h/?password=x'",
                "a = 'mysql://u:***@h/d', 'mysql://h/?password=***'",
            ),
            ("\"mysql://u:it's@h/d\"", "\"mysql://u:***@h/d\""),
            ("`mysql://u:p@h` is not", "`mysql://u:***@h` is not"),
            ("http://example.org/a:b", "http://example.org/a:b"),
            ("mysql://:Q@0Aa!#Q@a/db", "mysql://:***@a/db"),
            ("no url", "no url"),
        ] {
            assert_eq!(prose(given), shown, "{given}");
        }
    }

    proptest! {
        #[test]
        fn no_part_of_a_password_is_left(
            user in "[a-z]{0,5}", password in "[!-~]{6,20}", host in "[a-z]{1,5}", in_query: bool,
        ) {
            let password = format!("Q{password}Q").replace('%', "Z");
            prop_assume!(!in_query || !password.contains(['&', '#']));
            let url = match in_query {
                true => format!("mysql://{user}@{host}/db?password={password}"),
                false => format!("mysql://{user}:{password}@{host}/db"),
            };
            let shown = value(&url);
            prop_assert!(!shown.contains(&password), "{shown}");
            for part in password.split(['@', ':', '/', '?', '#', '&', '=']).filter(|part| part.len() > 3) {
                prop_assert!(!shown.contains(part), "{url}: {shown}");
            }
        }

        #[test]
        fn any_text_is_no_panic(text in any::<String>(), more in "[:/@?#&=a-zü'\" ]{0,40}") {
            for text in [&text, &more, &format!("{text}://{more}")] {
                prop_assert_eq!(value_stars(text).len(), text.len());
                prop_assert_eq!(prose_stars(text).len(), text.len());
            }
        }
    }
}
