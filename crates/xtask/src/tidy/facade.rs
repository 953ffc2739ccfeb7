//! The public surface of the library: how many names its root has, and what its functions take.

use anyhow::{Result, ensure};

use crate::workspace::read;

/// The root of the library.
const ROOT: &str = "crates/creamery/src/lib.rs";
/// Names that its page in rustdoc may list, modules among them.
const NAMES_MAX: usize = 40;

/// Complains about a root with too many names.
pub(super) fn check(complaints: &mut Vec<String>) -> Result<()> {
    let names = names(&read(ROOT)?);
    ensure!(!names.is_empty(), "{ROOT}: no public names");
    complaints.extend(too_many(&names));
    Ok(())
}

fn too_many(names: &[String]) -> Option<String> {
    let count = names.len();
    (count > NAMES_MAX).then(|| {
        format!("{ROOT}: {count} public names at the root, at most {NAMES_MAX}: put some into a module")
    })
}

/// The names that the root of a crate makes public: modules and what it re-exports.
fn names(text: &str) -> Vec<String> {
    let code: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let code = code.join("\n");
    let mut names = Vec::new();
    for statement in code.split(';') {
        let Some(start) = statement.lines().position(|line| line.starts_with("pub ")) else { continue };
        let statement: Vec<&str> = statement.lines().skip(start).collect();
        let statement = statement.join(" ");
        match (statement.split_once('{'), statement.split_once(" as ")) {
            (Some((_, group)), _) => names.extend(
                group
                    .trim_end_matches('}')
                    .split(',')
                    .map(str::trim)
                    .filter(|name| !name.is_empty())
                    .map(str::to_owned),
            ),
            (None, Some((_, name))) => names.push(name.to_owned()),
            (None, None) => {
                let last = statement.rsplit([' ', ':']).next();
                names.extend(last.map(str::to_owned));
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_and_exports_of_the_root_are_counted_and_private_ones_are_not() {
        let text = "//! Words; pub mod in_words;\nmod a;\npub mod b;\npub(crate) use c::D;\npub use e::{F, G,\n    H};\npub use i::J;\n";
        assert_eq!(names(text), ["b", "F", "G", "H", "J"]);
    }

    #[test]
    fn a_root_with_one_name_more_than_it_may_have_is_a_complaint() {
        let of = |count: usize| vec![String::from("x"); count];
        assert_eq!(too_many(&of(NAMES_MAX)), None);
        assert!(too_many(&of(NAMES_MAX + 1)).is_some_and(|complaint| complaint.contains("41")));
    }
}
