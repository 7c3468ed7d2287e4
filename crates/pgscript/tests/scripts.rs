//! Scripts are read and walked through, without a server.

use pgscript::random::Random;
use pgscript::{Action, Names, Scope, Script, Value};
use proptest::prelude::*;

/// The statements of a script in the order in which they are reached, with values in them.
fn walk(text: &str, given: &[(&str, Value)]) -> Vec<String> {
    let mut names = Names::default();
    for (name, _) in given {
        names.slot(name);
    }
    let script = Script::parse("s.sql", text, &mut names).unwrap_or_else(|e| panic!("{e}"));
    let mut variables = Script::no_values(&names);
    for (name, value) in given {
        variables[names.slot(name)] = Some(value.clone());
    }
    let (mut random, mut sent, mut place) = (Random::new(1), Vec::new(), Script::START);
    loop {
        let mut scope =
            Scope { names: &names, variables: &variables, random: &mut random, debug: &mut |_| () };
        place = script.resolve(place, &mut scope).unwrap();
        let Some(command) = script.commands.get(place.at) else { return sent };
        match &command.action {
            Action::Sql(sql) => {
                let mut out = String::new();
                sql.fill(&names, &variables, &mut out);
                sent.push(out);
            }
            Action::Set { slot, value } => {
                let mut scope =
                    Scope { names: &names, variables: &variables, random: &mut random, debug: &mut |_| () };
                let found = scope.value(value).unwrap();
                variables[*slot] = Some(found);
            }
            _ => {}
        }
        place = place.behind();
    }
}

#[test]
fn conditions_nest() {
    let text = "\
\\if :a = 1
one;
\\if :b
inner;
\\else
no inner;
\\endif
\\elif :a = 2
two;
\\elif :a = 3
three;
\\else
\\if not :b
other and not b;
\\endif
other;
\\endif
end;
";
    let with = |a: i64, b: bool| walk(text, &[("a", Value::Int(a)), ("b", Value::Bool(b))]);
    assert_eq!(with(1, true), ["one;", "inner;", "end;"]);
    assert_eq!(with(1, false), ["one;", "no inner;", "end;"]);
    assert_eq!(with(2, true), ["two;", "end;"]);
    assert_eq!(with(3, true), ["three;", "end;"]);
    assert_eq!(with(4, false), ["other and not b;", "other;", "end;"]);
    assert_eq!(with(4, true), ["other;", "end;"]);
}

#[test]
fn lines_go_on_and_comments_are_left_out() {
    let text = "-- first\n\\set x 1 \\\n  + 2 \\\r\n  * 3\n-- second\nSELECT :x, -- third\n  ':x';\n  \\set y :x\nSELECT :y";
    assert_eq!(walk(text, &[]), ["SELECT 7, -- third\n  '7';", "SELECT 7"]);
}

#[test]
fn values_of_texts_are_taken_when_they_are_needed() {
    let text = Value::Text("41".into());
    assert_eq!(walk("\\SET x :t + 1\nSELECT :x, :t;", &[("t", text)]), ["SELECT 42, 41;"]);
}

#[test]
fn lines_and_commands_are_kept_for_reports() {
    let mut names = Names::default();
    let text = "\n\nSELECT 1;\n  SELECT 2,\n 3; SELECT 4 \\gset p_\n\\sleep 10ms\n\\sleep :x us\n";
    let script = Script::parse("s.sql", text, &mut names).unwrap();
    let lines: Vec<(usize, &str)> =
        script.commands.iter().map(|command| (command.number, command.line.trim_end())).collect();
    let expected =
        [(3, "SELECT 1;"), (4, "SELECT 2,"), (5, "SELECT 4"), (6, "\\sleep 10ms"), (7, "\\sleep :x us")];
    assert_eq!(lines, expected);
    let Action::Sql(sql) = &script.commands[2].action else { panic!("no statement") };
    assert_eq!(sql.store.as_ref().map(|store| (store.prefix.as_str(), store.of_all)), Some(("p_", false)));
}

/// `n` levels of parentheses, signs, negations, functions and branches.
const NESTED: [fn(usize) -> String; 5] = [
    |n| format!("{}1{}", "(".repeat(n), ")".repeat(n)),
    |n| format!("{}1", "-".repeat(n)),
    |n| format!("{}true", "not ".repeat(n)),
    |n| format!("{}1{}", "least(".repeat(n), ", 2, 3)".repeat(n)),
    |n| format!("{}1{}", "case when true then ".repeat(n), " end".repeat(n)),
];
/// `n` operators one behind the other.
const CHAINS: [fn(usize) -> String; 2] =
    [|n| format!("1{}", "+1".repeat(n)), |n| format!("true{}", " and true".repeat(n))];

#[test]
fn expressions_too_deep_for_the_stack_are_mistakes() {
    for text in NESTED.iter().chain(&CHAINS).map(|deep| deep(20_000)) {
        let script = format!("SELECT 1;\n\\set a {text}\n");
        let mistake = Script::parse("s", &script, &mut Names::default()).unwrap_err();
        assert!(
            mistake.message.contains("too deep") && mistake.message.contains("set a variable"),
            "{mistake}"
        );
        assert_eq!(mistake.line, Some(2));
        assert!(matches!(mistake.shown, Some((_, Some(at))) if at > 90), "{mistake}");
    }
}

#[test]
fn what_is_just_not_too_deep_needs_half_of_a_threads_stack() {
    let at_the_limit = || {
        let all = NESTED.iter().map(|deep| deep(99)).chain(CHAINS.iter().map(|deep| deep(499)));
        for text in all {
            let mut names = Names::default();
            let script = format!("\\set a {text}\n");
            let script = Script::parse("s", &script, &mut names).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(script.clone(), script);
            let Action::Set { value, .. } = &script.commands[0].action else { panic!("no \\set") };
            let (variables, mut random) = (Script::no_values(&names), Random::new(1));
            let mut scope =
                Scope { names: &names, variables: &variables, random: &mut random, debug: &mut |_| () };
            scope.value(value).unwrap();
        }
    };
    std::thread::Builder::new().stack_size(1 << 20).spawn(at_the_limit).unwrap().join().unwrap();
}

proptest! {
    #[test]
    fn any_text_is_a_script_or_a_mistake(text in "[\\\\a-z0-9 :;'\"$?(),+*/%.<>=|&#~\n-]{0,160}") {
        let _ = Script::parse("any", &text, &mut Names::default());
        let _ = Script::parse("any", &format!("\\set x {text}\n"), &mut Names::default());
        let _ = Script::parse("any", &format!("\\if {text}\n\\endif\n"), &mut Names::default());
    }

    #[test]
    fn expressions_never_panic(a in any::<i64>(), b in any::<i64>(), d in any::<f64>()) {
        let operators = ["+", "-", "*", "/", "%", "<<", ">>", "&", "|", "#", "=", "<", "<="];
        for operator in operators {
            for text in [format!(":a {operator} :b"), format!(":a {operator} :d"), format!("abs(:a) {operator} -:b")] {
                let mut names = Names::default();
                let slots = ["a", "b", "d"].map(|name| names.slot(name));
                let script = Script::parse("e", &format!("\\set x {text}\n"), &mut names).unwrap();
                let mut variables = Script::no_values(&names);
                for (slot, value) in slots.into_iter().zip([Value::Int(a), Value::Int(b), Value::Double(d)]) {
                    variables[slot] = Some(value);
                }
                let Action::Set { value, .. } = &script.commands[0].action else { panic!("no \\set") };
                let mut random = Random::new(1);
                let mut scope = Scope { names: &names, variables: &variables, random: &mut random, debug: &mut |_| () };
                let _ = scope.value(value);
            }
        }
    }
}
