//! Seeds that once failed, from `seeds.txt`.

const STORED: &str = include_str!("../seeds.txt");

/// The seeds that are stored for a kind of run.
///
/// ```
/// assert!(!creamery_sim::stored_seeds("kernel").is_empty());
/// assert!(creamery_sim::stored_seeds("no such run").is_empty());
/// ```
///
/// # Panics
/// When the file has a line that means nothing.
#[must_use]
pub fn stored_seeds(run: &str) -> Vec<u64> {
    let lines = STORED.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    let seeds = lines.filter_map(|line| {
        let mut words = line.split_whitespace();
        let mine = words.next() == Some(run);
        let seed = words.next().and_then(|word| word.parse().ok());
        let seed = seed.unwrap_or_else(|| panic!("seeds.txt has no seed in: {line}"));
        assert!(words.next().is_some(), "seeds.txt does not say what was found: {line}");
        mine.then_some(seed)
    });
    seeds.collect()
}
