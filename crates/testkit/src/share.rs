//! How much of a matrix runs, and from which seed.
//!
//! Every change takes a share from a fixed seed, so that it ends soon and does the same each time. `cargo xtask proof` sets
//! `CREAMERY_MATRIX=whole`, and `CREAMERY_SEED` to a fresh number that it prints. `CREAMERY_ROUNDS` sets the rounds of the tests that
//! a filter chooses.

use sha2::{Digest, Sha256};

/// `share`, or `whole` where the whole matrix is asked for.
///
/// ```
/// // 50 unless CREAMERY_MATRIX=whole asks for all 2,000.
/// let files = creamery_testkit::share_or_whole(50, 2_000);
/// # assert!(files == 50 || files == 2_000);
/// ```
#[must_use]
pub fn share_or_whole<T>(share: T, whole: T) -> T {
    if std::env::var_os("CREAMERY_MATRIX").is_some_and(|value| value == "whole") { whole } else { share }
}

/// Rounds of a test: `CREAMERY_ROUNDS`, else `share`, or `whole` where the whole matrix is asked for.
#[must_use]
pub fn rounds(share: u64, whole: u64) -> u64 {
    number("CREAMERY_ROUNDS").unwrap_or_else(|| share_or_whole(share, whole))
}

/// Cases of a table of edges: one in `CREAMERY_EDGES`, else one in `share`, or all where the whole is asked for.
#[must_use]
pub fn one_in(share: usize) -> usize {
    number("CREAMERY_EDGES").map_or_else(
        || share_or_whole(share, 1),
        |asked| usize::try_from(asked).expect("a share of the cases"),
    )
}

/// Schedules of a test that runs under a scheduler: `CREAMERY_SCHEDULES`, else `share`, or ten times as many where the whole is
/// asked for.
#[must_use]
pub fn schedules(share: usize) -> usize {
    number("CREAMERY_SCHEDULES").map_or_else(
        || share_or_whole(share, 10 * share),
        |asked| usize::try_from(asked).expect("as many schedules as can be counted"),
    )
}

/// The seed of the schedules of the test `name`: `CREAMERY_SCHEDULES_SEED`, as a failure prints it, else [`seed_of`].
#[must_use]
pub fn schedules_seed(name: &str) -> u64 {
    number("CREAMERY_SCHEDULES_SEED").unwrap_or_else(|| seed_of(name))
}

/// The seed of the run `name`: the same each time, and another one for each `CREAMERY_SEED`.
#[must_use]
pub fn seed_of(name: &str) -> u64 {
    let hash = Sha256::new().chain_update(name).chain_update(asked_seed().to_le_bytes()).finalize();
    u64::from_le_bytes(*hash.first_chunk().expect("a hash has 32 bytes"))
}

/// `CREAMERY_SEED`, else 0: what is added to the fixed seeds of a test that counts upwards.
#[must_use]
pub fn asked_seed() -> u64 {
    number("CREAMERY_SEED").unwrap_or(0)
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|value| value.parse().expect("a variable that sets a number has one"))
}

#[cfg(test)]
mod tests {
    use super::seed_of;

    #[test]
    fn each_run_has_a_seed_of_its_own() {
        assert_eq!(seed_of("a"), seed_of("a"));
        assert_ne!(seed_of("a"), seed_of("b"));
    }
}
