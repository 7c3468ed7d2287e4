//! The command lines that documents and help texts show.

use std::path::Path;

/// A command line, and the file or help text that shows it.
#[derive(Debug, Clone)]
pub(crate) struct Shown {
    pub(crate) place: String,
    pub(crate) line: String,
}

/// Programs whose lines are command lines; a block with one of them is a shell's.
const PROGRAMS: [&str; 5] = ["plimsoll ", "cargo ", "eval ", "sysbench ", "for "];

fn is_command(line: &str) -> bool {
    PROGRAMS.iter().any(|program| line.starts_with(program))
}

/// A form, not a command line: it has a word in capitals that stands for something, or something in brackets.
fn is_form(line: &str) -> bool {
    line.split(|c: char| c.is_whitespace() || c == '=').any(|word| {
        let stem = word.split('.').next().unwrap_or_default();
        word.starts_with('[') || stem.len() > 1 && stem.chars().all(|c| c.is_ascii_uppercase())
    })
}

/// Command lines of README, docs/ and the heads of the studies: those of blocks, and those within sentences that are
/// more than the name of a command.
pub(crate) fn documents(repository: &Path) -> Vec<Shown> {
    each(repository, |text| {
        let (blocks, spans) = parts(text);
        let mut lines: Vec<String> = blocks.iter().flat_map(|block| commands(block)).collect();
        lines.extend(spans.into_iter().filter(|span| !is_form(span) && !is_name(span)));
        lines
    })
}

/// What sentences say of commands without being command lines: `plimsoll sandbox use NAME`.
pub(crate) fn forms(repository: &Path) -> Vec<Shown> {
    each(repository, |text| {
        let spans = parts(text).1.into_iter().filter(|span| span.starts_with("plimsoll "));
        spans.filter(|span| is_form(span) || is_name(span)).collect()
    })
}

/// Nothing but words of commands and flags: the name of a command.
fn is_name(span: &str) -> bool {
    ["plimsoll ", "sysbench ", "cargo "].iter().any(|program| span.starts_with(program))
        && span.split(' ').all(|word| word.chars().all(|c| c.is_ascii_lowercase() || c == '-'))
}

fn each(repository: &Path, of: impl Fn(&str) -> Vec<String>) -> Vec<Shown> {
    let mut files = vec!["README.md".to_owned()];
    for folder in ["docs", "studies", "studies/workloads"] {
        let entries = std::fs::read_dir(repository.join(folder)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let wanted = names.filter(|name| [".md", ".toml", ".sql"].iter().any(|end| name.ends_with(end)));
        files.extend(wanted.map(|name| format!("{folder}/{name}")));
    }
    files.sort();
    let mut all = Vec::new();
    for place in files {
        let text = std::fs::read_to_string(repository.join(&place)).unwrap();
        // Of studies and workloads only what their comments say.
        let comments = |mark: &str| {
            let lines = text.lines().filter_map(|line| line.strip_prefix(mark));
            lines.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect::<Vec<_>>().join("\n")
        };
        let text = match place.rsplit_once('.') {
            Some((_, "toml")) => comments("#"),
            // A command line in a comment is set off by two blanks; a document's by four.
            Some((_, "sql")) => comments("--").replace("\n  ", "\n    "),
            _ => text,
        };
        all.extend(of(&text).into_iter().map(|line| Shown { place: place.clone(), line }));
    }
    all
}

/// The blocks of a document that a shell would read, and the code within its sentences.
fn parts(text: &str) -> (Vec<Vec<String>>, Vec<String>) {
    let (mut blocks, mut prose) = (Vec::new(), String::new());
    let mut block: Option<(bool, Vec<String>)> = None;
    let mut is_after_blank = true;
    for line in text.lines().chain([""]) {
        let (is_fence, is_blank) = (line.trim_start().starts_with("```"), line.trim().is_empty());
        let is_indented = line.starts_with("    ");
        match &mut block {
            Some((true, _)) if is_fence => blocks.extend(block.take().map(|(_, lines)| lines)),
            Some((true, lines)) => lines.push(line.to_owned()),
            Some((false, lines)) if is_indented => lines.push(line.to_owned()),
            _ => {
                blocks.extend(block.take().map(|(_, lines)| lines));
                if is_fence {
                    block = Some((true, Vec::new()));
                } else if is_indented && is_after_blank {
                    block = Some((false, vec![line.to_owned()]));
                } else {
                    prose.push_str(line.trim());
                    prose.push(' ');
                }
            }
        }
        is_after_blank = is_blank;
    }
    blocks.retain(|lines| lines.iter().any(|line| is_command(line.trim())));
    let spans = prose.split('`').skip(1).step_by(2).filter(|span| is_command(span)).map(str::to_owned);
    (blocks, spans.collect())
}

/// The command lines of a block: without comments, lines that go on joined, a loop as one.
fn commands(block: &[String]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let (mut is_open, mut is_loop) = (false, false);
    for line in block {
        let line = line.split(" # ").next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let (line, goes_on) = match line.strip_suffix('\\') {
            Some(line) => (line.trim_end(), true),
            None => (line, false),
        };
        match all.last_mut() {
            Some(last) if is_open => *last = format!("{last} {line}"),
            Some(last) if is_loop => *last = format!("{last}\n{line}"),
            _ => all.push(line.to_owned()),
        }
        is_open = goes_on;
        is_loop = (is_loop || line.starts_with("for ")) && line != "done";
    }
    all
}

/// The examples of all help texts, from the top down.
pub(crate) fn help_texts(help: &mut dyn FnMut(&[&str]) -> String) -> Vec<Shown> {
    let mut all = Vec::new();
    let mut open: Vec<Vec<String>> = vec![vec![]];
    while let Some(words) = open.pop() {
        // sysbench's help is sysbench's own.
        if words == ["sysbench"] || words.last().is_some_and(|word| word == "help") {
            continue;
        }
        let text = help(&words.iter().map(String::as_str).collect::<Vec<_>>());
        let place = format!("plimsoll {} --help", words.join(" "));
        let examples: Vec<&str> = text
            .lines()
            .skip_while(|line| !matches!(*line, "Example:" | "Examples:"))
            .skip(1)
            .take_while(|line| line.starts_with("  "))
            .collect();
        let is_leaf = !text.contains("\nCommands:\n");
        assert!(!examples.is_empty() || !is_leaf, "{place} has no example");
        all.extend(examples.iter().map(|line| Shown { place: place.clone(), line: line.trim().to_owned() }));
        let listed = text.lines().skip_while(|line| *line != "Commands:").skip(1);
        for line in listed.take_while(|line| !line.is_empty()) {
            if let Some(name) = line.strip_prefix("  ").filter(|rest| !rest.starts_with(' ')) {
                let name = name.split_whitespace().next().unwrap_or_default().to_owned();
                open.push(words.iter().cloned().chain([name]).collect());
            }
        }
    }
    all
}

/// Sandboxes that a script speaks of by name, and whether it makes them.
pub(crate) fn sandboxes(script: &str) -> Vec<(String, bool)> {
    let words: Vec<&str> = script.split(|c: char| c.is_whitespace() || "();\"".contains(c)).collect();
    let mut all: Vec<(String, bool)> = Vec::new();
    for at in 0..words.len() {
        if words[at] != "sandbox" || at + 1 >= words.len() {
            continue;
        }
        let rest = &words[at + 2..];
        let name = match words[at + 1] {
            "list" => None,
            "deploy" => rest.iter().skip_while(|word| **word != "--name").nth(1),
            _ => rest.iter().find(|word| !word.is_empty() && !word.starts_with('-')),
        };
        let known = |all: &[(String, bool)], name: &str| all.iter().any(|(known, _)| known == name);
        if let Some(name) = name.filter(|name| !known(&all, name)) {
            all.push(((*name).to_owned(), words[at + 1] == "deploy"));
        }
    }
    all
}
