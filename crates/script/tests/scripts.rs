//! The command line and the life of scripts, without a server.

mod common;

use std::os::unix::fs::PermissionsExt;

use common::{command, done, figure, piped, run, script};

const EMPTY: &str = "function event() end";

#[test]
fn several_and_fractional_percentiles_are_printed_in_order() {
    let script = script(EMPTY);
    let done = run(&script.path, &["--events=500", "--percentile=50,95,99.9"]).ok();
    let values: Vec<f64> = ["min:", "50th percentile:", "95th percentile:", "99.9th percentile:", "max:"]
        .iter()
        .map(|label| done.figure(label))
        .collect();
    assert!(values.is_sorted(), "{values:?}");
    let done = run(&script.path, &["--events=5", "--percentile=0"]).ok();
    assert!(done.out.contains("         percentile stats:               disabled\n"), "{}", done.out);
    run(&script.path, &["--percentile=101"]).fails(&["FATAL: Invalid value for --percentile: 101"]);
}

#[test]
fn the_histogram_counts_every_event() {
    let script = script(EMPTY);
    let done = run(&script.path, &["--events=321", "--histogram"]).ok();
    let (_, after) = done.out.split_once("Latency histogram (values are in milliseconds)\n").unwrap();
    let mut lines = after.lines();
    assert_eq!(lines.next(), Some("       value  ------------- distribution ------------- count"));
    let rows: Vec<&str> = lines.take_while(|line| *line != " ").collect();
    let counts = rows.iter().map(|row| row.rsplit(' ').next().unwrap().parse::<u64>().unwrap());
    assert_eq!(counts.sum::<u64>(), 321, "{rows:?}");
    assert!(rows.iter().all(|row| row.find('|') == Some(13)), "{rows:?}");
    assert_eq!(rows.iter().map(|row| row.matches('*').count()).max(), Some(40), "{rows:?}");
}

#[test]
fn checkpoints_divide_the_run() {
    // Each event says that it ended; the reports together count them all.
    let script =
        script("n = 0\nfunction event() n = n + 1 end\nfunction thread_done() print('ran: ' .. n) end");
    let done = run(&script.path, &["--time=3", "--report-checkpoints=2,1"]).ok();
    assert!(done.out.contains("Report checkpoint(s) at 1, 2 seconds\n"), "{}", done.out);
    let reports: Vec<&str> = done.out.split("\nGeneral statistics:").collect();
    assert_eq!(reports.len(), 4, "{}", done.out);
    assert!(
        reports[0].contains("[ 1s ] Checkpoint report:") && reports[1].contains("[ 2s ] Checkpoint report:")
    );
    let counted: f64 = reports[1..].iter().map(|report| figure(report, "total number of events:")).sum();
    let ran: f64 = done.told("ran")[0].parse().unwrap();
    // The event that is running when the time is over is none of the figures.
    assert!(counted == ran || counted == ran - 1.0, "{counted} of {ran}");
    run(&script.path, &["--report-checkpoints=x"])
        .fails(&["FATAL: Invalid value for --report-checkpoints: 'x'"]);
}

#[test]
fn intermediate_reports_come_each_interval() {
    let script = script(EMPTY);
    let done = run(&script.path, &["--time=2", "--report-interval=1"]).ok();
    let lines: Vec<&str> = done.out.lines().filter(|line| line.starts_with("[ ")).collect();
    assert!(lines[0].starts_with("[ 1s ] thds: 1 eps: "), "{lines:?}");
    assert!(lines[0].contains(" lat (ms,95%): "), "{lines:?}");
    assert!(lines[1].starts_with("[ 2s ] "), "{lines:?}");
}

#[test]
fn the_warm_up_is_none_of_the_figures() {
    let script =
        script("n = 0\nfunction event() n = n + 1 end\nfunction thread_done() print('ran: ' .. n) end");
    let done = run(&script.path, &["--time=1", "--warmup-time=1"]).ok();
    assert!(done.out.contains("Warmup time: 1s\n"), "{}", done.out);
    let ran: f64 = done.told("ran")[0].parse().unwrap();
    assert!(done.figure("total number of events:") < ran, "{}", done.out);
    assert!((done.figure("total time:") - 1.0).abs() < 0.5, "{}", done.out);
}

#[test]
fn a_rate_that_can_be_had_is_kept_and_one_that_cannot_ends_nothing() {
    let script = script(EMPTY);
    let options = ["--rate=50", "--time=2", "--report-interval=1", "--rand-seed=1"];
    let done = run(&script.path, &options).ok();
    assert!(done.out.contains("Target transaction rate: 50/sec\n"), "{}", done.out);
    // Arrivals are drawn from the seed: 100 on average, with a standard deviation of 10.
    let events = done.figure("total number of events:");
    assert!((1.0..150.0).contains(&events), "{events}");
    // One session that sleeps 50 ms cannot run more than 20 events a second of 1,000.
    let slow = common::script(
        "local ffi = require('ffi')\nffi.cdef[[int usleep(unsigned int);]]\nfunction event() ffi.C.usleep(50000) end",
    );
    let done = run(&slow.path, &["--rate=1000", "--time=2", "--report-interval=1", "--rand-seed=1"]).ok();
    assert!(done.figure("total number of events:") <= 41.0, "{}", done.out);
    let queues: Vec<(u64, u64)> = done
        .out
        .lines()
        .filter_map(|line| line.split_once(" ] queue length: ")?.1.split_once(" concurrency: "))
        .map(|(length, concurrency)| (length.parse().unwrap(), concurrency.parse().unwrap()))
        .collect();
    assert!(!queues.is_empty() && queues.iter().all(|(length, _)| *length > 500), "{queues:?}");
    assert_eq!(queues.iter().map(|(_, concurrency)| *concurrency).max(), Some(1), "{queues:?}");
}

#[test]
fn switches_reach_scripts() {
    let script = script(
        "function event() end\nfunction init() print('validate: ' .. tostring(sysbench.opt.validate)) end",
    );
    let done = run(&script.path, &["--events=1", "--validate"]).ok();
    assert!(done.out.contains("Validation checks: on.\n"), "{}", done.out);
    assert_eq!(done.told("validate"), ["true"]);
}

#[test]
fn config_files_give_general_options_and_those_of_the_script() {
    let text = "sysbench.cmdline.options = {colour = {'a colour', 'red'}}\nfunction init() print('is: ' .. sysbench.opt.colour .. ' ' .. sysbench.opt.threads) end\nfunction event() end";
    let script = script(text);
    let config = script.folder.path().join("run.cnf");
    std::fs::write(&config, "# how it runs\nthreads = 3\nevents=4\n\n--colour=blue\n").unwrap();
    let config = format!("--config-file={}", config.display());
    let done = run(&script.path, &[&config, "--events=5"]).ok();
    assert_eq!(done.told("is"), ["blue 3"]);
    assert_eq!(done.figure("total number of events:"), 5.0);
}

#[test]
fn scripts_with_a_shebang_run_by_themselves() {
    let script = script(
        "#!/usr/bin/env sysbench\nsysbench.cmdline.commands = {greet = {function() print('hello: ' .. sysbench.cmdline.command) end}}\nfunction event() end",
    );
    std::fs::set_permissions(&script.path, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_sysbench-here"), script.folder.path().join("sysbench"))
        .unwrap();
    let path = format!("{}:{}", script.folder.path().display(), std::env::var("PATH").unwrap());
    let done = done(std::process::Command::new(&script.path).arg("greet").env("PATH", path)).ok();
    assert_eq!(done.told("hello"), ["greet"]);
}

#[test]
fn scripts_come_from_standard_input_too() {
    for arguments in [&["-"][..], &[]] {
        let done = piped("print('read: ' .. (1 + 1))", arguments).ok();
        assert_eq!(done.told("read"), ["2"], "{arguments:?}");
    }
}

#[test]
fn lua_path_finds_scripts_and_modules() {
    let script = script(
        "helper = require('my_helper')\nfunction event() end\nfunction init() print('helped: ' .. helper) end",
    );
    std::fs::write(script.folder.path().join("my_helper.lua"), "return 'yes'").unwrap();
    // The script's own folder is searched anyway; another one only by LUA_PATH.
    let elsewhere = tempfile::tempdir().unwrap();
    std::fs::rename(&script.path, elsewhere.path().join("found_by_name.lua")).unwrap();
    let path = format!("{0}/?.lua;{1}/?.lua", script.folder.path().display(), elsewhere.path().display());
    let done = done(command().args(["--events=1", "found_by_name", "run"]).env("LUA_PATH", path)).ok();
    assert_eq!(done.told("helped"), ["yes"]);
}

#[test]
fn parallel_commands_run_once_in_each_thread() {
    let text = "local function go() print('thread: ' .. sysbench.tid) end\nsysbench.cmdline.commands = {go = {go, sysbench.cmdline.PARALLEL_COMMAND}, alone = {go}}";
    let script = script(text);
    let with = |word: &str| done(command().args(["--threads=3"]).arg(&script.path).arg(word)).ok();
    let mut threads = with("go").told("thread");
    threads.sort();
    assert_eq!(threads, ["0", "1", "2"]);
    assert_eq!(with("alone").told("thread"), ["0"]);
    done(command().arg(&script.path).arg("gone")).fails(&["Unknown command: gone"]);
}

#[test]
fn lines_that_sessions_print_at_once_stay_whole() {
    let text = "local function go() for i = 1, 500 do print('line', sysbench.tid, nil, true, 0.5) end end\n\
                sysbench.cmdline.commands = {go = {go, sysbench.cmdline.PARALLEL_COMMAND}}";
    let script = script(text);
    let done = done(command().arg("--threads=8").arg(&script.path).arg("go")).ok();
    let lines: Vec<&str> = done.out.lines().filter(|line| line.contains("line")).collect();
    assert_eq!(lines.len(), 8 * 500);
    for tid in 0..8 {
        let wanted = format!("line\t{tid}\tnil\ttrue\t0.5");
        assert_eq!(lines.iter().filter(|line| **line == wanted).count(), 500, "session {tid}");
    }
}

#[test]
fn a_thread_run_of_the_scripts_own_asks_for_events_through_ffi() {
    let text = "local ffi = require('ffi')
ran = 0
function thread_run(tid)
   while ffi.C.sb_more_events(tid) do
      ffi.C.sb_event_start(tid)
      ran = ran + 1
      ffi.C.sb_event_stop(tid)
   end
end
function event() error('thread_run does not call it') end
function thread_done() print('ran: ' .. ran) end";
    let script = script(text);
    let done = run(&script.path, &["--events=7"]).ok();
    assert_eq!(done.figure("total number of events:"), 7.0);
    assert_eq!(done.told("ran"), ["7"]);
}

#[test]
fn histograms_of_scripts_count_and_print() {
    let text = "function event()
   local h = sysbench.histogram.new(10, 1, 1000)
   h:update(5) h:update(5) h:update(500)
   h:print()
end";
    let script = script(text);
    let done = run(&script.path, &["--events=1"]).ok();
    let rows: Vec<&str> = done.out.lines().filter(|line| line.contains(" |*")).collect();
    assert_eq!(rows.len(), 2, "{}", done.out);
    assert!(rows[0].ends_with(&format!("|{} 2", "*".repeat(40))), "{rows:?}");
    assert!(rows[1].contains(&format!("|{:<40} 1", "*".repeat(20))), "{rows:?}");
}

const SLEEPER: &str = "local ffi = require('ffi')\nffi.cdef[[int usleep(unsigned int);]]\nfunction event() ffi.C.usleep(400000) end";

#[test]
fn a_script_that_blocks_inside_c_is_named() {
    let script = script(SLEEPER);
    let done = run(&script.path, &["--threads=6", "--workers=2", "--events=6"]).ok();
    let warning = done.out.lines().find(|line| line.starts_with("WARNING: the script blocked inside C"));
    let warning = warning.unwrap_or_else(|| panic!("no warning in {}", done.out));
    for word in ["ffi.C.usleep", "6 sessions on 2 threads", "--thread-per-session"] {
        assert!(warning.contains(word), "no {word} in {warning}");
    }
    // Three sessions on each thread, one after the other.
    assert!(done.figure("total time:") >= 1.2, "{}", done.out);
}

#[test]
fn with_a_thread_for_each_session_nobody_waits_for_a_blocked_one() {
    let script = script(SLEEPER);
    let done = run(&script.path, &["--threads=6", "--events=6", "--thread-per-session"]).ok();
    assert!(!done.out.contains("WARNING"), "{}", done.out);
    // One after the other would be 2.4 s.
    assert!(done.figure("total time:") < 2.4, "{}", done.out);
}

#[test]
fn a_dry_run_refuses_what_is_closed() {
    for close in ["stmt:close()", "con:disconnect()"] {
        let text = format!(
            "function event()
   local con = sysbench.sql.driver():connect()
   local stmt = con:prepare('SELECT 1')
   stmt:execute()
   {close}
   stmt:execute()
end"
        );
        let options = ["--mysql-dry-run", "--mysql-socket=/nowhere", "--events=1"];
        run(&script(&text).path, &options).fails(&["test.lua:6:", "attempt to use a closed statement"]);
    }
}

#[test]
fn a_dry_run_sends_nothing_and_counts_everything_as_other() {
    let text = "function thread_init()
   con = sysbench.sql.driver():connect()
   stmt = con:prepare('SELECT c FROM t WHERE id = ?')
   id = stmt:bind_create(sysbench.sql.type.INT)
   stmt:bind_param(id)
end
function event()
   con:query('BEGIN')
   id:set(1)
   stmt:execute()
   con:reconnect()
end
function thread_done() stmt:close() con:disconnect() end";
    let script = script(text);
    let options = ["--mysql-dry-run", "--mysql-socket=/nowhere", "--events=5"];
    let done = run(&script.path, &options).ok();
    let figures: Vec<f64> = ["read:", "write:", "other:", "total:", "transactions:", "reconnects:"]
        .iter()
        .map(|label| done.figure(label))
        .collect();
    assert_eq!(figures, [0.0, 0.0, 10.0, 10.0, 5.0, 0.0], "{}", done.out);
}

#[test]
fn what_scripts_count_is_reported() {
    let text = "local ffi = require('ffi')
ffi.cdef[[void sb_counter_inc(int, sb_counter_type);]]
function thread_init() con = sysbench.sql.driver():connect() end
function event()
   ffi.C.sb_counter_inc(sysbench.tid, ffi.C.SB_CNT_ERROR)
   ffi.C.sb_counter_inc(sysbench.tid, ffi.C.SB_CNT_READ)
   ffi.C.sb_counter_inc(sysbench.tid, ffi.C.SB_CNT_RECONNECT)
end";
    let script = script(text);
    let done = run(&script.path, &["--mysql-dry-run", "--threads=2", "--events=10"]).ok();
    let figures = ["read:", "ignored errors:", "reconnects:"].map(|label| done.figure(label));
    assert_eq!(figures, [10.0, 10.0, 10.0], "{}", done.out);
}

#[test]
fn report_hooks_get_the_figures() {
    let text = "function event() end
sysbench.hooks.report_intermediate = sysbench.report_csv
function sysbench.hooks.report_cumulative(stat)
   print('events: ' .. stat.events .. ' ' .. tostring(stat.latency_max >= stat.latency_min))
end";
    let script = script(text);
    let done = run(&script.path, &["--time=1", "--report-interval=1"]).ok();
    let csv = done.out.lines().find(|line| line.starts_with("1,1,")).unwrap();
    assert_eq!(csv.split(',').count(), 10, "{csv}");
    assert!(done.told("events")[0].ends_with(" true"), "{}", done.out);
}

#[test]
fn hooks_can_call_the_reports_that_are_the_default() {
    let text = "function event() end
function sysbench.hooks.report_intermediate(stat) sysbench.report_intermediate_default(stat) end
function sysbench.hooks.report_cumulative(stat)
   sysbench.report_cumulative_default(stat)
   print('mine: too')
end";
    let script = script(text);
    let done = run(&script.path, &["--time=1", "--report-interval=1"]).ok();
    assert!(done.out.contains("[ 1s ] thds: 1 tps:"), "{}", done.out);
    assert!(done.figure("total number of events:") > 0.0, "{}", done.out);
    assert!(done.out.contains("95th percentile:"), "{}", done.out);
    assert_eq!(done.told("mine"), ["too"]);
}
