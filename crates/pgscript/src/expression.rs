//! Reads expressions. Precedences are those of pgbench's manual, table "pgbench Operators".

use crate::function::{FUNCTIONS, Function};
use crate::script::Names;
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

/// A part of an expression that was read.
struct Part {
    node: Node,
    /// How many nodes stand on each other in it.
    height: usize,
}

impl Part {
    fn leaf(node: Node) -> Part {
        Part { node, height: 1 }
    }
}

/// Expressions may be nested so deep (parentheses, functions, signs), and so many operators may follow each other: what
/// reads them, evaluates them and drops them calls itself for each, on a stack that has an end.
const NESTED_MOST: usize = 100;
const HEIGHT_MOST: usize = 500;

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
    pub(crate) fn parse(line: &str, start: usize, names: &mut Names) -> Result<Expr, Mistake> {
        let tokens = token::tokens(line, start).map_err(|bad| Mistake {
            message: bad.message.to_owned(),
            more: Some(bad.more),
            at: bad.end,
        })?;
        let mut parser = Parser { tokens, at: 0, nested: 0, names };
        let whole = parser.expression(0)?;
        match parser.peek() {
            TokenKind::End => Ok(Expr(whole.node)),
            _ => Err(parser.unexpected()),
        }
    }
}

struct Parser<'a> {
    tokens: Vec<Token>,
    at: usize,
    /// Expressions that the one being read is part of.
    nested: usize,
    names: &'a mut Names,
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

    /// `node` over parts of which the highest has `height`.
    fn over(&self, height: usize, node: Node) -> Result<Part, Mistake> {
        if height >= HEIGHT_MOST {
            let what = format!("more than {HEIGHT_MOST} operators on each other");
            return Err(self.too_deep(&what));
        }
        Ok(Part { node, height: height + 1 })
    }

    #[cold]
    fn too_deep(&self, what: &str) -> Mistake {
        let remedy = format!("{what}: set a variable to a part of it first");
        Mistake { message: "expression too deep".to_owned(), more: Some(remedy), at: self.last_end() }
    }

    /// An expression of operators that bind closer than `least`.
    fn expression(&mut self, least: u8) -> Result<Part, Mistake> {
        if self.nested == NESTED_MOST {
            return Err(self.too_deep(&format!("nested more than {NESTED_MOST} times")));
        }
        self.nested += 1;
        let read = self.operators(least);
        self.nested -= 1;
        read
    }

    fn operators(&mut self, least: u8) -> Result<Part, Mistake> {
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
    fn behind(&mut self, left: Part, precedence: u8) -> Result<Part, Mistake> {
        match self.next() {
            TokenKind::Symbol(symbol) => {
                let right = self.expression(precedence)?;
                let known = BETWEEN.iter().find(|(known, ..)| *known == symbol);
                let Some((_, _, function, swaps)) = known else { return Err(self.unexpected()) };
                let height = left.height.max(right.height);
                let (left, right) = (left.node, right.node);
                let sides = if *swaps { vec![right, left] } else { vec![left, right] };
                self.over(height, Node::Call(*function, sides))
            }
            TokenKind::Word(word) => match word.as_str() {
                "or" | "and" => {
                    let right = self.expression(precedence)?;
                    let height = left.height.max(right.height);
                    let sides = Box::new((left.node, right.node));
                    self.over(height, if word == "or" { Node::Or(sides) } else { Node::And(sides) })
                }
                "isnull" => self.is(left, Value::Null, false),
                "notnull" => self.is(left, Value::Null, true),
                _ => {
                    let is_negated = self.take_word("not");
                    let what = match self.peek() {
                        TokenKind::Word(word) => literal(word),
                        _ => None,
                    };
                    let Some(what) = what else { return Err(self.unexpected()) };
                    self.next();
                    self.is(left, what, is_negated)
                }
            },
            _ => Err(self.unexpected()),
        }
    }

    fn operand(&mut self) -> Result<Part, Mistake> {
        match self.peek().clone() {
            TokenKind::Int(number) => self.constant(Value::Int(number)),
            TokenKind::Double(number) => self.constant(Value::Double(number)),
            TokenKind::Variable(name) => {
                self.next();
                Ok(Part::leaf(Node::Variable(self.names.slot(&name))))
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
                let sides = vec![Node::Constant(Value::Int(0)), operand.node];
                self.over(operand.height, Node::Call(Function::Subtract, sides))
            }
            TokenKind::Symbol("+") => {
                self.next();
                self.expression(binding::SIGN)
            }
            TokenKind::Symbol("~") => {
                self.next();
                let operand = self.expression(binding::BITS)?;
                let sides = vec![operand.node, Node::Constant(Value::Int(-1))];
                self.over(operand.height, Node::Call(Function::BitXor, sides))
            }
            TokenKind::Word(word) => self.word(&word),
            _ => Err(self.unexpected()),
        }
    }

    fn constant(&mut self, value: Value) -> Result<Part, Mistake> {
        self.next();
        Ok(Part::leaf(Node::Constant(value)))
    }

    fn word(&mut self, word: &str) -> Result<Part, Mistake> {
        if let Some(value) = literal(word) {
            return self.constant(value);
        }
        match word {
            "not" => {
                self.next();
                let operand = self.expression(binding::NOT)?;
                self.over(operand.height, Node::Call(Function::Not, vec![operand.node]))
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

    fn case(&mut self) -> Result<Part, Mistake> {
        let (mut branches, mut height) = (Vec::new(), 0);
        self.expect_word("when")?;
        loop {
            let condition = self.expression(0)?;
            self.expect_word("then")?;
            let value = self.expression(0)?;
            height = height.max(condition.height).max(value.height);
            branches.push((condition.node, value.node));
            if !self.take_word("when") {
                break;
            }
        }
        let otherwise = match self.take_word("else") {
            true => {
                let value = self.expression(0)?;
                height = height.max(value.height);
                Some(Box::new(value.node))
            }
            false => None,
        };
        self.expect_word("end")?;
        self.over(height, Node::Case(branches, otherwise))
    }

    fn call(&mut self, name: &str) -> Result<Part, Mistake> {
        let complain = |message: &str, at: usize| Mistake {
            message: message.to_owned(),
            more: Some(name.to_owned()),
            at,
        };
        let Some(&(_, function, least, most)) = FUNCTIONS.iter().find(|(known, ..)| *known == name) else {
            return Err(complain("unexpected function name", self.last_end()));
        };
        self.expect_symbol("(")?;
        let (mut arguments, height) = self.arguments()?;
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
        self.over(height, Node::Call(function, arguments))
    }

    /// What stands behind a function's parenthesis, up to the other one, and the height of the highest.
    fn arguments(&mut self) -> Result<(Vec<Node>, usize), Mistake> {
        let (mut arguments, mut height) = (Vec::new(), 0);
        while !self.is_symbol(")") {
            if !arguments.is_empty() {
                self.expect_symbol(",")?;
            }
            let argument = self.expression(0)?;
            height = height.max(argument.height);
            arguments.push(argument.node);
        }
        self.next();
        Ok((arguments, height))
    }

    fn is(&self, left: Part, what: Value, is_negated: bool) -> Result<Part, Mistake> {
        let is = self.over(left.height, Node::Call(Function::Is, vec![left.node, Node::Constant(what)]))?;
        if is_negated { self.over(is.height, Node::Call(Function::Not, vec![is.node])) } else { Ok(is) }
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
