//! Tokens to a [`Script`]. Definitions precede use; each mistake is told with its place and what would be right.

use crate::error::ParseError;
use crate::lexer::{Token, tokens};
use crate::syntax::*;

/// Parses a whole file.
///
/// # Errors
/// The first mistake, with its place.
pub(crate) fn parse(source: &str) -> Result<Script, ParseError> {
    let tokens = tokens(source)?;
    let end = tokens.last().map_or(Place { line: 1, column: 1 }, |(_, place)| *place);
    let mut parser = Parser { tokens, at: 0, end, sections: Vec::new() };
    let main = loop {
        let (word, place) = parser.word("a section (client, query, dictionary, table) or main")?;
        let section = match word.as_str() {
            "client" => parser.client()?,
            "query" => parser.query()?,
            "dictionary" => parser.dictionary()?,
            "table" => parser.table()?,
            "main" => break parser.main()?,
            other => {
                return Err(ParseError::at(
                    place,
                    format!("`{other}` is no section; allowed are client, query, dictionary, table, main"),
                ));
            }
        };
        parser.sections.push(section);
    };
    if let Some((token, place)) = parser.tokens.get(parser.at) {
        return Err(ParseError::at(*place, format!("{} after the end of main", token.describe())));
    }
    Ok(Script { sections: parser.sections, main })
}

struct Parser {
    tokens: Vec<(Token, Place)>,
    at: usize,
    end: Place,
    sections: Vec<Section>,
}

/// The attributes of one definition: `name "text";` in any order.
struct Attributes {
    kind: &'static str,
    place: Place,
    found: Vec<(String, String, Place)>,
}

impl Attributes {
    fn get(&self, name: &str) -> Option<&(String, String, Place)> {
        self.found.iter().find(|(n, _, _)| n == name)
    }

    fn text(&self, name: &str) -> String {
        self.get(name).map(|(_, text, _)| text.clone()).unwrap_or_default()
    }

    fn required(&self, name: &str) -> Result<String, ParseError> {
        match self.get(name) {
            Some((_, text, _)) => Ok(text.clone()),
            None => Err(ParseError::at(self.place, format!("this {} has no `{name}`", self.kind))),
        }
    }

    fn number<N: std::str::FromStr>(&self, name: &str) -> Result<Option<N>, ParseError> {
        let Some((_, text, place)) = self.get(name) else { return Ok(None) };
        match text.trim().parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(ParseError::at(*place, format!("`{name}` must be a whole number, not \"{text}\""))),
        }
    }

    fn yes(&self, name: &str, otherwise: bool) -> Result<bool, ParseError> {
        match self.get(name) {
            None => Ok(otherwise),
            Some((_, text, _)) if text == "y" => Ok(true),
            Some((_, text, _)) if text == "n" => Ok(false),
            Some((_, text, place)) => {
                Err(ParseError::at(*place, format!("`{name}` must be \"y\" or \"n\", not \"{text}\"")))
            }
        }
    }
}

impl Parser {
    fn next(&mut self, wanted: &str) -> Result<(Token, Place), ParseError> {
        match self.tokens.get(self.at) {
            Some(found) => {
                self.at += 1;
                Ok(found.clone())
            }
            None => Err(ParseError::at(self.end, format!("the file ends here; expected {wanted}"))),
        }
    }

    fn word(&mut self, wanted: &str) -> Result<(String, Place), ParseError> {
        match self.next(wanted)? {
            (Token::Word(word), place) => Ok((word, place)),
            (other, place) => Err(unexpected(&other, place, wanted)),
        }
    }

    fn text(&mut self, wanted: &str) -> Result<(String, Place), ParseError> {
        match self.next(wanted)? {
            (Token::Text(text), place) => Ok((text, place)),
            (other, place) => Err(unexpected(&other, place, wanted)),
        }
    }

    fn mark(&mut self, mark: &str) -> Result<Place, ParseError> {
        let wanted = format!("`{mark}`");
        match self.next(&wanted)? {
            (Token::Mark(found), place) if found == mark => Ok(place),
            (other, place) => Err(unexpected(&other, place, &wanted)),
        }
    }

    fn sees(&self, mark: &str) -> bool {
        matches!(self.tokens.get(self.at), Some((Token::Mark(found), _)) if *found == mark)
    }

    /// `"name" { attribute "text"; ... }`
    fn attributes(
        &mut self,
        kind: &'static str,
        allowed: &[&str],
    ) -> Result<(String, Attributes), ParseError> {
        let (name, place) = self.text(&format!("the name of the {kind} in quotes"))?;
        self.mark("{")?;
        let mut found = Vec::new();
        while !self.sees("}") {
            let (attribute, at) = self.word("an attribute or `}`")?;
            if !allowed.contains(&attribute.as_str()) {
                let allowed = allowed.join(", ");
                return Err(ParseError::at(
                    at,
                    format!("a {kind} has no attribute `{attribute}`; allowed are {allowed}"),
                ));
            }
            let (text, at) = self.text(&format!("the value of `{attribute}` in quotes"))?;
            self.mark(";")?;
            found.push((attribute, text, at));
        }
        self.mark("}")?;
        Ok((name, Attributes { kind, place, found }))
    }

    fn client(&mut self) -> Result<Section, ParseError> {
        let allowed = ["user", "pass", "host", "db", "port", "socket", "query_barrel"];
        let (name, given) = self.attributes("client", &allowed)?;
        let barrel = match given.get("query_barrel") {
            Some((_, text, place)) => self.barrel(text, *place)?,
            None => Vec::new(),
        };
        Ok(Section::Client(Client {
            name,
            user: given.text("user"),
            pass: given.text("pass"),
            host: given.text("host"),
            db: given.text("db"),
            port: given.number::<u16>("port")?.filter(|port| *port != 0),
            socket: given.text("socket"),
            barrel,
            place: given.place,
        }))
    }

    /// Space-separated pairs of a count and the name of a query; a negative number in the place of a count is a
    /// pause.
    fn barrel(&self, text: &str, place: Place) -> Result<Vec<Shot>, ParseError> {
        let mut shots = Vec::new();
        let mut words = text.split_whitespace();
        while let Some(count) = words.next() {
            if count.starts_with('-') {
                match count.parse::<f64>() {
                    Ok(seconds) => shots.push(Shot::Sleep { seconds: -seconds }),
                    Err(_) => {
                        return Err(ParseError::at(place, format!("`{count}` is no pause in seconds")));
                    }
                }
                continue;
            }
            let Ok(count) = count.parse::<u32>() else {
                return Err(ParseError::at(
                    place,
                    format!("the barrel wants a count before a query, not `{count}`"),
                ));
            };
            let Some(query) = words.next() else {
                return Err(ParseError::at(place, format!("the barrel ends after the count {count}")));
            };
            if !self.sections.iter().any(|s| matches!(s, Section::Query(q) if q.name == query)) {
                return Err(ParseError::at(
                    place,
                    format!("no query \"{query}\" is defined above this client"),
                ));
            }
            shots.push(Shot::Fire { count, query: query.to_owned() });
        }
        Ok(shots)
    }

    fn query(&mut self) -> Result<Section, ParseError> {
        let (name, given) = self.attributes("query", &["query", "type", "has_result_set", "parsed"])?;
        let group = given.text("type");
        Ok(Section::Query(Query {
            text: given.required("query")?,
            group: if group.is_empty() { name.clone() } else { group },
            has_result_set: given.yes("has_result_set", false)?,
            parsed: given.yes("parsed", false)?,
            place: given.place,
            name,
        }))
    }

    fn dictionary(&mut self) -> Result<Section, ParseError> {
        let allowed = ["type", "source_type", "source", "delim", "file_size_equiv"];
        let (name, given) = self.attributes("dictionary", &allowed)?;
        let draw = match given.get("type") {
            None => Draw::Random,
            Some((_, text, place)) => match text.as_str() {
                "rand" => Draw::Random,
                "seq" => Draw::Sequence,
                "unique" => Draw::Unique,
                other => {
                    return Err(ParseError::at(
                        *place,
                        format!("type is rand, seq or unique, not \"{other}\""),
                    ));
                }
            },
        };
        let source = given.required("source")?;
        let words = match (given.required("source_type")?.as_str(), draw) {
            ("template", Draw::Unique) => Words::Template(source),
            ("template", _) => {
                return Err(ParseError::at(given.place, "source_type \"template\" needs type \"unique\""));
            }
            (other, Draw::Unique) => {
                let message = format!("a unique dictionary needs source_type \"template\", not \"{other}\"");
                return Err(ParseError::at(given.place, message));
            }
            ("file", _) => Words::File {
                path: source,
                delimiter: given.text("delim").chars().next(),
                size_equivalent: given.number("file_size_equiv")?,
            },
            // The last item counts only where a comma follows it, as in the original.
            ("list", _) => {
                let mut items: Vec<String> = source.split(',').map(|item| item.trim().to_owned()).collect();
                items.pop();
                Words::List(items)
            }
            (other, _) => {
                let message = format!("source_type is file, list or template, not \"{other}\"");
                return Err(ParseError::at(given.place, message));
            }
        };
        Ok(Section::Dictionary(DictionarySource { name, draw, words, place: given.place }))
    }

    fn table(&mut self) -> Result<Section, ParseError> {
        let allowed = ["client", "create", "min_rows", "data_file", "gen_data_file"];
        let (name, given) = self.attributes("table", &allowed)?;
        let client = given.required("client")?;
        if !self.sections.iter().any(|s| matches!(s, Section::Client(c) if c.name == client)) {
            let message = format!("no client \"{client}\" is defined above this table");
            return Err(ParseError::at(given.place, message));
        }
        Ok(Section::Table(Table {
            client,
            create: given.required("create")?,
            min_rows: given.number("min_rows")?.unwrap_or(0),
            data_file: given.text("data_file"),
            gen_data_file: given.text("gen_data_file"),
            place: given.place,
            name,
        }))
    }

    fn main(&mut self) -> Result<Vec<Statement>, ParseError> {
        self.mark("{")?;
        let mut statements = Vec::new();
        while !self.sees("}") {
            let statement = match self.next("a statement or `}`")? {
                (Token::Word(client), place) => self.call(client, place)?,
                (Token::Variable(name), _) => {
                    self.mark("=")?;
                    Statement::Assign { name, value: self.expression()? }
                }
                (other, place) => {
                    return Err(unexpected(&other, place, "`client.method(...);` or `$name = ...;`"));
                }
            };
            self.mark(";")?;
            statements.push(statement);
        }
        self.mark("}")?;
        Ok(statements)
    }

    fn call(&mut self, client: String, place: Place) -> Result<Statement, ParseError> {
        self.defined_client(&client, place)?;
        self.mark(".")?;
        let (name, at) = self.word("a method")?;
        let Some((_, method, wanted)) = Method::ALL.into_iter().find(|(n, _, _)| *n == name) else {
            let all: Vec<&str> = Method::ALL.iter().map(|(n, _, _)| *n).collect();
            return Err(ParseError::at(at, format!("no method `{name}`; there are {}", all.join(", "))));
        };
        self.mark("(")?;
        let mut arguments = Vec::new();
        while !self.sees(")") {
            if !arguments.is_empty() {
                self.mark(",")?;
            }
            arguments.push(self.expression()?);
        }
        self.mark(")")?;
        if arguments.len() != wanted {
            let message = format!("{name} takes {wanted} arguments, not {}", arguments.len());
            return Err(ParseError::at(at, message));
        }
        Ok(Statement::Call { client, method, arguments, place })
    }

    fn defined_client(&self, name: &str, place: Place) -> Result<(), ParseError> {
        if self.sections.iter().any(|s| matches!(s, Section::Client(c) if c.name == name)) {
            return Ok(());
        }
        Err(ParseError::at(place, format!("no client \"{name}\" is defined")))
    }

    fn expression(&mut self) -> Result<Expression, ParseError> {
        let mut left = self.term()?;
        while self.sees(".") {
            self.mark(".")?;
            left = Expression::Concat(Box::new(left), Box::new(self.term()?));
        }
        Ok(left)
    }

    fn term(&mut self) -> Result<Expression, ParseError> {
        match self.next("a value")? {
            (Token::Number(number), _) => Ok(Expression::Number(number)),
            (Token::Text(text), _) => Ok(Expression::Text(text)),
            (Token::Argument(number), _) => Ok(Expression::Argument(number)),
            (Token::Variable(name), _) => Ok(Expression::Variable(name)),
            (Token::Word(client), place) => {
                self.defined_client(&client, place)?;
                self.figure(client)
            }
            (other, place) => Err(unexpected(&other, place, "a value")),
        }
    }

    /// `::max_connect_time` or `::group::num_queries`, after the client's name.
    fn figure(&mut self, client: String) -> Result<Expression, ParseError> {
        self.mark("::")?;
        let (first, place) = self.word("a figure of the client or a query type")?;
        if !self.sees("::") {
            let figure = match first.as_str() {
                "max_connect_time" => ConnectFigure::Max,
                "min_connect_time" => ConnectFigure::Min,
                "avg_connect_time" => ConnectFigure::Avg,
                _ => {
                    let message = format!(
                        "`{first}` is no figure of a client; there are max_connect_time, min_connect_time, \
                         avg_connect_time, and TYPE::num_queries and its like"
                    );
                    return Err(ParseError::at(place, message));
                }
            };
            return Ok(Expression::Connect(client, figure));
        }
        self.mark("::")?;
        let (name, place) = self.word("a figure of the query type")?;
        let figure = match name.as_str() {
            "num_queries" => GroupFigure::NumQueries,
            "max_time" => GroupFigure::MaxTime,
            "min_time" => GroupFigure::MinTime,
            "q_per_s" => GroupFigure::QPerS,
            _ => {
                let message = format!("`{name}` is none of num_queries, max_time, min_time, q_per_s");
                return Err(ParseError::at(place, message));
            }
        };
        Ok(Expression::Group(client, first, figure))
    }
}

fn unexpected(found: &Token, place: Place, wanted: &str) -> ParseError {
    ParseError::at(place, format!("expected {wanted}, found {}", found.describe()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_smacks_parse() {
        for (_, source) in crate::builtin::ALL {
            let script = parse(source).unwrap();
            assert_eq!(script.sections.len(), 5 + usize::from(source.contains("update_by_username")));
        }
    }

    #[test]
    fn mistakes_are_told_with_their_place() {
        for (source, line, column, words) in [
            ("client \"a\" { usr \"x\"; }", 1, 14, "no attribute `usr`"),
            ("client \"a\" {\n  query_barrel \"2 q\"; }\nmain {}", 2, 16, "no query \"q\""),
            ("main { a.init(); }", 1, 8, "no client \"a\""),
            ("client \"a\" {}\nmain { a.start(); }", 2, 10, "no method `start`"),
            ("client \"a\" {}\nmain { a.sleep(1); }", 2, 10, "takes 2 arguments, not 1"),
            ("query \"q\" { query \"abc; }", 1, 19, "no closing quote"),
            ("main { ", 1, 6, "the file ends here"),
            (
                "dictionary \"d\" { type \"unique\"; source_type \"list\"; source \"a,\"; } main {}",
                1,
                12,
                "template",
            ),
        ] {
            let error = parse(source).unwrap_err();
            assert!(error.message.contains(words), "{source}: {error:?}");
            assert_eq!((error.place.line, error.place.column), (line, column), "{source}: {error:?}");
        }
    }

    #[test]
    fn expressions_and_escapes() {
        let script = parse(
            "client \"c\" { } # note\n main { // more\n $x = \"a\\\"b\\q\" . $1 . c::t::q_per_s; c.print($x); }",
        )
        .unwrap();
        let Statement::Assign { name, value } = &script.main[0] else { panic!() };
        assert_eq!(name, "x");
        let Expression::Concat(left, right) = value else { panic!() };
        assert_eq!(**right, Expression::Group("c".into(), "t".into(), GroupFigure::QPerS));
        let Expression::Concat(first, second) = &**left else { panic!() };
        assert_eq!(**first, Expression::Text("a\"b".into()));
        assert_eq!(**second, Expression::Argument(1));
    }
}
