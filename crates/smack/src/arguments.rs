//! What the command line gives to a file, looked at before anything is started for it.

use std::collections::BTreeMap;

use crate::error::{Error, ParseError};
use crate::parse;
use crate::syntax::{Expression, Statement};

/// Reads a file without running it, with the arguments that it is to have; `name` is used in messages.
///
/// # Errors
/// The first mistake in the file, an argument that it lacks, or one that cannot be what the file takes it for.
pub fn check(name: &str, source: &str, arguments: &[String]) -> Result<(), Error> {
    let script = parse::parse(source).map_err(|error| error.in_file(name, source))?;
    let mut variables = BTreeMap::new();
    for statement in &script.main {
        match statement {
            Statement::Assign { name, value } => {
                let value = known(value, arguments, &variables)?;
                variables.insert(name.clone(), value);
            }
            Statement::Call { method, arguments: given, place, .. } => {
                for (index, expression) in given.iter().enumerate() {
                    let Some(value) = known(expression, arguments, &variables)? else { continue };
                    method.number(index, &value).map_err(|why| {
                        let what = match expression {
                            Expression::Argument(number) => format!("${number} is `{value}`"),
                            _ => format!("this is `{value}`"),
                        };
                        ParseError::at(*place, format!("{what}, and {why}")).in_file(name, source)
                    })?;
                }
            }
        }
    }
    Ok(())
}

/// A value that does not depend on what is measured.
fn known(
    expression: &Expression,
    arguments: &[String],
    variables: &BTreeMap<String, Option<String>>,
) -> Result<Option<String>, Error> {
    Ok(match expression {
        Expression::Number(number) => Some(number.to_string()),
        Expression::Text(text) => Some(text.clone()),
        Expression::Argument(number) => Some(argument(*number, arguments)?.to_owned()),
        Expression::Variable(name) => variables.get(name).cloned().unwrap_or(Some(String::new())),
        Expression::Concat(left, right) => {
            let (left, right) = (known(left, arguments, variables)?, known(right, arguments, variables)?);
            left.zip(right).map(|(left, right)| left + &right)
        }
        Expression::Connect(..) | Expression::Group(..) => None,
    })
}

/// `$number`.
///
/// # Errors
/// The command line has not so many.
pub(crate) fn argument(number: usize, arguments: &[String]) -> Result<&str, Error> {
    let given = number.checked_sub(1).and_then(|index| arguments.get(index));
    given.map(String::as_str).ok_or(Error::Argument { number, given: arguments.len() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_that_cannot_be_is_told_with_its_place() {
        let source = crate::builtin::find("select-key").unwrap();
        let checked = |arguments: &[&str]| {
            let arguments: Vec<String> = arguments.iter().map(|text| (*text).to_owned()).collect();
            check("select-key", source, &arguments).map_err(|error| error.to_string())
        };
        checked(&["10", "100"]).unwrap();
        for (arguments, says) in [
            (["0", "10"], "$1 is `0`, and create_threads takes 1 to 100000"),
            (["-4", "10"], "$1 is `-4`"),
            (["many", "10"], "$1 is `many`"),
            (["10", "0"], "$2 is `0`, and set_num_rounds takes a number from 1 up"),
        ] {
            let told = checked(&arguments).unwrap_err();
            assert!(told.starts_with("select-key:") && told.contains(says), "{told}");
        }
        assert!(checked(&["10"]).unwrap_err().contains("the file uses $2"));
    }
}
