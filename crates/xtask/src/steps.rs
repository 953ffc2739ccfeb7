//! Steps with names: run one after the other, timed, and summed up in a table at the end.

use std::time::Instant;

use anyhow::{Result, bail};

/// A name and what runs under it.
pub(crate) type Step = (&'static str, fn() -> Result<()>);

/// How a step ended.
pub(crate) struct Done {
    pub(crate) name: String,
    pub(crate) seconds: u64,
    /// Why it failed.
    pub(crate) failure: Option<String>,
}

/// Runs `step`, prints its name before and its failure after.
pub(crate) fn run_step(name: &str, step: impl FnOnce() -> Result<()>) -> Done {
    println!("\n=== {name}");
    let start = Instant::now();
    let failure = step().err().map(|error| format!("{error:#}"));
    if let Some(failure) = &failure {
        println!("xtask: {name}: {failure}");
    }
    Done { name: name.to_owned(), seconds: start.elapsed().as_secs(), failure }
}

/// Runs all `steps`, also those after one that failed.
pub(crate) fn run_steps(steps: &[Step]) -> Vec<Done> {
    steps.iter().map(|(name, step)| run_step(name, step)).collect()
}

/// Prints the seconds of each step, and fails with the failures: of a long log often only the end is kept.
pub(crate) fn sum_up(done: &[Done]) -> Result<()> {
    println!("\n=== summary");
    for Done { name, seconds, failure } in done {
        println!("  {name}: {} ({seconds} s)", if failure.is_none() { "ok" } else { "FAILED" });
    }
    let failed: Vec<String> = done
        .iter()
        .filter_map(|done| done.failure.as_ref().map(|failure| format!("{}: {failure}", done.name)))
        .collect();
    if failed.is_empty() { Ok(()) } else { bail!("{}", failed.join("\n")) }
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::{run_steps, sum_up};

    #[test]
    fn a_step_that_fails_keeps_no_other_from_running_and_fails_the_whole() {
        let done = run_steps(&[("first", || Ok(())), ("second", || bail!("a reason")), ("third", || Ok(()))]);
        let failed: Vec<_> = done.iter().map(|done| done.failure.is_some()).collect();
        assert_eq!(failed, [false, true, false]);
        assert_eq!(sum_up(&done).expect_err("one failed").to_string(), "second: a reason");
        assert!(sum_up(&done[..1]).is_ok());
    }
}
