//! Command lines as pgbench reads them.

use super::*;

fn asked(line: &str) -> Result<Asked, Refusal> {
    parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
}

fn run(line: &str) -> Run {
    placed(line).1
}

fn placed(line: &str) -> (Target, Run) {
    match asked(line) {
        Ok(Asked::Run(target, run)) => (target, *run),
        Ok(_) => panic!("{line} is no run"),
        Err(refusal) => panic!("{line}: {refusal}"),
    }
}

#[track_caller]
fn refused(line: &str, says: &str) {
    match asked(line) {
        Err(refusal) => assert!(refusal.text.contains(says), "{refusal}"),
        Ok(_) => panic!("{line} is taken"),
    }
}

#[test]
fn lines_are_read_as_getopt_reads_them() {
    let (target, read) =
        placed("-c8 -j 4 -nrT 10 --rate=100.5 -M prepared db -f a.sql@3 -S --progress 5 -h /run/pg -p 5999");
    assert_eq!((read.clients, read.threads, read.duration_s), (8, 4, Some(10)));
    assert_eq!((read.rate_tps, read.mode, read.progress_s), (Some(100.5), QueryMode::Prepared, Some(5)));
    assert!(read.reports_commands && !read.vacuums);
    assert_eq!(read.scripts[0], Chosen { source: Source::File("a.sql".into()), weight: 3 });
    assert_eq!(read.scripts.len(), 2);
    assert_eq!(target.database.as_deref(), Some("db"));
    assert_eq!(target.endpoint, wire::Endpoint::Unix("/run/pg/.s.PGSQL.5999".into()));
    assert_eq!(run("").scripts[0].source, Source::Builtin(&builtin::ALL[0]));
    assert_eq!(run("-D x=5 -D y=a=b").defined, [("x".into(), "5".into()), ("y".into(), "a=b".into())]);
    assert!(matches!(asked("-i -s 10 --unlogged-tables"), Ok(Asked::Initialise(_, i)) if i.scale == 10));
    assert!(matches!(asked("-iI dtG --foreign-keys"), Ok(Asked::Initialise(_, i)) if i.steps == "dtGf"));
}

#[test]
fn mistakes_are_told_in_pgbenchs_words() {
    refused("--zork", "unrecognized option '--zork'");
    refused("-Z", "invalid option -- 'Z'");
    refused("-c", "option requires an argument -- 'c'");
    refused("-c 0", "-c/--clients must be in range 1..2147483647");
    refused("-c x", "invalid value \"x\" for option -c/--clients");
    refused("-t 1 -T 1", "specify either a number of transactions (-t) or a duration (-T), not both");
    refused("-b nope", "no builtin script found for name \"nope\"");
    refused("-b s", "ambiguous builtin name: 2 builtin scripts found for prefix \"s\"");
    refused("-f a.sql@x", "invalid weight specification: @x");
    refused("-M text", "invalid query mode (-M): \"text\"");
    refused("-i -c 5", "cannot be used in initialization (-i) mode");
    refused("-F 50", "cannot be used in benchmarking mode");
    refused("-i -I xx", "unrecognized initialization step \"x\"");
    refused("--sampling-rate=0.5", "allowed only when logging transactions (-l)");
    refused("--max-tries=0", "an unlimited number of transaction tries");
    refused("a b", "too many command-line arguments (first is \"b\")");
    refused("-S@0 -f a@0", "invalid option -- '@'");
    refused("-f a@0", "total script weight must not be zero");
}
