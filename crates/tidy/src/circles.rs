//! Cycles of files: no file may use another that uses it, directly or through further files.
//!
//! A file uses another when it names an item of it, by a `use` or by a path. A path through a re-export uses the file of the item. The root
//! of a crate is the table of contents: it is in no cycle. `docs/tidy-ratchet.toml` has, for each crate, the number of files in cycles: it
//! may only fall. (Methods of a type in several files are called without a path; the check does not see them.)

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use super::ratchet::{self, Debts};
use creamery_workspace::{files, read};

const SECTION: &str = "circles";
/// The maximum length of a chain of re-exports.
const REEXPORTS_MAX: usize = 8;

/// The path of a module.
pub(super) type Path = Vec<String>;

/// Complains about every crate with more files in cycles than the ratchet allows.
pub(super) fn check(complaints: &mut Vec<String>) -> Result<()> {
    let allowed = ratchet::section(SECTION)?;
    let found = circles()?;
    for (room, names) in &found {
        let limit = allowed.get(room).copied().unwrap_or(0);
        if names.len() > limit {
            let shown = names.join(", ");
            complaints
                .push(format!("crates/{room}: {} files in circles, at most {limit}: {shown}", names.len()));
        }
    }
    complaints.extend(ratchet::paid_off(&allowed, |room| found.contains_key(room)));
    Ok(())
}

/// The number of files in cycles, by crate.
pub(super) fn debts() -> Result<Debts> {
    Ok(circles()?.into_iter().map(|(room, names)| (room, names.len())).collect())
}

/// The files in circles, by crate.
fn circles() -> Result<BTreeMap<String, Vec<String>>> {
    let in_circles = rooms()?.into_iter().map(|(room, files)| (room, files_in_circles(&files)));
    Ok(in_circles.filter(|(_, names)| !names.is_empty()).collect())
}

/// Every crate with its files.
pub(super) fn rooms() -> Result<BTreeMap<String, Room>> {
    let mut rooms: BTreeMap<String, Room> = BTreeMap::new();
    for path in files("crates", &[".rs"])? {
        let shown = path.display().to_string();
        let parts: Vec<&str> = shown.split('/').collect();
        if let [_, room, "src", inside @ ..] = &parts[..]
            && let Some(module) = module(inside)
        {
            rooms.entry((*room).to_owned()).or_default().insert(module, File::new(&read(&path)?));
        }
    }
    Ok(rooms)
}

/// The files of a crate by module.
pub(super) type Room = BTreeMap<Path, File>;

/// The module of a file; `None` for tests and programs.
pub(super) fn module(path: &[&str]) -> Option<Path> {
    let (last, folders) = path.split_last()?;
    let name = last.strip_suffix(".rs")?;
    let is_test = path.contains(&"tests") || name == "tests" || name.ends_with("_tests");
    if is_test || folders.is_empty() && name == "main" || path[0] == "bin" {
        return None;
    }
    let own = (!["lib", "mod"].contains(&name)).then_some(name);
    Some(folders.iter().copied().chain(own).map(str::to_owned).collect())
}

/// The names that a file uses.
#[derive(Default)]
pub(super) struct File {
    uses: Vec<Path>,
    /// Re-exported items, by the name that other files use.
    reexports: BTreeMap<String, Path>,
}

impl File {
    pub(super) fn new(text: &str) -> Self {
        let code = code(text);
        let tokens = tokens(&code);
        let mut file = Self::default();
        let mut at = 0;
        while at < tokens.len() {
            let before = at.checked_sub(1).map_or(";", |before| tokens[before]);
            if tokens[at] == "use" && [";", "}", "{", "]", "pub", ")"].contains(&before) {
                let len = tokens[at..].iter().position(|token| *token == ";").unwrap_or(tokens.len() - at);
                let mut paths = Vec::new();
                use_tree(&tokens[at + 1..at + len], &[], &mut paths);
                for (path, name) in paths {
                    if ["pub", ")"].contains(&before) {
                        file.reexports.insert(name, path);
                    } else {
                        file.uses.push(path);
                    }
                }
                at += len;
            } else if before != "::" && tokens.get(at + 1) == Some(&"::") {
                let path = tokens[at..].chunks(2).take_while(|pair| pair.get(1) == Some(&"::"));
                let path: Path = path.map(|pair| pair[0].to_owned()).collect();
                at += 2 * path.len();
                file.uses.push(path.into_iter().chain(tokens.get(at).map(|&last| last.to_owned())).collect());
            }
            at += 1;
        }
        file
    }
}

/// The text without comments, strings and unit tests.
fn code(text: &str) -> String {
    let mut code = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line == "#[cfg(test)]" {
            if lines.next().is_some_and(|next| next.ends_with('{')) {
                break;
            }
            continue;
        }
        let line = line.split("//").next().unwrap_or(line);
        line.split('"').step_by(2).for_each(|outside| code += outside);
        code.push('\n');
    }
    code
}

/// Splits code into words, `::`, and single other signs.
fn tokens(code: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let in_word = |letter: char| letter.is_alphanumeric() || letter == '_';
        let len = match first {
            ':' if rest.starts_with("::") => 2,
            first if in_word(first) => rest.find(|letter| !in_word(letter)).unwrap_or(rest.len()),
            first => first.len_utf8(),
        };
        let (token, behind) = rest.split_at(len);
        found.push(token);
        rest = behind.trim_start();
    }
    found
}

/// The paths of a `use`, each with the local name.
fn use_tree(tokens: &[&str], before: &[String], paths: &mut Vec<(Path, String)>) {
    let mut path = before.to_vec();
    let words = tokens.iter().take_while(|token| !["{", "as"].contains(*token));
    path.extend(words.filter(|token| !["::", "self"].contains(*token)).map(|&word| word.to_owned()));
    let alias = tokens.iter().position(|token| *token == "as").and_then(|at| tokens.get(at + 1));
    let Some(open) = tokens.iter().position(|token| *token == "{") else {
        if let Some(name) = alias.copied().or(path.last().map(String::as_str)).map(str::to_owned) {
            paths.push((path, name));
        }
        return;
    };
    let (mut depth, mut start) = (0, open + 1);
    for (at, token) in tokens.iter().enumerate().skip(open + 1) {
        match *token {
            "{" => depth += 1,
            "}" if depth > 0 => depth -= 1,
            "," | "}" if depth == 0 => {
                if start < at {
                    use_tree(&tokens[start..at], &path, paths);
                }
                start = at + 1;
            }
            _ => {}
        }
    }
}

/// The module of the item that `path` names in module `here`.
fn resolve(room: &Room, here: &[String], path: &[String], depth: usize) -> Option<Path> {
    let child = |module: &[String], name: &String| -> Path {
        module.iter().cloned().chain(std::iter::once(name.clone())).collect()
    };
    let (mut at, mut path) = (here.to_vec(), path);
    match path.first()?.as_str() {
        "crate" => (at, path) = (Path::new(), &path[1..]),
        "super" => {}
        _ if room.contains_key(&child(here, &path[0])) => {}
        _ => return None,
    }
    while path.first().is_some_and(|word| word == "super") {
        at.pop();
        path = &path[1..];
    }
    for name in path {
        if room.contains_key(&child(&at, name)) {
            at = child(&at, name);
            continue;
        }
        let elsewhere = room.get(&at).and_then(|file| file.reexports.get(name));
        return match elsewhere {
            Some(path) if depth < REEXPORTS_MAX => resolve(room, &at, path, depth + 1),
            _ => Some(at),
        };
    }
    Some(at)
}

/// The files that each file of a crate uses. No file uses the root.
pub(super) fn arrows(room: &Room) -> BTreeMap<&Path, BTreeSet<Path>> {
    let mut arrows = BTreeMap::new();
    for (module, file) in room {
        let used = file.uses.iter().filter_map(|path| resolve(room, module, path, 0));
        arrows.insert(module, used.filter(|used| used != module && !used.is_empty()).collect());
    }
    arrows
}

/// The modules that each file of a crate names: in its paths as they are written, in its re-exports, and those of [`arrows`].
pub(super) fn named(room: &Room) -> BTreeMap<&Path, BTreeSet<Path>> {
    let mut named = arrows(room);
    for (module, file) in room {
        let written = file.uses.iter().chain(file.reexports.values());
        let written = written.filter_map(|path| resolve(room, module, path, REEXPORTS_MAX));
        named.entry(module).or_default().extend(written.filter(|used| !used.is_empty()));
    }
    named
}

fn files_in_circles(room: &Room) -> Vec<String> {
    let arrows = arrows(room);
    let used = |module: &Path| arrows.get(module).into_iter().flatten().cloned().collect::<Vec<_>>();
    let modules = room.keys().filter(|module| !module.is_empty() && reaches_itself(*module, used));
    modules.map(|module| module.join("/")).collect()
}

/// Whether a cycle of `used` leads from `one` back to itself.
pub(super) fn reaches_itself<N: Ord + Clone>(one: &N, used: impl Fn(&N) -> Vec<N>) -> bool {
    let mut reached = BTreeSet::new();
    let mut next = used(one);
    while let Some(at) = next.pop() {
        if reached.insert(at.clone()) {
            next.extend(used(&at));
        }
    }
    reached.contains(one)
}

#[cfg(test)]
mod tests {
    use super::{File, Room, files_in_circles, module};

    fn told(files: &[(&str, &str)]) -> Vec<String> {
        let file = |(path, text): &(&str, &str)| {
            let parts: Vec<&str> = path.split('/').collect();
            Some((module(&parts)?, File::new(text)))
        };
        files_in_circles(&files.iter().filter_map(file).collect::<Room>())
    }

    #[test]
    fn a_circle_of_three_is_found() {
        let rows = [
            ("lib.rs", "mod a;\nmod b;\nmod c;\npub use a::A;\n"),
            ("a.rs", "use crate::b::{B, C};\n"),
            ("b.rs", "fn f() -> Box<dyn Fn()> {\n    crate::c::g(\"x\")\n}\n"),
            ("c.rs", "use super::{a::{self}, d::D};\n"),
            (
                "d.rs",
                "/// As [`crate::a::A`].\nstruct D;\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n",
            ),
        ];
        assert_eq!(told(&rows), ["a", "b", "c"]);
        assert_eq!(told(&rows[..3]), [""; 0]);
    }

    #[test]
    fn what_is_reexported_is_where_it_is_made() {
        let rows = [
            ("lib.rs", "mod room;\nmod other;\n"),
            ("room/mod.rs", "mod a;\nmod b;\npub(crate) use a::{A as One, Two};\npub(crate) struct Here;\n"),
            ("room/a.rs", "use super::Here;\n"),
            ("room/b.rs", "use super::One;\n"),
        ];
        assert_eq!(told(&rows), [""; 0]);
        let used = ("room/a.rs", "use super::b;\n");
        assert_eq!(told(&[rows[0], rows[1], used, rows[3]]), ["room/a", "room/b"]);
        let private = ("room/mod.rs", "mod a;\nuse a::A;\nfn f() {\n    b::g()\n}\n");
        assert_eq!(told(&[rows[0], private, rows[2]]), ["room", "room/a"]);
    }

    #[test]
    fn tests_are_no_part_of_it() {
        assert_eq!(module(&["data", "tests", "model.rs"]), None);
        assert_eq!(module(&["block_tests.rs"]), None);
        assert_eq!(module(&["data", "mod.rs"]), Some(vec!["data".to_owned()]));
    }
}
