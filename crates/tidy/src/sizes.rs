//! Sizes: files of one concept, functions of one screen.
//!
//! A file has at most 600 lines that are not tests, and a function at most 70. What was over the mark when the rule
//! came is listed in `docs/tidy-ratchet.toml` with its size: it may shrink, and must not grow. Nothing may have more than
//! 1,000 lines. The code is formatted by rustfmt, so a function ends at the closing brace in the column where it began.

use anyhow::Result;

use super::ratchet::{self, Debts};
use creamery_workspace::{files, read};

const FILE_SOFT: usize = 600;
const FILE_HARD: usize = 1_000;
const FUNCTION_SOFT: usize = 70;
const FILES: &str = "files";
const FUNCTIONS: &str = "functions";

#[derive(Default)]
struct Sizes {
    /// Lines of each file that has too many.
    files: Debts,
    /// Lines of the longest function of each file that has one too long, by `file::function`.
    functions: Debts,
}

/// Complains about what is over the mark and not in the ratchet, or has grown since.
pub(super) fn check(complaints: &mut Vec<String>) -> Result<()> {
    let found = sizes()?;
    let allowed = Sizes { files: ratchet::section(FILES)?, functions: ratchet::section(FUNCTIONS)? };
    for (path, lines) in &found.files {
        let limit = allowed.files.get(path).copied().unwrap_or(FILE_SOFT).min(FILE_HARD);
        if *lines > limit {
            complaints.push(format!("{path}: {lines} lines that are not tests, at most {limit}"));
        }
    }
    for (place, lines) in &found.functions {
        let limit = allowed.functions.get(place).copied().unwrap_or(FUNCTION_SOFT);
        if *lines > limit {
            complaints.push(format!("{place}: {lines} lines, at most {limit}"));
        }
    }
    complaints.extend(ratchet::paid_off(&allowed.files, |place| found.files.contains_key(place)));
    complaints.extend(ratchet::paid_off(&allowed.functions, |place| found.functions.contains_key(place)));
    Ok(())
}

/// What is over the mark, by sections of the ratchet.
pub(super) fn sections() -> Result<[(&'static str, Debts); 2]> {
    let Sizes { files, functions } = sizes()?;
    Ok([(FILES, files), (FUNCTIONS, functions)])
}

fn sizes() -> Result<Sizes> {
    let mut debts = Sizes::default();
    for path in files("crates", &[".rs"])? {
        let (text, shown) = (read(&path)?, path.display().to_string());
        let lines = lines_without_tests(&text);
        if lines > FILE_SOFT {
            debts.files.insert(shown.clone(), lines);
        }
        for (name, lines) in long_functions(&text) {
            let place = debts.functions.entry(format!("{shown}::{name}")).or_default();
            *place = lines.max(*place);
        }
    }
    Ok(debts)
}

/// Lines before the unit tests, which stand at the end of a file.
fn lines_without_tests(text: &str) -> usize {
    text.lines().position(|line| line == "#[cfg(test)]").unwrap_or_else(|| text.lines().count())
}

/// Functions with too many lines, tests included: a test that long hides its point.
fn long_functions(text: &str) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    let mut open: Option<(usize, &str, usize)> = None;
    for (number, line) in text.lines().enumerate() {
        let indent = line.len() - line.trim_start().len();
        match open {
            None => {
                if let Some(name) = function_name(line.trim_start())
                    && !line.ends_with(';')
                    && !line.ends_with('}')
                {
                    open = Some((indent, name, number));
                }
            }
            Some((column, name, start))
                if indent == column && (line.trim() == "}" || line.ends_with(';')) =>
            {
                let lines = number - start + 1;
                if lines > FUNCTION_SOFT && line.trim() == "}" {
                    found.push((name.to_owned(), lines));
                }
                open = None;
            }
            Some(_) => {}
        }
    }
    found
}

fn function_name(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace();
    loop {
        match words.next()? {
            "fn" => break,
            "pub" | "const" | "unsafe" | "async" | "extern" | "\"C\"" => {}
            word if word.starts_with("pub(") => {}
            _ => return None,
        }
    }
    words.next()?.split(['(', '<']).next()
}

#[cfg(test)]
mod tests {
    use super::{function_name, lines_without_tests, long_functions};

    #[test]
    fn functions_are_measured() {
        let body = "        step();\n".repeat(75);
        let text = format!(
            "impl X {{\n    pub(crate) fn short() {{\n    }}\n\n    pub fn long<T>(\n        a: u8,\n    ) {{\n{body}    }}\n}}\n"
        );
        assert_eq!(long_functions(&text), [("long".to_owned(), 79)]);
    }

    #[test]
    fn declarations_are_not_functions() {
        let text = format!(
            "trait X {{\n    fn a(\n        &self,\n    );\n{}\n    fn b(&self);\n}}\n",
            "    // x\n".repeat(90)
        );
        assert_eq!(long_functions(&text), []);
        assert_eq!(function_name("const fn f(x: u8) -> u8 {"), Some("f"));
        assert_eq!(function_name("let f = fn_name(x);"), None);
    }

    #[test]
    fn tests_do_not_count() {
        assert_eq!(lines_without_tests("a\nb\n#[cfg(test)]\nmod tests {\n}\n"), 2);
    }
}
