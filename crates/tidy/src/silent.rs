//! Nothing on disk is passed over in silence: each feature bit, key type and inode flag that `format` names has one row in
//! `docs/coverage`, which says whether it works.

use anyhow::{Result, ensure};

use crate::coverage::sheets;
use creamery_workspace::read;

/// Where names are declared.
struct Declared {
    /// What a row's name begins with, before the name itself.
    what: &'static str,
    file: &'static str,
    /// The line behind which the names stand; a closing brace of its own indentation ends them.
    opening: &'static str,
}

const DECLARED: [Declared; 4] = [
    Declared {
        what: "incompat",
        file: "crates/format/src/features.rs",
        opening: "    pub struct Incompat: u64 {",
    },
    Declared {
        what: "compat_ro",
        file: "crates/format/src/features.rs",
        opening: "    pub struct CompatRo: u64 {",
    },
    Declared { what: "key", file: "crates/format/src/key.rs", opening: "key_types! {" },
    Declared {
        what: "inode flag",
        file: "crates/format/src/items/inode.rs",
        opening: "    pub struct InodeFlags: u64 {",
    },
];

/// Complains about what has no row, more than one, or a row and no name.
pub(super) fn check(complaints: &mut Vec<String>) -> Result<()> {
    let sheets = sheets()?;
    let rows: Vec<&str> = sheets.iter().flat_map(|sheet| &sheet.rows).map(|row| row.name()).collect();
    for Declared { what, file, opening } in &DECLARED {
        let names = names(&read(file)?, opening);
        ensure!(!names.is_empty(), "{file}: no names behind the line {opening:?}");
        complaints.extend(compare(what, &names, &rows));
    }
    Ok(())
}

/// The constants that are declared behind a line.
fn names(text: &str, opening: &str) -> Vec<String> {
    let indentation = opening.len() - opening.trim_start().len();
    let closing = format!("{}}}", " ".repeat(indentation));
    let lines = text.lines().skip_while(|line| *line != opening).skip(1).take_while(|line| *line != closing);
    let names = lines.map(str::trim_start).filter(|line| !line.starts_with("//")).filter_map(|line| {
        let (name, _) = line.split_once(" = ")?;
        Some(name.strip_prefix("const ").unwrap_or(name))
    });
    names.filter(|name| *name != "_").map(str::to_owned).collect()
}

/// What is wrong between the names of one kind and the rows about it.
fn compare(what: &str, names: &[String], rows: &[&str]) -> Vec<String> {
    let named: Vec<&str> =
        rows.iter().filter_map(|row| row.strip_prefix(what)?.strip_prefix(" `")?.split('`').next()).collect();
    let mut complaints = Vec::new();
    for name in names {
        match named.iter().filter(|row| **row == name.as_str()).count() {
            1 => {}
            0 => complaints.push(format!("docs/coverage: no row begins with \"{what} `{name}`\"")),
            count => complaints.push(format!("docs/coverage: {count} rows begin with \"{what} `{name}`\"")),
        }
    }
    let unknown = named.iter().filter(|row| !names.iter().any(|name| name.as_str() == **row));
    complaints
        .extend(unknown.map(|row| format!("docs/coverage: {what} `{row}` is no name in crates/format")));
    complaints
}

#[cfg(test)]
mod tests {
    use super::{DECLARED, compare, names};
    use creamery_workspace::read;

    #[test]
    fn names_are_found_where_they_are_declared() {
        for (what, known, at_least) in [
            ("incompat", "SIMPLE_QUOTA", 16),
            ("compat_ro", "VERITY", 4),
            ("key", "STRING_ITEM", 40),
            ("inode flag", "NODATASUM", 14),
        ] {
            let declared = DECLARED.iter().find(|declared| declared.what == what).unwrap();
            let names = names(&read(declared.file).unwrap(), declared.opening);
            assert!(names.len() >= at_least && names.iter().any(|name| name == known), "{what}: {names:?}");
        }
    }

    #[test]
    fn what_has_no_row_or_two_is_found() {
        let names = ["A", "B", "C"].map(str::to_owned);
        let rows = ["key `A`", "key `B`: one", "key `B`: two", "key `D`", "inode flag `C`", "keys `C`"];
        assert_eq!(
            compare("key", &names, &rows),
            [
                "docs/coverage: 2 rows begin with \"key `B`\"",
                "docs/coverage: no row begins with \"key `C`\"",
                "docs/coverage: key `D` is no name in crates/format",
            ]
        );
    }
}
