//! Duels on real servers.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use lab::duel::{Request, SLICE, Side, duel};
use lab::watch::Watch;
use lab::{Event, StopSwitch};
use sandbox::Home;
use store::{Finding, Status};

fn request(lives: u32, slices: u32) -> Option<(Home, Request)> {
    if !sandbox::testing::servers_are_wanted("duels") {
        return None;
    }
    let home = Home::find().unwrap();
    let build = sandbox::testing::spec(&home, "mariadb").unwrap().build;
    let side = |name: &str| Side::new(name, build.clone());
    let options = [("tables", "1"), ("table_size", "5000")];
    let request = Request {
        sides: vec![side("a"), side("b")],
        workload: lab::workloads::resolve("oltp_read_write").unwrap(),
        options: options.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        sessions: 2,
        lives,
        slices,
        warmup: Duration::from_millis(500),
        pacing: load::Pacing::Closed,
        seed: 7,
    };
    Some((home, request))
}

#[test]
fn two_servers_are_loaded_in_turns_and_each_is_a_run_like_any_other() {
    let Some((home, request)) = request(1, 4) else { return };
    let mut lives = Vec::new();
    let observer = |_: Event<'_>| ();
    duel(&home, &request, &Watch::default(), &observer, &StopSwitch::default(), &mut |life| {
        lives.push(life);
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(lives.len(), 1);
    let life = &lives[0];
    let mut spans: Vec<(f64, f64, usize)> = Vec::new();
    for (at, side) in life.sides.iter().enumerate() {
        assert_eq!(side.failure, None, "{:?}", side.end.error);
        assert!(matches!(side.end.status, Status::Done | Status::Invalid));
        let [step] = side.end.steps.as_slice() else { panic!("one level, not {}", side.end.steps.len()) };
        let duel = side.end.duel.as_ref().unwrap();
        // On a machine that others use, some slices are made again.
        assert_eq!((duel.sides, duel.side), (2, at as u32));
        assert!((4..=8).contains(&duel.slices.len()), "{}", duel.slices.len());
        // What the level has is what its slices had that count.
        let counted: Vec<_> = duel.slices.iter().filter(|slice| slice.is_counted).collect();
        assert!((2..=8).contains(&counted.len()), "{:?}", duel.slices);
        let committed: u64 = counted.iter().map(|slice| slice.committed).sum();
        assert_eq!(committed, step.outcomes.committed);
        let measured_s = counted.len() as f64 * SLICE.as_secs_f64();
        assert!((step.duration_s - measured_s).abs() < 0.05, "{}", step.duration_s);
        let measured: Vec<i64> =
            step.seconds.iter().map(|second| second.second).filter(|at| *at >= 1).collect();
        assert_eq!(measured, (1..=counted.len() as i64).collect::<Vec<_>>());
        assert!(side.slices_tps().iter().all(|tps| *tps > 0.0));
        let began_s = side.start.started_at_ms as f64 / 1e3;
        spans.extend(duel.slices.iter().map(|s| (began_s + s.at_s, began_s + s.at_s + s.duration_s, at)));
        let gate = |name: &str| side.end.gates.iter().find(|gate| gate.name == name);
        assert_ne!(gate("waiting_server").unwrap().finding, Finding::NotChecked);
        assert_eq!(gate("consistency").unwrap().finding, Finding::Held);
        // Counters of the server's own slices alone: about one commit for each transaction.
        assert!(side.end.facts.contains_key("per_transaction/2/server_cpu"), "{:?}", side.end.facts);
    }
    spans.sort_by(|one, other| one.0.total_cmp(&other.0));
    // Both began within a few milliseconds, which is all that their clocks differ by here.
    assert!(spans.windows(2).all(|pair| pair[1].0 > pair[0].1 - 0.05), "slices overlap: {spans:?}");
    let order: Vec<usize> = spans.iter().map(|span| span.2).collect();
    assert!([[0, 1, 1, 0], [1, 0, 0, 1]].contains(&[order[0], order[1], order[2], order[3]]), "{order:?}");
}

#[test]
fn a_side_that_cannot_start_ends_the_life_and_not_the_others_wait() {
    let Some((home, mut request)) = request(1, 4) else { return };
    request.sides[1].settings = BTreeMap::from([("no_such_variable".to_owned(), "1".to_owned())]);
    let mut lives = Vec::new();
    duel(&home, &request, &Watch::default(), &|_: Event<'_>| (), &StopSwitch::default(), &mut |life| {
        lives.push(life);
        ControlFlow::Continue(())
    })
    .unwrap();
    assert!(!lives[0].is_valid());
    let errors: Vec<String> = lives[0].sides.iter().filter_map(|side| side.end.error.clone()).collect();
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert!(errors[0].contains("another side of its duel failed"), "{errors:?}");
}

#[test]
fn a_duel_has_two_sides() {
    let Some((home, mut request)) = request(1, 4) else { return };
    request.sides.pop();
    let refused =
        duel(&home, &request, &lab::NoHooks, &|_: Event<'_>| (), &StopSwitch::default(), &mut |_| {
            ControlFlow::Continue(())
        });
    assert!(refused.unwrap_err().to_string().contains("a duel has 2 to"));
}
