//! The public surface of the library: how many names its root has, and that no function takes a `bool`, and that methods of
//! the main types have examples.

use anyhow::{Result, ensure};

use creamery_workspace::{files, read};

/// The root of the library.
const ROOT: &str = "crates/creamery/src/lib.rs";
/// Names that its page in rustdoc may list, modules among them.
const NAMES_MAX: usize = 40;

/// Where its sources are.
const SOURCES: &str = "crates/creamery/src";

/// The switches of `OpenOptions`, which a macro makes, take what those of `std::fs::OpenOptions` take.
const AS_IN_STD: (&str, &str) = ("crates/creamery/src/open_options.rs", "$name");

/// Files of the types that everybody uses: each public method has an example.
const WITH_EXAMPLES: [&str; 21] = [
    "attributes.rs",
    "attributes_by_path.rs",
    "copying.rs",
    "dedupe.rs",
    "default_subvolume.rs",
    "disk_usage.rs",
    "extents.rs",
    "file.rs",
    "file_times.rs",
    "filesystem.rs",
    "image/mod.rs",
    "image/open.rs",
    "make.rs",
    "metadata.rs",
    "names.rs",
    "open_options.rs",
    "permissions.rs",
    "quota.rs",
    "subvolumes.rs",
    "volume.rs",
    "tar/build.rs",
];

/// Complains about a root with too many names, and about functions that take a `bool`.
pub(super) fn check(complaints: &mut Vec<String>) -> Result<()> {
    let names = names(&read(ROOT)?);
    ensure!(!names.is_empty(), "{ROOT}: no public names");
    complaints.extend(too_many(&names));
    for file in WITH_EXAMPLES {
        let shown = format!("{SOURCES}/{file}");
        let bare = without_example(&read(&shown)?).into_iter();
        let bare = bare.filter(|name| (&*shown, &**name) != AS_IN_STD);
        complaints.extend(bare.map(|name| format!("{shown}: the public function {name} has no example")));
    }
    for path in files(SOURCES, &[".rs"])? {
        let shown = path.display();
        let taking = taking_bool(&read(&path)?).into_iter();
        let taking = taking.filter(|name| (&*shown.to_string(), &**name) != AS_IN_STD);
        complaints.extend(taking.map(|name| {
            format!("{shown}: the public function {name} takes a bool: an enum, or a method for each of the two, says what it means")
        }));
    }
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

/// The public functions with a parameter that is a `bool`; one in what a closure takes or returns is none.
fn taking_bool(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    let mut found = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let Some(name) = public_function(line) else { continue };
        let rest = lines[number..].join(" ");
        let signature = rest.split(['{', ';']).next().unwrap_or_default();
        let parameters = signature.split(" -> ").next().unwrap_or_default();
        if parameters.split([',', ')']).any(|parameter| parameter.trim_end().ends_with(": bool")) {
            found.push(name.to_owned());
        }
    }
    found
}

/// The public functions whose documentation has no code.
fn without_example(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    let mut found = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let Some(name) = public_function(line) else { continue };
        let above = lines[..number].iter().rev();
        let mut above = above.take_while(|line| line.starts_with("///") || line.starts_with("#["));
        if !above.any(|line| line.starts_with("/// ```")) {
            found.push(name.to_owned());
        }
    }
    found
}

/// The name of the public function that a line begins.
fn public_function(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("pub ")?;
    let rest = rest.strip_prefix("const ").unwrap_or(rest).strip_prefix("fn ")?;
    rest.split(['(', '<']).next()
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
    fn a_bool_parameter_is_found_and_that_of_a_closure_or_an_answer_is_not() {
        let bad = ["pub fn f(on: bool) {", "pub const fn f(\n    self,\n    on: bool,\n) -> u8 {"];
        let good = [
            "pub fn f(&self) -> bool {",
            "pub fn f(g: impl Fn() -> bool) {",
            "pub(crate) fn f(on: bool) {",
            "fn f(on: bool) {",
        ];
        assert!(bad.iter().all(|text| taking_bool(text) == ["f"]));
        assert!(good.iter().all(|text| taking_bool(text).is_empty()));
    }

    #[test]
    fn a_public_function_without_an_example_is_found() {
        let text = "/// Words.\n///\n/// ```\n/// f();\n/// ```\n#[must_use]\npub fn f() {}\n/// Words.\npub fn g() {}\nfn h() {}\n";
        assert_eq!(without_example(text), ["g"]);
    }

    #[test]
    fn a_root_with_one_name_more_than_it_may_have_is_a_complaint() {
        let of = |count: usize| vec![String::from("x"); count];
        assert_eq!(too_many(&of(NAMES_MAX)), None);
        assert!(too_many(&of(NAMES_MAX + 1)).is_some_and(|complaint| complaint.contains("41")));
    }
}
