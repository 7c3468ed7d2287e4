//! Expressions of `\set`: whole numbers, doubles and text; variables; arithmetic; random functions.

use crate::random::{Distribution, Rng, Zipfian};

/// The type of an expression, known when the file is read: prepared statements need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    /// 64-bit whole number.
    Int,
    Double,
    Text,
}

/// A value. Text lies in the session's buffer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Val {
    Int(i64),
    Double(f64),
    Text { start: u32, length: u32 },
}

/// A function that expressions may call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Function {
    Random,
    Gaussian,
    Exponential,
    Zipfian,
    Abs,
    Least,
    Greatest,
    Int,
    Double,
    Sqrt,
    Ln,
    Exp,
    Pow,
    Digits,
    Letters,
}

/// Name, fewest and most arguments.
pub(super) const FUNCTIONS: [(&str, Function, usize, usize); 16] = [
    ("random", Function::Random, 2, 2),
    ("random_gaussian", Function::Gaussian, 3, 3),
    ("random_exponential", Function::Exponential, 3, 3),
    ("random_zipfian", Function::Zipfian, 3, 3),
    ("abs", Function::Abs, 1, 1),
    ("least", Function::Least, 1, 16),
    ("greatest", Function::Greatest, 1, 16),
    ("int", Function::Int, 1, 1),
    ("double", Function::Double, 1, 1),
    ("sqrt", Function::Sqrt, 1, 1),
    ("ln", Function::Ln, 1, 1),
    ("exp", Function::Exp, 1, 1),
    ("pow", Function::Pow, 2, 2),
    ("power", Function::Pow, 2, 2),
    ("digits", Function::Digits, 1, 1),
    ("letters", Function::Letters, 1, 1),
];

/// A parsed expression.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Expr {
    Int(i64),
    Double(f64),
    Text(String),
    /// Index of the variable.
    Var(usize),
    Neg(Box<Expr>),
    /// `+ - * / %`
    Binary(char, Box<Expr>, Box<Expr>),
    Call(Function, Vec<Expr>),
}

impl Expr {
    /// Its type; `None` where text meets arithmetic.
    pub(super) fn kind(&self, variables: &[Type]) -> Option<Type> {
        let number = |expr: &Expr| expr.kind(variables).filter(|kind| *kind != Type::Text);
        let widest = |exprs: &[Expr]| {
            let kinds: Option<Vec<Type>> = exprs.iter().map(number).collect();
            kinds.map(|kinds| if kinds.contains(&Type::Double) { Type::Double } else { Type::Int })
        };
        match self {
            Expr::Int(_) => Some(Type::Int),
            Expr::Double(_) => Some(Type::Double),
            Expr::Text(_) => Some(Type::Text),
            Expr::Var(index) => variables.get(*index).copied(),
            Expr::Neg(inner) => number(inner),
            Expr::Binary(_, left, right) => {
                let (left, right) = (number(left)?, number(right)?);
                Some(if left == Type::Double || right == Type::Double { Type::Double } else { Type::Int })
            }
            Expr::Call(function, arguments) => {
                let widest = widest(arguments)?;
                Some(match function {
                    Function::Abs | Function::Least | Function::Greatest => widest,
                    Function::Digits | Function::Letters => Type::Text,
                    Function::Double | Function::Sqrt | Function::Ln | Function::Exp | Function::Pow => {
                        Type::Double
                    }
                    Function::Random
                    | Function::Gaussian
                    | Function::Exponential
                    | Function::Zipfian
                    | Function::Int => Type::Int,
                })
            }
        }
    }
}

/// Where an expression is evaluated.
pub(super) struct Scope<'a> {
    pub(super) variables: &'a [Val],
    pub(super) rng: &'a mut Rng,
    /// Text goes to its end.
    pub(super) text: &'a mut Vec<u8>,
}

/// Longest text that `digits` and `letters` make.
const TEXT_MAX: i64 = 1 << 20;

impl Scope<'_> {
    /// The value, or what is wrong with it.
    pub(super) fn value(&mut self, expr: &Expr) -> Result<Val, String> {
        Ok(match expr {
            Expr::Int(number) => Val::Int(*number),
            Expr::Double(number) => Val::Double(*number),
            Expr::Text(text) => {
                let start = self.text.len();
                self.text.extend_from_slice(text.as_bytes());
                Val::Text { start: start as u32, length: text.len() as u32 }
            }
            Expr::Var(index) => self.variables[*index],
            Expr::Neg(inner) => match self.value(inner)? {
                Val::Int(number) => Val::Int(number.checked_neg().ok_or("the number is too large")?),
                Val::Double(number) => Val::Double(-number),
                Val::Text { .. } => return Err("text cannot be negated".to_owned()),
            },
            Expr::Binary(operator, left, right) => {
                let (left, right) = (self.value(left)?, self.value(right)?);
                binary(*operator, left, right)?
            }
            Expr::Call(function, arguments) => self.call(*function, arguments)?,
        })
    }

    fn int(&mut self, expr: &Expr) -> Result<i64, String> {
        match self.value(expr)? {
            Val::Int(number) => Ok(number),
            Val::Double(number) if number.abs() < 9.2e18 => Ok(number as i64),
            other => Err(format!("{other:?} is no whole number")),
        }
    }

    fn double(&mut self, expr: &Expr) -> Result<f64, String> {
        match self.value(expr)? {
            Val::Int(number) => Ok(number as f64),
            Val::Double(number) => Ok(number),
            Val::Text { .. } => Err("a number is wanted, not text".to_owned()),
        }
    }

    fn call(&mut self, function: Function, arguments: &[Expr]) -> Result<Val, String> {
        Ok(match function {
            Function::Random | Function::Gaussian | Function::Exponential | Function::Zipfian => {
                Val::Int(self.random(function, arguments)?)
            }
            Function::Abs => match self.value(&arguments[0])? {
                Val::Int(number) => Val::Int(number.checked_abs().ok_or("the number is too large")?),
                Val::Double(number) => Val::Double(number.abs()),
                other => other,
            },
            Function::Least | Function::Greatest => self.extreme(function, arguments)?,
            Function::Int => Val::Int(self.int(&arguments[0])?),
            Function::Double => Val::Double(self.double(&arguments[0])?),
            Function::Sqrt => Val::Double(self.double(&arguments[0])?.sqrt()),
            Function::Ln => Val::Double(self.double(&arguments[0])?.ln()),
            Function::Exp => Val::Double(self.double(&arguments[0])?.exp()),
            Function::Pow => Val::Double(self.double(&arguments[0])?.powf(self.double(&arguments[1])?)),
            Function::Digits | Function::Letters => {
                let length = self.int(&arguments[0])?;
                if !(0..=TEXT_MAX).contains(&length) {
                    return Err(format!("a text of {length} characters; 0 to {TEXT_MAX} are allowed"));
                }
                let start = self.text.len();
                let (first, last) = if function == Function::Digits { (b'0', b'9') } else { (b'a', b'z') };
                for _ in 0..length {
                    self.text.push(self.rng.uniform(u64::from(first), u64::from(last)) as u8);
                }
                Val::Text { start: start as u32, length: length as u32 }
            }
        })
    }

    fn extreme(&mut self, function: Function, arguments: &[Expr]) -> Result<Val, String> {
        let mut best = self.value(&arguments[0])?;
        for argument in &arguments[1..] {
            let next = self.value(argument)?;
            let is_less = match (next, best) {
                (Val::Int(next), Val::Int(best)) => next < best,
                _ => as_double(next)? < as_double(best)?,
            };
            if is_less == (function == Function::Least) {
                best = next;
            }
        }
        Ok(best)
    }

    /// The random functions of pgbench, by the formulas of the PostgreSQL manual ("pgbench", Built-in Functions).
    fn random(&mut self, function: Function, arguments: &[Expr]) -> Result<i64, String> {
        let (low, high) = (self.int(&arguments[0])?, self.int(&arguments[1])?);
        let Some(span) = high.checked_sub(low).filter(|span| *span >= 0) else {
            return Err(format!("the range {low} to {high} is empty or too large"));
        };
        let width = span as f64 + 1.0;
        let scaled = |share: f64| low + ((width * share) as i64).min(span);
        Ok(match function {
            Function::Gaussian => {
                let parameter = self.parameter(&arguments[2], 2.0)?;
                scaled(self.truncated_normal(parameter))
            }
            Function::Exponential => {
                let parameter = self.parameter(&arguments[2], f64::MIN_POSITIVE)?;
                let cut = (-parameter).exp();
                let uniform = 1.0 - self.rng.unit();
                scaled(-(cut + (1.0 - cut) * uniform).ln() / parameter)
            }
            Function::Zipfian => {
                let exponent = self.parameter(&arguments[2], 0.001)?;
                low + (Zipfian::new(span as u64 + 1, exponent).sample(self.rng) - 1) as i64
            }
            _ => low + Distribution::uniform(0, span as u64).sample(self.rng) as i64,
        })
    }

    fn parameter(&mut self, expr: &Expr, least: f64) -> Result<f64, String> {
        let value = self.double(expr)?;
        if value >= least && value.is_finite() {
            Ok(value)
        } else {
            Err(format!("the distribution's parameter is {value}; at least {least} is allowed"))
        }
    }

    /// A share from 0 to 1: a standard normal number cut off at `parameter` standard deviations.
    fn truncated_normal(&mut self, parameter: f64) -> f64 {
        loop {
            let (first, second) = (1.0 - self.rng.unit(), self.rng.unit());
            let z = (-2.0 * first.ln()).sqrt() * (std::f64::consts::TAU * second).cos();
            if z >= -parameter && z < parameter {
                return (z / parameter + 1.0) / 2.0;
            }
        }
    }
}

fn as_double(value: Val) -> Result<f64, String> {
    match value {
        Val::Int(number) => Ok(number as f64),
        Val::Double(number) => Ok(number),
        Val::Text { .. } => Err("a number is wanted, not text".to_owned()),
    }
}

fn binary(operator: char, left: Val, right: Val) -> Result<Val, String> {
    if let (Val::Int(left), Val::Int(right)) = (left, right) {
        let result = match operator {
            '+' => left.checked_add(right),
            '-' => left.checked_sub(right),
            '*' => left.checked_mul(right),
            '/' | '%' if right == 0 => return Err("division by zero".to_owned()),
            '/' => left.checked_div(right),
            _ => left.checked_rem(right),
        };
        return result.map(Val::Int).ok_or_else(|| format!("{left} {operator} {right} is too large"));
    }
    let (left, right) = (as_double(left)?, as_double(right)?);
    Ok(Val::Double(match operator {
        '+' => left + right,
        '-' => left - right,
        '*' => left * right,
        '/' => left / right,
        _ => left % right,
    }))
}
