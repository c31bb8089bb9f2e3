//! Staggered concurrent attempts: the first one to succeed wins.

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::future::Future;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Starts an attempt for each candidate in order: number `n` starts `pause(n)` after the one
/// before, or as soon as one fails. Returns the first success with its candidate's number, counted
/// from 0, and drops the other attempts.
///
/// # Errors
///
/// All attempts failed: their errors with their numbers, in the order they failed.
pub async fn race<C, T, E, F>(
    candidates: &[C],
    pause: impl Fn(usize) -> Duration,
    attempt: impl Fn(C) -> F,
) -> Result<(usize, T), Vec<(usize, E)>>
where
    C: Clone,
    F: Future<Output = Result<T, E>>,
{
    let mut waiting = candidates.iter().cloned().enumerate();
    let mut running = FuturesUnordered::new();
    let mut failed = Vec::new();
    let mut next_start = Instant::now();
    loop {
        if Instant::now() >= next_start
            && let Some((position, candidate)) = waiting.next()
        {
            let future = attempt(candidate);
            running.push(async move { (position, future.await) });
            next_start = Instant::now() + pause(position + 1);
        }
        tokio::select! {
            biased;
            result = running.next(), if !running.is_empty() => match result {
                Some((position, Ok(success))) => return Ok((position, success)),
                Some((position, Err(error))) => {
                    failed.push((position, error));
                    next_start = Instant::now();
                }
                None => {}
            },
            () = sleep_until(next_start), if waiting.len() > 0 => {}
            else => return Err(failed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use tokio::time::sleep;

    const STAGGER: Duration = Duration::from_millis(250);
    /// Before the fourth candidate.
    const SPREAD: Duration = Duration::from_millis(10);

    /// Succeeds or fails after this many milliseconds.
    type Candidate = (u64, bool);

    async fn run(candidates: &[Candidate]) -> (Result<usize, Vec<usize>>, Vec<u64>, u64) {
        let started = Instant::now();
        let starts = RefCell::new(Vec::new());
        let pause = |position| [STAGGER, SPREAD][usize::from(position == 3)];
        let result = race(candidates, pause, |(delay, succeeds)| {
            starts
                .borrow_mut()
                .push(started.elapsed().as_millis() as u64);
            async move {
                sleep(Duration::from_millis(delay)).await;
                if succeeds { Ok(()) } else { Err(()) }
            }
        });
        let result = result.await.map(|(position, ())| position);
        let result =
            result.map_err(|failed| failed.into_iter().map(|(position, ())| position).collect());
        (
            result,
            starts.into_inner(),
            started.elapsed().as_millis() as u64,
        )
    }

    #[tokio::test(start_paused = true)]
    async fn a_first_path_that_answers_is_the_only_one_tried() {
        assert_eq!(run(&[(100, true), (1, true)]).await, (Ok(0), vec![0], 100));
    }

    #[tokio::test(start_paused = true)]
    async fn a_dead_first_path_costs_one_stagger() {
        assert_eq!(
            run(&[(60_000, false), (30, true)]).await,
            (Ok(1), vec![0, 250], 280)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_starts_the_next_attempt_at_once() {
        assert_eq!(
            run(&[(10, false), (30, true)]).await,
            (Ok(1), vec![0, 10], 40)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_early_attempt_may_still_win_over_a_slower_late_one() {
        assert_eq!(
            run(&[(600, true), (5000, true)]).await,
            (Ok(0), vec![0, 250], 600)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn each_candidate_has_a_pause_of_its_own() {
        let slow = [(900, true); 3];
        let (winner, starts, took) = run(&[&slow[..], &[(30, true)]].concat()).await;
        assert_eq!((winner, took), (Ok(3), 540));
        assert_eq!(starts, [0, 250, 500, 510]);
    }

    #[tokio::test(start_paused = true)]
    async fn when_all_fail_every_error_is_returned() {
        let (result, starts, _) = run(&[(400, false), (1, false), (1, false)]).await;
        assert_eq!(result, Err(vec![1, 2, 0]));
        assert_eq!(starts, [0, 250, 251]);
        assert_eq!(run(&[]).await.0, Err(vec![]));
    }
}
