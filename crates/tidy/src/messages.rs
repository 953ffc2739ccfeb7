//! `cargo xtask messages [ROOM]`: every error message that a person can meet, room by room, to be read in a row.
//!
//! A message has three parts: what failed; why, with the value found and the value expected, and where; what to do next. One that lacks a part shows beside its neighbours. The command reads
//! the sources: it finds the calls that make errors, and prints the first string of each. Tests and this room are left out.

use anyhow::Result;

use creamery_workspace::{files, read};

/// How calls begin that make an error or add to one, and the part of the message that their string is.
const CALLS: [(&str, &str); 13] = [
    ("Error::new(", "why"),
    ("Error::with_source(", "why"),
    ("Error::invalid(", "why"),
    ("Error::unsupported(", "why"),
    ("bail!(", "why"),
    ("anyhow!(", "why"),
    ("ensure!(", "why"),
    ("usage(", "why"),
    ("refuse(", "why"),
    (".context(", "what"),
    ("with_context(", "what"),
    (".advise(", "next"),
    ("fail(", "why"),
];
/// Rooms whose errors only tests and this program show.
const SILENT: [&str; 9] =
    ["conformance", "edges", "testkit", "sim", "xtask", "tidy", "workspace", "bench", "fuzzing"];
/// Letters of a call in which its string begins.
const CALL_MAX: usize = 300;

/// A message in the sources.
struct Message {
    line: usize,
    part: &'static str,
    text: String,
}

/// Prints them.
pub fn print(only: Option<&str>) -> Result<()> {
    let mut count = 0;
    for path in files("crates", &[".rs"])? {
        let shown = path.display().to_string();
        let room = shown.split('/').nth(1).unwrap_or_default();
        let is_left_out =
            SILENT.contains(&room) || !shown.contains("/src/") || only.is_some_and(|only| only != room);
        if is_left_out || shown.ends_with("tests.rs") || shown.contains("/tests/") {
            continue;
        }
        let text = read(&path)?;
        let code = text.split("\n#[cfg(test)]\nmod ").next().unwrap_or(&text);
        for Message { line, part, text } in messages(code) {
            println!("{shown}:{line}: {part}: {text}");
            count += 1;
        }
    }
    println!("{count} messages");
    Ok(())
}

/// The messages of a source, in order.
fn messages(code: &str) -> Vec<Message> {
    let mut found = Vec::new();
    for (call, part) in CALLS {
        for (at, _) in code.match_indices(call) {
            let before = code[..at].chars().next_back();
            let is_longer_name = before.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
            let line_start = code[..at].rfind('\n').map_or(0, |newline| newline + 1);
            let is_comment = code[line_start..at].trim_start().starts_with("//");
            if is_longer_name || is_comment {
                continue;
            }
            if let Some(text) = first_string(&code[at + call.len()..]) {
                let line = code[..at].matches('\n').count() + 1;
                found.push(Message { line, part, text });
            }
        }
    }
    found.sort_by_key(|message| message.line);
    found
}

/// The first string of a call's arguments, without line breaks; none where the call ends before one begins.
fn first_string(arguments: &str) -> Option<String> {
    let (mut depth, mut start) = (1_u32, None);
    for (at, letter) in arguments.char_indices().take(CALL_MAX) {
        match letter {
            '"' => {
                start = Some(at + 1);
                break;
            }
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return None;
        }
    }
    let text = &arguments[start?..];
    let mut is_escaped = false;
    let end = text.find(|letter| {
        let ends = letter == '"' && !is_escaped;
        is_escaped = letter == '\\' && !is_escaped;
        ends
    })?;
    let lines = text[..end].split("\\\n").map(str::trim_start);
    Some(lines.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(code: &str) -> Vec<(usize, &'static str, String)> {
        messages(code).into_iter().map(|Message { line, part, text }| (line, part, text)).collect()
    }

    #[test]
    fn each_call_shows_its_first_string() {
        let code = "fn f() {\n    Err(Error::new(ErrorKind::Busy, format!(\"{path}: it is \\\"open\\\"\")))\n        .context(\"mounting\")\n}\n";
        let expected =
            [(2, "why", "{path}: it is \\\"open\\\"".to_owned()), (3, "what", "mounting".to_owned())];
        assert_eq!(texts(code), expected);
    }

    #[test]
    fn a_string_may_go_over_lines() {
        let code = "bail!(\"one \\\n       two\");\n";
        assert_eq!(texts(code), [(1, "why", "one two".to_owned())]);
    }

    #[test]
    fn calls_without_a_string_comments_and_longer_names_are_no_messages() {
        assert_eq!(texts("Error::new(kind, text); \"x\";\n// bail!(\"x\")\nmisuse_fail(\"y\");\n"), []);
    }
}
