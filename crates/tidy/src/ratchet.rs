//! The ratchet: debts that stood when a rule came, each with its size. They may shrink, and must not grow.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use toml::{Table, Value};

use creamery_workspace::{read, root};

const PATH: &str = "docs/tidy-ratchet.toml";

/// Debts of one kind: where, and how much.
pub(super) type Debts = BTreeMap<String, usize>;

/// The debts that are accepted.
pub(super) fn section(name: &str) -> Result<Debts> {
    let table: Table = read(PATH)?.parse().with_context(|| format!("reading {PATH}"))?;
    let entries = table.get(name).and_then(Value::as_table).into_iter().flatten();
    Ok(entries
        .filter_map(|(place, size)| Some((place.clone(), usize::try_from(size.as_integer()?).ok()?)))
        .collect())
}

/// Complaints about accepted debts that are none any more.
pub(super) fn paid_off<'a>(
    allowed: &'a Debts,
    is_debt: impl Fn(&str) -> bool + 'a,
) -> impl Iterator<Item = String> + 'a {
    let paid = allowed.keys().filter(move |place| !is_debt(place));
    paid.map(|place| format!("{PATH}: {place} is paid off, take the line out"))
}

/// Writes today's debts as tomorrow's limits.
pub(super) fn write(sections: &[(&str, Debts)]) -> Result<()> {
    let mut text = String::from(
        "# What is longer than the house likes, and how many files of a crate use each other in circles, how many folders do, and how many\n# pairs of folders use each other, lines of each room that do not speak plainly, and invariants that nothing watches: may shrink, must not grow. cargo xtask tidy --ratchet writes it.\n",
    );
    for (name, debts) in sections {
        text += &format!("\n[{name}]\n");
        for (place, size) in debts {
            text += &format!("\"{place}\" = {size}\n");
        }
        println!("{name}: {} entries", debts.len());
    }
    std::fs::write(root().join(PATH), text).with_context(|| format!("writing {PATH}"))
}
