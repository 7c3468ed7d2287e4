//! Evaluates expressions. What cannot be calculated is told in pgbench's words.

use crate::expression::{Expr, Node};
use crate::function::Function;
use crate::random::{self, GAUSSIAN_LEAST, Random, ZIPFIAN_LEAST, ZIPFIAN_MOST};
use crate::script::Names;
use crate::value::Value;

/// What an expression is evaluated with.
pub struct Scope<'a> {
    /// For error texts.
    pub names: &'a Names,
    /// By the indices of `names`; `None` was never set.
    pub variables: &'a [Option<Value>],
    /// Where random numbers come from.
    pub random: &'a mut Random,
    /// Gets what `debug` shows.
    pub debug: &'a mut dyn FnMut(&str),
}

impl Scope<'_> {
    /// The expression's value.
    ///
    /// # Errors
    /// What is wrong, in pgbench's words.
    pub fn value(&mut self, expression: &Expr) -> Result<Value, String> {
        self.node(&expression.0)
    }

    fn node(&mut self, node: &Node) -> Result<Value, String> {
        match node {
            Node::Constant(value) => Ok(value.clone()),
            Node::Variable(slot) => self.variable(*slot),
            Node::Call(function, arguments) => self.call(*function, arguments),
            Node::And(sides) => self.lazy(sides, false),
            Node::Or(sides) => self.lazy(sides, true),
            Node::Case(branches, otherwise) => {
                for (condition, value) in branches {
                    if self.node(condition)?.is_true()? {
                        return self.node(value);
                    }
                }
                otherwise.as_ref().map_or(Ok(Value::Null), |value| self.node(value))
            }
        }
    }

    fn variable(&mut self, slot: usize) -> Result<Value, String> {
        let name = || self.names.name(slot);
        match self.variables.get(slot) {
            Some(Some(Value::Text(text))) => Value::of_text(text).or_else(|_| Ok(Value::Text(text.clone()))),
            Some(Some(value)) => Ok(value.clone()),
            _ => Err(format!("undefined variable \"{}\"", name())),
        }
    }

    /// AND (`decisive` false) and OR (true): the right side is not looked at where the left one decides.
    fn lazy(&mut self, (left, right): &(Node, Node), decisive: bool) -> Result<Value, String> {
        // pgbench takes null on the left for the answer, where SQL would look at the right side, too.
        match truth(self.node(left)?)? {
            None => return Ok(Value::Null),
            Some(side) if side == decisive => return Ok(Value::Bool(decisive)),
            Some(_) => {}
        }
        Ok(truth(self.node(right)?)?.map_or(Value::Null, Value::Bool))
    }

    fn call(&mut self, function: Function, arguments: &[Node]) -> Result<Value, String> {
        // Two arguments are nearly all.
        match arguments {
            [only] => {
                let value = self.node(only)?;
                self.of_one(function, value)
            }
            [left, right] if !matches!(function, Function::Least | Function::Greatest) => {
                let (left, right) = (self.node(left)?, self.node(right)?);
                self.of_two(function, left, right)
            }
            _ => {
                let values: Result<Vec<Value>, String> =
                    arguments.iter().map(|argument| self.node(argument)).collect();
                self.of_many(function, &values?)
            }
        }
    }

    fn of_one(&mut self, function: Function, value: Value) -> Result<Value, String> {
        if function == Function::Debug {
            let shown = match &value {
                Value::Null => "null".to_owned(),
                other => format!("{} {other}", other.type_name()),
            };
            (self.debug)(&shown);
            return Ok(value);
        }
        if value == Value::Null {
            return Ok(Value::Null);
        }
        Ok(match function {
            Function::Not => Value::Bool(!boolean(&value)?),
            Function::Abs => match value {
                Value::Double(number) => Value::Double(number.abs()),
                other => Value::Int(int(&other)?.wrapping_abs()),
            },
            Function::Double => Value::Double(double(&value)?),
            Function::Exp => Value::Double(double(&value)?.exp()),
            Function::Int => Value::Int(int(&value)?),
            Function::Ln => Value::Double(double(&value)?.ln()),
            Function::Sqrt => Value::Double(double(&value)?.sqrt()),
            Function::Least | Function::Greatest => extreme(function, &[value])?,
            other => return Err(format!("{other:?} of one argument")),
        })
    }

    fn of_two(&mut self, function: Function, left: Value, right: Value) -> Result<Value, String> {
        if function == Function::Is {
            return Ok(Value::Bool(left == right));
        }
        if left == Value::Null || right == Value::Null {
            return Ok(Value::Null);
        }
        let is_double = matches!(left, Value::Double(_)) || matches!(right, Value::Double(_));
        match function {
            Function::Add
            | Function::Subtract
            | Function::Multiply
            | Function::Divide
            | Function::Modulo
            | Function::Equal
            | Function::Unequal
            | Function::Less
            | Function::LessOrEqual => {
                if is_double && function != Function::Modulo {
                    Ok(of_doubles(function, double(&left)?, double(&right)?))
                } else {
                    of_ints(function, int(&left)?, int(&right)?)
                }
            }
            Function::BitAnd => Ok(Value::Int(int(&left)? & int(&right)?)),
            Function::BitOr => Ok(Value::Int(int(&left)? | int(&right)?)),
            Function::BitXor => Ok(Value::Int(int(&left)? ^ int(&right)?)),
            Function::ShiftLeft => Ok(Value::Int(int(&left)?.wrapping_shl(int(&right)? as u32))),
            Function::ShiftRight => Ok(Value::Int(int(&left)?.wrapping_shr(int(&right)? as u32))),
            Function::Power => Ok(Value::Double(double(&left)?.powf(double(&right)?))),
            Function::HashFnv1a => Ok(Value::Int(random::hash_fnv1a(int(&left)?, int(&right)? as u64))),
            Function::HashMurmur2 => Ok(Value::Int(random::hash_murmur2(int(&left)?, int(&right)? as u64))),
            Function::Random => {
                let (low, high) = range(&left, &right)?;
                Ok(Value::Int(self.random.between(low, high)))
            }
            other => Err(format!("{other:?} of two arguments")),
        }
    }

    fn of_many(&mut self, function: Function, values: &[Value]) -> Result<Value, String> {
        if values.contains(&Value::Null) {
            return Ok(Value::Null);
        }
        match (function, values) {
            (Function::Pi, []) => Ok(Value::Double(std::f64::consts::PI)),
            (Function::Least | Function::Greatest, values) => extreme(function, values),
            (Function::Permute, [value, size, seed]) => {
                let (value, size, seed) = (int(value)?, int(size)?, int(seed)?);
                if size <= 0 {
                    return Err("permute size parameter must be greater than zero".to_owned());
                }
                Ok(Value::Int(random::permute(value, size, seed)))
            }
            (_, [low, high, parameter]) => {
                let (low, high) = range(low, high)?;
                self.skewed(function, low, high, double(parameter)?).map(Value::Int)
            }
            (other, _) => Err(format!("{other:?} of {} arguments", values.len())),
        }
    }

    fn skewed(&mut self, function: Function, low: i64, high: i64, parameter: f64) -> Result<i64, String> {
        match function {
            Function::RandomGaussian if parameter < GAUSSIAN_LEAST => {
                Err(format!("gaussian parameter must be at least {GAUSSIAN_LEAST:.6} (not {parameter:.6})"))
            }
            Function::RandomGaussian => Ok(self.random.gaussian(low, high, parameter)),
            Function::RandomZipfian if !(ZIPFIAN_LEAST..=ZIPFIAN_MOST).contains(&parameter) => Err(format!(
                "zipfian parameter must be in range [{ZIPFIAN_LEAST:.3}, {ZIPFIAN_MOST:.0}] (not {parameter:.6})"
            )),
            Function::RandomZipfian => Ok(self.random.zipfian(low, high, parameter)),
            Function::RandomExponential if parameter <= 0.0 => {
                Err(format!("exponential parameter must be greater than zero (not {parameter:.6})"))
            }
            Function::RandomExponential => Ok(self.random.exponential(low, high, parameter)),
            other => Err(format!("{other:?} of three arguments")),
        }
    }
}

/// Of a side of AND or OR; `None` is null.
fn truth(value: Value) -> Result<Option<bool>, String> {
    if value == Value::Null { Ok(None) } else { boolean(&value).map(Some) }
}

fn cannot<R>(value: &Value, wanted: &str) -> Result<R, String> {
    Err(format!("cannot coerce {} to {wanted}", value.type_name()))
}

fn boolean(value: &Value) -> Result<bool, String> {
    match value {
        Value::Bool(truth) => Ok(*truth),
        other => cannot(other, "boolean"),
    }
}

/// Rounded to the nearest whole number, halves to the even one.
fn int(value: &Value) -> Result<i64, String> {
    match value {
        Value::Int(number) => Ok(*number),
        Value::Double(number) => {
            let rounded = number.round_ties_even();
            // 2^63 is the first double beyond.
            let fits = (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&rounded);
            if fits { Ok(rounded as i64) } else { Err(format!("double to int overflow for {number:.6}")) }
        }
        other => cannot(other, "int"),
    }
}

fn double(value: &Value) -> Result<f64, String> {
    match value {
        Value::Double(number) => Ok(*number),
        Value::Int(number) => Ok(*number as f64),
        other => cannot(other, "double"),
    }
}

fn range(low: &Value, high: &Value) -> Result<(i64, i64), String> {
    let (low, high) = (int(low)?, int(high)?);
    if low > high {
        return Err("empty range given to random".to_owned());
    }
    match high.checked_sub(low).and_then(|width| width.checked_add(1)) {
        Some(_) => Ok((low, high)),
        None => Err("random range is too large".to_owned()),
    }
}

fn of_doubles(function: Function, left: f64, right: f64) -> Value {
    match function {
        Function::Add => Value::Double(left + right),
        Function::Subtract => Value::Double(left - right),
        Function::Multiply => Value::Double(left * right),
        Function::Divide => Value::Double(left / right),
        Function::Equal => Value::Bool(left == right),
        Function::Unequal => Value::Bool(left != right),
        Function::Less => Value::Bool(left < right),
        _ => Value::Bool(left <= right),
    }
}

fn of_ints(function: Function, left: i64, right: i64) -> Result<Value, String> {
    let told = |result: Option<i64>, what: &str| {
        result.map(Value::Int).ok_or_else(|| format!("bigint {what} out of range"))
    };
    match function {
        Function::Add => told(left.checked_add(right), "add"),
        Function::Subtract => told(left.checked_sub(right), "sub"),
        Function::Multiply => told(left.checked_mul(right), "mul"),
        Function::Divide | Function::Modulo if right == 0 => Err("division by zero".to_owned()),
        Function::Divide => told(left.checked_div(right), "div"),
        Function::Modulo => Ok(Value::Int(left.wrapping_rem(right))),
        Function::Equal => Ok(Value::Bool(left == right)),
        Function::Unequal => Ok(Value::Bool(left != right)),
        Function::Less => Ok(Value::Bool(left < right)),
        _ => Ok(Value::Bool(left <= right)),
    }
}

/// Least or greatest: of doubles where one of them is.
fn extreme(function: Function, values: &[Value]) -> Result<Value, String> {
    let is_least = function == Function::Least;
    if values.iter().any(|value| matches!(value, Value::Double(_))) {
        let numbers: Result<Vec<f64>, String> = values.iter().map(double).collect();
        let pick = |a: f64, b: f64| if (b < a) == is_least && a != b { b } else { a };
        return Ok(numbers?.into_iter().reduce(pick).map_or(Value::Null, Value::Double));
    }
    let numbers: Result<Vec<i64>, String> = values.iter().map(int).collect();
    let numbers = numbers?.into_iter();
    Ok(if is_least { numbers.min() } else { numbers.max() }.map_or(Value::Null, Value::Int))
}
