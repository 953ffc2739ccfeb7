//! The table of locks on the page about the design: all ranks, outer first, as `base::lock::rank` declares them.

use anyhow::{Context, Result, ensure};

use creamery_workspace::read;

const RANKS: &str = "crates/base/src/lock/rank.rs";

/// A rank as its declaration has it.
struct Rank {
    name: String,
    number: u8,
    about: String,
}

/// The table, a row for each rank.
pub(super) fn table() -> Result<String> {
    let text = read(RANKS)?;
    let (ranks, short) = (ranks(&text), short(&text)?);
    ensure!(ranks.len() > 10, "{RANKS}: {} ranks, expected all of them", ranks.len());
    let mut table = String::from("| rank | lock | I/O while a thread holds it |\n|---|---|---|\n");
    for Rank { name, number, about } in &ranks {
        table += &format!("| {number} | `{name}`: {about} | {} |\n", io(name, *number < short));
    }
    Ok(table)
}

/// Whether a thread that holds such a lock may wait for a device.
fn io(name: &str, is_long: bool) -> &'static str {
    match (is_long, name == "NODE" || name.ends_with("_NODE")) {
        (false, _) => "never (LOCK-2)",
        (true, true) => "never under a write lock (READ-1)",
        (true, false) => "allowed",
    }
}

/// Where short ranks begin.
fn short(text: &str) -> Result<u8> {
    let line = text.lines().find_map(|line| line.strip_prefix("pub const SHORT: u8 = "));
    let number =
        line.and_then(|line| line.strip_suffix(';')).with_context(|| format!("{RANKS}: no SHORT"))?;
    number.parse().with_context(|| format!("{RANKS}: SHORT = {number}"))
}

/// The declarations in the macro's list.
fn ranks(text: &str) -> Vec<Rank> {
    let list = text.split_once("\nranks! {\n").map_or("", |(_, list)| list);
    let (mut ranks, mut about) = (Vec::new(), String::new());
    for line in list.lines().map(str::trim) {
        if let Some(doc) = line.strip_prefix("/// ") {
            about += if about.is_empty() { "" } else { " " };
            about += doc;
        } else if let Some((name, number)) = line.strip_suffix(';').and_then(|line| line.split_once(" = "))
            && let Ok(number) = number.parse()
        {
            let about = std::mem::take(&mut about);
            ranks.push(Rank { name: name.to_owned(), number, about: about.trim_end_matches('.').to_owned() });
        }
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_read_with_all_that_is_said_about_it() {
        let text = "pub const SHORT: u8 = 60;\n\nranks! {\n    /// Operations of an inode;\n    /// in order.\n    INODE = 20;\n\n    /// Innermost.\n    LEAF = 90;\n}\n";
        let ranks = ranks(text);
        assert_eq!(ranks.len(), 2);
        assert_eq!((&*ranks[0].name, ranks[0].number), ("INODE", 20));
        assert_eq!(ranks[0].about, "Operations of an inode; in order");
        assert_eq!(short(text).expect("it is there"), 60);
    }

    #[test]
    fn long_locks_allow_input_and_output_and_blocks_do_where_they_are_read() {
        assert_eq!(io("INODE", true), "allowed");
        assert_eq!(io("CSUM_NODE", true), "never under a write lock (READ-1)");
        assert_eq!(io("TABLE", false), "never (LOCK-2)");
    }
}
