//! For each gate: what holds it, and one fault that trips it.

use stats::{SteadyRules, steadiness};

use super::*;
use crate::residency::Residency;
use crate::track::Kind;

fn check(gate: &Gate, finding: Finding) {
    assert_eq!(gate.finding, finding, "{gate:?}");
    assert_eq!(gate.remedy.is_empty(), finding != Finding::Tripped, "{gate:?}");
    assert!(!gate.detail.is_empty());
}

#[test]
fn server_that_is_busy_out_of_turn() {
    let waiting = |for_s, cpu_s| WaitingServer { for_s, cpu_s, cpus: 2.0, written_bytes: 10_000_000 };
    check(&waiting_server(&waiting(10.0, 0.5)), Finding::Held);
    check(&waiting_server(&waiting(10.0, 1.5)), Finding::Tripped);
    check(&waiting_server(&waiting(0.0, 0.0)), Finding::NotChecked);
}

#[test]
fn client_that_sets_the_limit() {
    let idle =
        ClientLoad { cpu_share: 0.3, run_queue_share: 0.02, schedule_lag_p99_ms: 0.1, is_bound: false };
    check(&client_bound(&idle), Finding::Held);
    check(&client_bound(&ClientLoad { cpu_share: 0.98, is_bound: true, ..idle }), Finding::Tripped);
}

#[test]
fn throughput_that_falls_or_jumps() {
    let rules = SteadyRules::default();
    let wobble = |i: usize| 1.0 + 0.01 * ((i * 7) % 5) as f64;
    let of = |level: &dyn Fn(usize) -> f64| {
        let values: Vec<f64> = (0..30).map(|i| level(i) * wobble(i)).collect();
        not_steady(&steadiness(&values, &rules), None)
    };
    check(&of(&|_| 1000.0), Finding::Held);
    check(&of(&|i| 1000.0 - 15.0 * i as f64), Finding::Tripped);
    check(&of(&|i| if i < 15 { 1000.0 } else { 500.0 }), Finding::Tripped);
    check(&not_steady(&steadiness(&[1.0, 2.0], &rules), None), Finding::NotChecked);
    // A p95 that triples under steady throughput.
    let values = |level: &dyn Fn(usize) -> f64| (0..30).map(|i| level(i) * wobble(i)).collect::<Vec<_>>();
    let steady = steadiness(&values(&|_| 1000.0), &rules);
    let rising = steadiness(&values(&|i| 4.0 + 0.3 * i as f64), &rules);
    let gate = not_steady(&steady, Some(&rising));
    check(&gate, Finding::Tripped);
    assert!(gate.detail.starts_with("p95 changed by"), "{gate:?}");
    check(&not_steady(&steady, Some(&steady)), Finding::Held);
}

#[test]
fn debt_on_its_way_to_the_limit() {
    let age = |from: f64, to: f64| {
        let values: Vec<f64> = (0..20).map(|i| from + (to - from) * f64::from(i) / 19.0).collect();
        Debt::of("checkpoint age", "MB", 1.0, &values, Some(1000.0))
    };
    check(&debt_growing(&[age(10.0, 300.0)]), Finding::Held);
    check(&debt_growing(&[age(780.0, 790.0)]), Finding::Held);
    check(&debt_growing(&[age(10.0, 300.0), age(300.0, 900.0)]), Finding::Tripped);
    check(&debt_growing(&[]), Finding::NotChecked);
}

#[test]
fn debts_that_could_not_be_seen_are_named() {
    let seen = Debt::of("dirty pages", "MB", 1.0, &[10.0; 20], Some(1000.0));
    let history = |n: usize| Debt::of("history list", "transactions", 1.0, &vec![1.0; n], Some(10.0));
    let age = Debt::of("checkpoint age", "MB", 1.0, &[1.0; 20], None);
    let partly = debt_growing(&[seen, history(4), age.clone()]);
    check(&partly, Finding::Held);
    assert_eq!(
        partly.detail,
        "dirty pages 10.0 to 10.0 of 1000 MB; not seen: history list was sampled 4 times, 5 are needed; not seen: \
         checkpoint age has no known limit"
    );
    let unseen = debt_growing(&[history(0), age]);
    check(&unseen, Finding::NotChecked);
    assert_eq!(unseen.detail, "history list was not sampled; checkpoint age has no known limit");
}

#[test]
fn a_server_that_stands_still() {
    check(&stalls(0, 0.3, 1.0), Finding::Held);
    check(&stalls(0, 1.1, 1.0), Finding::Tripped);
    check(&stalls(2, 2.6, 30.0), Finding::Held);
    assert!(
        stalls(1, 1.5, 1.0).detail.contains("1 whole seconds while sessions waited, 1.5 s at the longest")
    );
}

#[test]
fn tables_that_are_not_what_the_outcomes_imply() {
    check(&consistency(3, &[]), Finding::Held);
    check(&consistency(3, &["rows of t: 5 expected, 4 found".to_owned()]), Finding::Tripped);
    check(&consistency(0, &[]), Finding::NotChecked);
}

/// Ten seconds of `cpus` cpus.
fn noise(cpus: f64, own_s: f64, foreign_s: f64, stolen_s: f64) -> Noise {
    Noise {
        there_s: 10.0 * cpus,
        busy_s: Some(own_s + foreign_s),
        low_priority_s: 0.0,
        own_s: Some(own_s),
        stolen_s,
        busiest: Some(crate::foreign::ForeignProcess { name: "rustc".into(), pid: 7, cpu_s: 9.0 }),
        canary_ratio: Some(0.95),
    }
}

#[test]
fn machine_that_does_something_else() {
    check(&noisy_host(&noise(2.0, 12.0, 0.3, 0.0)), Finding::Held);
    // What nobody else wanted is not taken from anybody: one session on two cpus, or a machine with 64 of them.
    check(&noisy_host(&noise(2.0, 4.0, 7.0, 0.0)), Finding::Held);
    check(&noisy_host(&noise(64.0, 20.0, 200.0, 0.0)), Finding::Held);
    let crowded = noisy_host(&noise(2.0, 10.0, 10.0, 0.0));
    check(&crowded, Finding::Tripped);
    let wanted = "of the cpu that server and client wanted, other processes took 50.0 %, rustc the most";
    assert!(crowded.detail.starts_with(wanted), "{crowded:?}");
    // The same at a low priority gives way.
    check(&noisy_host(&Noise { low_priority_s: 10.0, ..noise(2.0, 10.0, 10.0, 0.0) }), Finding::Held);
    // Steal is a share of what was wanted: little of the clock, and half of what an idle machine had to do.
    check(&noisy_host(&noise(2.0, 1.0, 0.0, 1.0)), Finding::Tripped);
    check(&noisy_host(&noise(2.0, 17.0, 0.0, 3.0)), Finding::Held);
    check(&noisy_host(&noise(2.0, 12.0, 0.0, 8.0)), Finding::Tripped);
    // Both together are what is missing.
    check(&noisy_host(&noise(2.0, 10.0, 6.5, 2.0)), Finding::Tripped);
    let slow = noisy_host(&Noise { canary_ratio: Some(0.4), ..noise(2.0, 12.0, 0.3, 0.0) });
    check(&slow, Finding::Held);
    assert!(slow.detail.contains("the canary, not judged, ran at 40.0 %"), "{slow:?}");
    let attached = noisy_host(&Noise { own_s: None, ..noise(2.0, 12.0, 0.3, 0.0) });
    check(&attached, Finding::NotChecked);
    assert!(attached.detail.starts_with("not seen: what other processes took"), "{attached:?}");
    check(
        &noisy_host(&Noise { busy_s: None, own_s: None, ..noise(2.0, 1.0, 1.0, 0.0) }),
        Finding::NotChecked,
    );
}

#[test]
fn memory_that_goes_to_swap_and_back() {
    check(&swapping(Some(0.0), Some(0.0)), Finding::Held);
    check(&swapping(Some(4096.0), Some(1e6)), Finding::Held);
    check(&swapping(Some(2e6), Some(0.0)), Finding::Tripped);
    let out = swapping(Some(0.0), Some(3.0 * 1024.0 * 1024.0));
    check(&out, Finding::Tripped);
    assert_eq!(out.detail, "0.0 MiB swapped in, 3.0 MiB out");
    check(&swapping(None, Some(0.0)), Finding::NotChecked);
}

#[test]
fn a_limit_that_does_not_hold() {
    let limit = |allowed: f64, seen: Option<f64>| DeviceLimit { what: "bytes written", allowed, seen };
    check(&storage_limit(&[limit(1e6, Some(0.9e6))]), Finding::Held);
    check(&storage_limit(&[limit(1e6, Some(1.05e6))]), Finding::Held);
    check(&storage_limit(&[limit(1e6, Some(0.9e6)), limit(1e6, Some(2e6))]), Finding::Tripped);
    check(&storage_limit(&[limit(1e6, Some(0.9e6)), limit(1e6, None)]), Finding::NotChecked);
}

#[test]
fn too_many_errors() {
    check(&errors(5, 1000, 0.01), Finding::Held);
    check(&errors(50, 1000, 0.01), Finding::Tripped);
    check(&errors(0, 0, 0.01), Finding::Tripped);
}

#[test]
fn frequency_that_sinks_or_throttles() {
    check(&cpu_frequency(&[3000.0; 9], Some(0.0)), Finding::Held);
    let sinking: Vec<f64> = (0..9).map(|i| 3000.0 - 100.0 * f64::from(i)).collect();
    check(&cpu_frequency(&sinking, None), Finding::Tripped);
    check(&cpu_frequency(&[3000.0; 9], Some(2.0)), Finding::Tripped);
    check(&cpu_frequency(&[], None), Finding::NotChecked);
}

fn cold(resident_bytes: u64, buffer_bytes: Option<f64>) -> ColdStart {
    ColdStart { files: Ok(Residency { files: 3, bytes: 1_000_000_000, resident_bytes }), buffer_bytes }
}

#[test]
fn cold_cache_that_is_not_cold() {
    check(&cache_cold(&cold(10_000_000, None)), Finding::Held);
    check(&cache_cold(&cold(700_000_000, None)), Finding::Tripped);
    // O_DIRECT: nothing in the page cache, and the server has loaded its buffer by itself.
    check(&cache_cold(&cold(0, Some(30e6))), Finding::Held);
    check(&cache_cold(&cold(0, Some(300e6))), Finding::Tripped);
    let unknown = ColdStart { files: Err("permission denied".to_owned()), buffer_bytes: None };
    check(&cache_cold(&unknown), Finding::NotChecked);
    let empty = ColdStart { files: Ok(Residency::default()), buffer_bytes: None };
    check(&cache_cold(&empty), Finding::NotChecked);
}

#[test]
fn warm_cache_that_is_still_filling() {
    let filling: Vec<f64> = (0..9).map(|i| 9000.0 / f64::from(1 + i)).collect();
    check(&cache_warm(&[0.0; 9], &[1e5; 9], &[]), Finding::Held);
    // Larger than the buffer: reads go on and on.
    check(&cache_warm(&[5000.0; 9], &[1e5; 9], &[]), Finding::Held);
    check(&cache_warm(&filling, &[1e5; 9], &[]), Finding::Tripped);
    // So many requests that the reads among them cost nothing.
    check(&cache_warm(&filling, &[1e7; 9], &[]), Finding::Held);
    // But they filled a third of the buffer; or it grew by rows that were written, which nobody had to read.
    let grown: Vec<f64> = (0..9).map(|i| 800e6 + 50e6 * f64::from(i)).collect();
    check(&cache_warm(&filling, &[1e7; 9], &grown), Finding::Tripped);
    let few: Vec<f64> = filling.iter().map(|reads| reads / 20.0).collect();
    check(&cache_warm(&few, &[1e7; 9], &grown), Finding::Held);
    // A server that does not count its requests.
    check(&cache_warm(&filling, &[], &[]), Finding::Tripped);
    check(&cache_warm(&[], &[], &[]), Finding::NotChecked);
}

#[test]
fn settings_that_the_server_changed() {
    let pairs = |list: &[(&str, &str)]| -> Vec<(String, String)> {
        list.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect()
    };
    let asked = pairs(&[
        ("innodb-buffer-pool-size", "1G"),
        ("sync_binlog", "1"),
        ("autocommit", "ON"),
        ("shared_buffers", "128MB"),
        ("skip-name-resolve", ""),
    ]);
    let reported = pairs(&[
        ("innodb_buffer_pool_size", "1073741824"),
        ("sync_binlog", "1"),
        ("autocommit", "1"),
        ("shared_buffers", "131072kB"),
    ]);
    check(&settings(&asked, &reported), Finding::Held);
    let changed = pairs(&[("innodb_buffer_pool_size", "134217728"), ("sync_binlog", "1")]);
    let gate = settings(&asked, &changed);
    check(&gate, Finding::Tripped);
    assert!(gate.detail.contains("innodb-buffer-pool-size"));
    check(&settings(&asked, &[]), Finding::NotChecked);
    // Nothing that was asked for can be read back: that was not looked at.
    let others = [("nothing_of_this".to_owned(), "1".to_owned())];
    check(&settings(&asked, &others), Finding::NotChecked);
    assert_eq!(
        settings(&[], &reported).detail,
        "none was asked for; the 4 that the server reports are recorded"
    );
}

#[test]
fn server_that_was_started_again() {
    let starts = |values: &[f64]| Track {
        source: "server",
        name: "started_unix_s",
        instance: String::new(),
        unit: "s",
        kind: Kind::Gauge,
        points: values.iter().enumerate().map(|(i, v)| (i as f64, *v)).collect(),
    };
    let stable = starts(&[1000.0, 1000.9, 1000.4]);
    check(&server_restarted(None, Some(&stable)), Finding::Held);
    check(&server_restarted(Some(&starts(&[5.0, 5.0])), Some(&stable)), Finding::Held);
    check(&server_restarted(None, Some(&starts(&[1000.0, 1031.0]))), Finding::Tripped);
    check(&server_restarted(Some(&starts(&[5.0, 99.0])), None), Finding::Tripped);
    check(&server_restarted(None, None), Finding::NotChecked);
}

#[test]
fn values_in_different_notations_are_the_same() {
    for (a, b) in [
        ("1G", "1073741824"),
        ("on", "1"),
        ("64MB", "65536kB"),
        ("30s", "30000ms"),
        ("'x'", "x"),
        ("5min", "300s"),
        ("128MB", "16384"),
        ("5min", "300"),
    ] {
        assert!(is_same_value(a, b), "{a} {b}");
    }
    for (a, b) in [("1G", "1000000000"), ("on", "off"), ("x", "y"), ("1x", "1")] {
        assert!(!is_same_value(a, b), "{a} {b}");
    }
}

#[test]
fn an_open_loop_is_overloaded_when_its_backlog_grows_or_is_left() {
    let offered = |arrivals, backlog_at_end, backlogs: &[u64]| Offered {
        arrivals,
        backlog_at_end,
        sessions: 4,
        backlogs: backlogs.to_vec(),
    };
    // Twice the capacity; a little more than it; a stall at the end.
    assert!(overloaded(&offered(10_000, 5_000, &[500, 1_000, 1_500])).is_tripped());
    assert!(overloaded(&offered(60_000, 300, &[50, 100, 150, 200, 250, 300])).is_tripped());
    assert!(overloaded(&offered(5_000, 700, &[0, 0, 0, 0, 0, 700])).is_tripped());
    // Chance, a stall that was caught up with, nothing at all.
    assert!(!overloaded(&offered(300, 4, &[0, 3, 1, 0, 2, 4])).is_tripped());
    assert!(!overloaded(&offered(5_000, 0, &[0, 0, 400, 900, 0, 0])).is_tripped());
    check(&overloaded(&offered(0, 0, &[])), Finding::NotChecked);
    let gate = overloaded(&offered(10_000, 5_000, &[500, 1_000, 1_500]));
    assert!(gate.detail.contains("50.0 %") && gate.detail.contains("more and more"), "{}", gate.detail);
}
