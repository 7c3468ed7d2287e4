//! The bursty neighbour: it works when it says so, as its seed has it, and ends with its owner.

use std::time::{Duration, Instant};

use testkit::neighbour::{Bursts, Neighbour};

fn cpu_s(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    // Fields 14 and 15 of proc_pid_stat(5), in hundredths of a second on every Linux of today.
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}

fn short(seed: u64) -> Bursts {
    let ms = Duration::from_millis;
    Bursts { seed, longest: Duration::from_secs(60), cpus: 2, on: ms(100), off: ms(50) }
}

#[test]
fn it_works_in_the_bursts_of_its_seed_and_is_gone_when_stopped() {
    let planned = |seed| {
        let folder = tempfile::tempdir().unwrap();
        let neighbour = Neighbour::start(folder.path(), &short(seed)).unwrap();
        let pid = neighbour.pid();
        let deadline = Instant::now() + Duration::from_secs(30);
        while cpu_s(pid) < 0.2 {
            assert!(Instant::now() < deadline, "it does not work");
            std::thread::sleep(Duration::from_millis(20));
        }
        let bursts = neighbour.stop().unwrap();
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
        bursts
    };
    let (one, again, other) = (planned(7), planned(7), planned(8));
    let common = one.len().min(again.len());
    assert!(common > 1 && one[..common] == again[..common], "{one:?} {again:?}");
    assert_ne!(one[0], other[0]);
    for burst in one.iter().chain(&other) {
        assert!((20..=400).contains(&burst.length_ms) && (1..=2).contains(&burst.cpus), "{burst:?}");
    }
}

#[test]
fn it_ends_when_its_time_is_over() {
    let folder = tempfile::tempdir().unwrap();
    let bursts = Bursts { longest: Duration::from_millis(300), ..short(1) };
    let neighbour = Neighbour::start(folder.path(), &bursts).unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    let stat = format!("/proc/{}/stat", neighbour.pid());
    while !std::fs::read_to_string(&stat).unwrap().contains(") Z") {
        assert!(Instant::now() < deadline, "it goes on");
        std::thread::sleep(Duration::from_millis(20));
    }
    let told = neighbour.stop().unwrap();
    assert!(told.iter().all(|burst| burst.start_ms + burst.length_ms <= 300), "{told:?}");
}
