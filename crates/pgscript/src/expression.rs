//! Reads expressions. Precedences are those of pgbench's manual, table "pgbench Operators".

use crate::function::{FUNCTIONS, Function};
use crate::script::{Dialect, Names};
use crate::token::{self, Token, TokenKind};
use crate::value::Value;

/// An expression, ready to be evaluated.
#[derive(Debug, Clone, PartialEq)]
pub struct Expr(pub(crate) Node);

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Node {
    Constant(Value),
    /// Index of [`Names`].
    Variable(usize),
    Call(Function, Vec<Node>),
    And(Box<(Node, Node)>),
    Or(Box<(Node, Node)>),
    Case(Vec<(Node, Node)>, Option<Box<Node>>),
}

/// Why a text is no expression.
#[derive(Debug, PartialEq)]
pub(crate) struct Mistake {
    pub(crate) message: String,
    /// Set in parentheses behind the message.
    pub(crate) more: Option<String>,
    /// Byte of the line in which the word that is not expected ends.
    pub(crate) at: usize,
}

/// Precedence: what binds closer has more.
mod binding {
    pub(super) const OR: u8 = 1;
    pub(super) const AND: u8 = 2;
    pub(super) const NOT: u8 = 3;
    pub(super) const IS: u8 = 4;
    pub(super) const COMPARISON: u8 = 5;
    pub(super) const BITS: u8 = 6;
    pub(super) const SUM: u8 = 7;
    pub(super) const PRODUCT: u8 = 8;
    pub(super) const SIGN: u8 = 9;
}

impl Expr {
    /// Reads the rest of `line` from byte `start` on.
    pub(crate) fn parse(
        line: &str,
        start: usize,
        names: &mut Names,
        dialect: Dialect,
    ) -> Result<Expr, Mistake> {
        let tokens = token::tokens(line, start, dialect == Dialect::Plimsoll).map_err(|bad| Mistake {
            message: bad.message.to_owned(),
            more: (!bad.more.is_empty()).then_some(bad.more),
            at: bad.end,
        })?;
        let mut parser = Parser { tokens, at: 0, names, dialect };
        let node = parser.expression(0)?;
        match parser.peek() {
            TokenKind::End => Ok(Expr(node)),
            _ => Err(parser.unexpected()),
        }
    }
}

struct Parser<'a> {
    tokens: Vec<Token>,
    at: usize,
    names: &'a mut Names,
    dialect: Dialect,
}

/// The operators between two values: symbol, precedence, function, whether the sides change places.
const BETWEEN: [(&str, u8, Function, bool); 17] = [
    ("+", binding::SUM, Function::Add, false),
    ("-", binding::SUM, Function::Subtract, false),
    ("*", binding::PRODUCT, Function::Multiply, false),
    ("/", binding::PRODUCT, Function::Divide, false),
    ("%", binding::PRODUCT, Function::Modulo, false),
    ("&", binding::BITS, Function::BitAnd, false),
    ("|", binding::BITS, Function::BitOr, false),
    ("#", binding::BITS, Function::BitXor, false),
    ("<<", binding::BITS, Function::ShiftLeft, false),
    (">>", binding::BITS, Function::ShiftRight, false),
    ("=", binding::COMPARISON, Function::Equal, false),
    ("<>", binding::COMPARISON, Function::Unequal, false),
    ("!=", binding::COMPARISON, Function::Unequal, false),
    ("<", binding::COMPARISON, Function::Less, false),
    ("<=", binding::COMPARISON, Function::LessOrEqual, false),
    (">", binding::COMPARISON, Function::Less, true),
    (">=", binding::COMPARISON, Function::LessOrEqual, true),
];

impl Parser<'_> {
    fn peek(&self) -> &TokenKind {
        &self.tokens[self.at].kind
    }

    fn next(&mut self) -> TokenKind {
        let kind = self.tokens[self.at].kind.clone();
        // The end stays.
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        kind
    }

    /// Where the word last taken ends.
    fn last_end(&self) -> usize {
        self.tokens[self.at.saturating_sub(1)].end
    }

    fn unexpected(&self) -> Mistake {
        Mistake { message: "syntax error".to_owned(), more: None, at: self.tokens[self.at].end }
    }

    fn is_symbol(&self, wanted: &str) -> bool {
        matches!(self.peek(), TokenKind::Symbol(symbol) if *symbol == wanted)
    }

    fn is_word(&self, wanted: &str) -> bool {
        matches!(self.peek(), TokenKind::Word(word) if word == wanted)
    }

    fn take_word(&mut self, wanted: &str) -> bool {
        let is_there = self.is_word(wanted);
        if is_there {
            self.next();
        }
        is_there
    }

    fn expect_word(&mut self, wanted: &str) -> Result<(), Mistake> {
        if self.take_word(wanted) { Ok(()) } else { Err(self.unexpected()) }
    }

    fn expect_symbol(&mut self, wanted: &str) -> Result<(), Mistake> {
        if !self.is_symbol(wanted) {
            return Err(self.unexpected());
        }
        self.next();
        Ok(())
    }

    /// An expression of operators that bind closer than `least`.
    fn expression(&mut self, least: u8) -> Result<Node, Mistake> {
        let mut left = self.operand()?;
        // Comparisons and IS do not associate: `1 < 2 < 3` is an error, so what may follow one binds less.
        let mut most = u8::MAX;
        loop {
            let Some(precedence) = self.precedence().filter(|found| *found > least && *found < most) else {
                return Ok(left);
            };
            left = self.behind(left, precedence)?;
            if matches!(precedence, binding::COMPARISON | binding::IS) {
                most = precedence;
            }
        }
    }

    fn precedence(&self) -> Option<u8> {
        match self.peek() {
            TokenKind::Symbol(symbol) => {
                BETWEEN.iter().find(|(known, ..)| known == symbol).map(|(_, found, ..)| *found)
            }
            TokenKind::Word(word) => match word.as_str() {
                "or" => Some(binding::OR),
                "and" => Some(binding::AND),
                "is" | "isnull" | "notnull" => Some(binding::IS),
                _ => None,
            },
            _ => None,
        }
    }

    /// An operator and what stands behind it.
    fn behind(&mut self, left: Node, precedence: u8) -> Result<Node, Mistake> {
        match self.next() {
            TokenKind::Symbol(symbol) => {
                let right = self.expression(precedence)?;
                let known = BETWEEN.iter().find(|(known, ..)| *known == symbol);
                let Some((_, _, function, swaps)) = known else { return Err(self.unexpected()) };
                let sides = if *swaps { vec![right, left] } else { vec![left, right] };
                Ok(Node::Call(*function, sides))
            }
            TokenKind::Word(word) => match word.as_str() {
                "or" => Ok(Node::Or(Box::new((left, self.expression(precedence)?)))),
                "and" => Ok(Node::And(Box::new((left, self.expression(precedence)?)))),
                "isnull" => Ok(is(left, Value::Null, false)),
                "notnull" => Ok(is(left, Value::Null, true)),
                _ => {
                    let is_negated = self.take_word("not");
                    let what = match self.peek() {
                        TokenKind::Word(word) => literal(word),
                        _ => None,
                    };
                    let Some(what) = what else { return Err(self.unexpected()) };
                    self.next();
                    Ok(is(left, what, is_negated))
                }
            },
            _ => Err(self.unexpected()),
        }
    }

    fn operand(&mut self) -> Result<Node, Mistake> {
        match self.peek().clone() {
            TokenKind::Int(number) => self.constant(Value::Int(number)),
            TokenKind::Double(number) => self.constant(Value::Double(number)),
            TokenKind::Text(text) => self.constant(Value::Text(text.into())),
            TokenKind::Variable(name) => {
                self.next();
                Ok(Node::Variable(self.names.slot(&name)))
            }
            TokenKind::Symbol("(") => {
                self.next();
                let inner = self.expression(0)?;
                self.expect_symbol(")")?;
                Ok(inner)
            }
            TokenKind::Symbol("-") => {
                self.next();
                if *self.peek() == TokenKind::IntMaxPlusOne {
                    return self.constant(Value::Int(i64::MIN));
                }
                let operand = self.expression(binding::SIGN)?;
                Ok(Node::Call(Function::Subtract, vec![Node::Constant(Value::Int(0)), operand]))
            }
            TokenKind::Symbol("+") => {
                self.next();
                self.expression(binding::SIGN)
            }
            TokenKind::Symbol("~") => {
                self.next();
                let operand = self.expression(binding::BITS)?;
                Ok(Node::Call(Function::BitXor, vec![operand, Node::Constant(Value::Int(-1))]))
            }
            TokenKind::Word(word) => self.word(&word),
            _ => Err(self.unexpected()),
        }
    }

    fn constant(&mut self, value: Value) -> Result<Node, Mistake> {
        self.next();
        Ok(Node::Constant(value))
    }

    fn word(&mut self, word: &str) -> Result<Node, Mistake> {
        if let Some(value) = literal(word) {
            return self.constant(value);
        }
        match word {
            "not" => {
                self.next();
                Ok(Node::Call(Function::Not, vec![self.expression(binding::NOT)?]))
            }
            "case" => {
                self.next();
                self.case()
            }
            "and" | "or" | "is" | "isnull" | "notnull" | "when" | "then" | "else" | "end" => {
                Err(self.unexpected())
            }
            name => {
                self.next();
                self.call(name)
            }
        }
    }

    fn case(&mut self) -> Result<Node, Mistake> {
        let mut branches = Vec::new();
        self.expect_word("when")?;
        loop {
            let condition = self.expression(0)?;
            self.expect_word("then")?;
            branches.push((condition, self.expression(0)?));
            if !self.take_word("when") {
                break;
            }
        }
        let otherwise = match self.take_word("else") {
            true => Some(Box::new(self.expression(0)?)),
            false => None,
        };
        self.expect_word("end")?;
        Ok(Node::Case(branches, otherwise))
    }

    fn call(&mut self, name: &str) -> Result<Node, Mistake> {
        let complain = |message: &str, at: usize| Mistake {
            message: message.to_owned(),
            more: Some(name.to_owned()),
            at,
        };
        let known = FUNCTIONS.iter().find(|(known, function, ..)| {
            *known == name && (self.dialect == Dialect::Plimsoll || !function.is_own())
        });
        let Some(&(_, function, least, most)) = known else {
            return Err(complain("unexpected function name", self.last_end()));
        };
        self.expect_symbol("(")?;
        let mut arguments = Vec::new();
        if !self.is_symbol(")") {
            arguments.push(self.expression(0)?);
            while self.is_symbol(",") {
                self.next();
                arguments.push(self.expression(0)?);
            }
        }
        if !self.is_symbol(")") {
            return Err(self.unexpected());
        }
        self.next();
        if !(least..=most).contains(&arguments.len()) {
            let message = match most == usize::MAX {
                true => "at least one argument expected",
                false => "unexpected number of arguments",
            };
            return Err(complain(message, self.last_end()));
        }
        if function.has_default_seed() && arguments.len() < most {
            arguments.push(Node::Variable(self.names.slot("default_seed")));
        }
        Ok(Node::Call(function, arguments))
    }
}

fn literal(word: &str) -> Option<Value> {
    match word {
        "true" => Some(Value::Bool(true)),
        "false" => Some(Value::Bool(false)),
        "null" => Some(Value::Null),
        _ => None,
    }
}

fn is(left: Node, what: Value, is_negated: bool) -> Node {
    let is = Node::Call(Function::Is, vec![left, Node::Constant(what)]);
    if is_negated { Node::Call(Function::Not, vec![is]) } else { is }
}
