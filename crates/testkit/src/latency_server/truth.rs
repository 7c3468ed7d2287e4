//! What response times had to be, computed from the server's log alone.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Response times of an open loop: request k arrives at `arrivals_ns[k]`, needs `services_ns[k]`, and is served
/// by whichever of `sessions` becomes free first, in order of arrival.
///
/// With one session this is Lindley's recursion (1952), W' = max(0, W + S - A); with several, Kiefer's and
/// Wolfowitz's (1955).
pub fn response_times_ns(arrivals_ns: &[u64], services_ns: &[u64], sessions: usize) -> Vec<u64> {
    let mut free_at: BinaryHeap<Reverse<u64>> = (0..sessions.max(1)).map(|_| Reverse(0)).collect();
    arrivals_ns
        .iter()
        .zip(services_ns)
        .map(|(arrival, service)| {
            let free = free_at.pop().map_or(0, |Reverse(free)| free);
            let end = free.max(*arrival) + service;
            free_at.push(Reverse(end));
            end - arrival
        })
        .collect()
}

/// The smallest value that at least `quantile` (0 to 1) of the values do not exceed. Sorts them. 0 when empty.
pub fn quantile_ns(values: &mut [u64], quantile: f64) -> u64 {
    values.sort_unstable();
    let rank = (quantile * values.len() as f64).ceil() as usize;
    values.get(rank.clamp(1, values.len().max(1)) - 1).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_session_follows_lindley() {
        // Arrivals every 10; services by hand.
        let arrivals: Vec<u64> = (0..6).map(|k| k * 10).collect();
        let services = [5, 25, 5, 5, 5, 5];
        assert_eq!(response_times_ns(&arrivals, &services, 1), [5, 25, 20, 15, 10, 5]);
    }

    #[test]
    fn several_sessions_take_turns() {
        let arrivals = [0, 0, 0, 10];
        assert_eq!(response_times_ns(&arrivals, &[10, 20, 10, 10], 2), [10, 20, 20, 20]);
    }

    #[test]
    fn an_unloaded_queue_adds_nothing() {
        let arrivals: Vec<u64> = (0..1_000).map(|k| k * 100).collect();
        let services: Vec<u64> = (0..1_000).map(|k| k % 100).collect();
        assert_eq!(response_times_ns(&arrivals, &services, 1), services);
    }

    #[test]
    fn quantiles_are_ranks() {
        let mut values: Vec<u64> = (1..=1_000).rev().collect();
        assert_eq!(quantile_ns(&mut values, 0.5), 500);
        assert_eq!(quantile_ns(&mut values, 0.999), 999);
        assert_eq!(quantile_ns(&mut values, 1.0), 1_000);
        assert_eq!(quantile_ns(&mut [], 0.5), 0);
    }
}
