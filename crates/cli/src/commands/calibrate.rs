//! `plimsoll calibrate`.

use lab::Event;
use lab::calibrate::{Request, Summary, TIMES};
use sandbox::Home;

use crate::args::CalibrateArgs;
use crate::commands::out::Out;
use crate::commands::{print, stop_on_signals};
use crate::exit::{End, Failure};
use crate::show::Plain;
use crate::show::terminal::tell;

pub(crate) fn calibrate(args: &CalibrateArgs) -> Result<End, Failure> {
    let home = Home::find()?;
    let stop = stop_on_signals()?;
    let json = args.json.as_deref().map(Out::create).transpose()?;
    let to_stdout = args.json.as_ref().is_some_and(|path| path.as_os_str() == "-");
    let seed = args.seed.unwrap_or_else(lab::plan::draw_seed);
    tell!("seed {seed}");
    let request = Request { server: args.server.clone(), budget: args.budget, seed };
    let plain = Plain::without_runs();
    let attach = lab::watch::Watch::default();
    let found =
        lab::calibrate::calibrate(&home, &request, &attach, &|event: Event<'_>| plain.event(&event), &stop);
    plain.clear();
    let found = found?;
    if let Some(json) = json {
        json.end(&format!("{}\n", found.json(&lab::host::facts())))?;
    }
    if !to_stdout {
        print(&text(&found))?;
    }
    Ok(End::Done)
}

fn text(found: &Summary) -> String {
    let mut text = format!("{}, {} lives of two equal servers on this machine\n", found.server, found.lives);
    for ((name, _), difference) in TIMES.iter().zip(found.resolvable) {
        let minutes = name.trim_end_matches('m');
        let told = difference.map_or("none, or more lives are needed to say".to_owned(), percent);
        text.push_str(&format!("smallest difference told in {minutes} minutes of duels: {told}\n"));
    }
    if let Some(ratios) = found.ratios {
        text.push_str(&format!(
            "spread of the ratio: {} from life to life, {} from slice to slice\n",
            percent(ratios.between.sqrt()),
            percent(ratios.within.sqrt())
        ));
    }
    if let Some(second) = found.second {
        text.push_str(&format!("spread of one server's seconds: {}\n", percent(second)));
    }
    text.push_str(&match found.studies {
        0 => "no A/A study yet: 8 lives of one calibration make one\n".to_owned(),
        studies => format!("A/A studies that called a difference: {} of {studies}\n", found.false_verdicts),
    });
    if let Some((p50, p99)) = found.wakeup_us {
        text.push_str(&format!("wake-ups are {p50:.0} us late, 1 % of them more than {p99:.0} us\n"));
    }
    text
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
