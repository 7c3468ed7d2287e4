//! `plimsoll audit`.

use lab::audit::power::PrivateMounts;
use lab::audit::{CONFIDENCE, Kind, KindReport, Report, Request, Round, Unflushed, Verdict};
use lab::{Event, servers};
use sandbox::Home;

use crate::args::{AuditArgs, AuditKind};
use crate::commands::out::Out;
use crate::commands::{print, stop_on_signals};
use crate::exit::{End, Failure};
use crate::show::terminal::tell;
use crate::show::{Align, Plain, Table};

pub(crate) fn audit(args: &AuditArgs) -> Result<End, Failure> {
    let request = request(args)?;
    // Before anything starts a thread: the servers' starter must be in it too.
    let mounts = PrivateMounts::enter();
    let home = Home::find()?;
    let stop = stop_on_signals()?;
    let json = args.json.as_deref().map(Out::create).transpose()?;
    let to_stdout = args.json.as_ref().is_some_and(|path| path.as_os_str() == "-");
    tell!("seed {}", request.seed);
    let plain = Plain::without_runs();
    let report = lab::audit::audit(&home, &request, &mounts, &|event: Event<'_>| plain.event(&event), &stop);
    plain.clear();
    let report = report?;
    if let Some(json) = json {
        let line = serde_json::to_string(&report).map_err(|error| Failure::Other(error.into()))?;
        json.end(&format!("{line}\n"))?;
    }
    if !to_stdout {
        print(&text(&report))?;
        tell!("kept in {}", args.results.join(store::FILE_NAME).display());
    }
    Ok(if report.is_contradicted() { End::RunFailed } else { End::Done })
}

fn request(args: &AuditArgs) -> Result<Request, Failure> {
    let servers::Server::Selector(server) = servers::parse_argument(&args.server)? else {
        return Err(Failure::Usage(
            "an audit kills its server again and again: name a build (mariadb, postgres@16), not a running server".into(),
        ));
    };
    let kinds = match args.only {
        None => vec![Kind::ProcessCrash, Kind::PowerCut],
        Some(AuditKind::ProcessCrash) => vec![Kind::ProcessCrash],
        Some(AuditKind::PowerCut) => vec![Kind::PowerCut],
    };
    Ok(Request {
        server,
        profile: args.profile,
        settings: args.set.iter().cloned().collect(),
        env: args.env.iter().cloned().collect(),
        kinds,
        rounds: args.rounds,
        sessions: args.sessions,
        seed: args.seed.unwrap_or_else(lab::plan::draw_seed),
        results: args.results.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    })
}

fn text(report: &Report) -> String {
    let profile = report.profile.as_deref().unwrap_or("default settings");
    let mut text =
        format!("{}, {profile}: durability \"{}\" by its settings\n", report.server, report.durability);
    for kind in &report.kinds {
        text.push('\n');
        text.push_str(&kind_text(kind));
    }
    text
}

fn kind_text(kind: &KindReport) -> String {
    let what = match kind.kind {
        Kind::ProcessCrash => "process crash (SIGKILL)",
        Kind::PowerCut => "power cut (what was not flushed is gone, or some of it)",
    };
    if let Some(why) = &kind.not_done {
        return format!("{what}: not checked: {why}\n");
    }
    let columns = [
        ("round", Align::Right),
        ("acknowledged", Align::Right),
        ("lost", Align::Right),
        ("of the last s", Align::Right),
        ("partial", Align::Right),
        ("sums", Align::Left),
        ("unflushed", Align::Left),
        ("recovery s", Align::Right),
    ];
    let mut table = Table::new(&columns);
    for round in &kind.rounds {
        let sums = match (&round.failure, round.broken.is_empty(), round.invented) {
            (Some(_), ..) => "no server".to_owned(),
            (None, true, 0) => "agree".to_owned(),
            (None, false, _) => "BROKEN".to_owned(),
            (None, true, invented) => format!("{invented} INVENTED"),
        };
        table.row([
            round.number.to_string(),
            round.acknowledged.to_string(),
            round.lost.to_string(),
            if round.lost > 0 { format!("{:.3}", round.lost_window_s) } else { "-".to_owned() },
            round.partial.to_string(),
            sums,
            unflushed(round),
            round.recovery_s.map_or_else(|| "-".to_owned(), |s| format!("{s:.1}")),
        ]);
    }
    let mut text = format!("{what}: promised: {}\n{}", kind.promise, table.text());
    for round in &kind.rounds {
        for detail in round.broken.iter().chain(&round.failure) {
            text.push_str(&format!("round {}: {detail}\n", round.number));
        }
    }
    text.push_str(&format!("verdict: {}\n", verdict_text(kind)));
    text
}

/// What the disk held unflushed, and what became of it.
fn unflushed(round: &Round) -> String {
    let kib = |bytes: u64| format!("{} KiB", bytes.div_ceil(1024));
    match round.unflushed {
        None => "-".to_owned(),
        Some(Unflushed::Dropped) => format!("{} dropped", kib(round.dropped_bytes)),
        Some(Unflushed::Torn) => {
            format!("{} of {} dropped", kib(round.dropped_bytes), kib(round.unflushed_bytes))
        }
    }
}

fn verdict_text(kind: &KindReport) -> String {
    let Some(verdict) = kind.verdict else { return "nothing was audited".to_owned() };
    let rounds = kind.rounds.len();
    let rounds = store::counted(rounds, "round");
    match (verdict, kind.broken_share_at_most) {
        (Verdict::Contradicted, _) => format!("{} in {} of {rounds}", verdict.word(), kind.broken_rounds),
        (_, Some(share)) => format!(
            "{} in {rounds}: at most {:.0} % of such crashes break it ({:.0} % confidence)",
            verdict.word(),
            share * 100.0,
            CONFIDENCE * 100.0
        ),
        (_, None) => format!("{} in {rounds}", verdict.word()),
    }
}
