//! Renders pages for a terminal.

use std::fmt::Write;

use super::markdown::{PageBlock, said_of_row};

/// Maximum columns of text, as in the help of commands.
pub(crate) const WIDTH: usize = 100;
/// Minimum columns of text.
const NARROW: usize = 40;
/// Maximum column at which a description behind a word begins.
const ABOUT: usize = 26;

/// The columns of the terminal, within the limits for text.
pub(crate) fn width() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok();
    let columns = size.map_or(WIDTH, |size| usize::from(size.ws_col));
    if columns == 0 { WIDTH } else { columns.clamp(NARROW, WIDTH) }
}

/// Renders a page in lines of at most `width` columns. Lines of code stay whole.
pub(crate) fn render(blocks: &[PageBlock], width: usize) -> String {
    let mut text = String::new();
    for block in blocks {
        if !text.is_empty() {
            text.push('\n');
        }
        put(&mut text, block, 0, width);
    }
    text
}

fn put(text: &mut String, block: &PageBlock, indent: usize, width: usize) {
    match block {
        PageBlock::Heading(1, title) => put_line(text, &title.to_uppercase(), indent, width),
        PageBlock::Heading(_, title) => put_line(text, title, indent, width),
        PageBlock::Paragraph(words) => put_line(text, words, indent + 2, width),
        PageBlock::Code(lines) => {
            for line in lines {
                let _ = writeln!(text, "{:indent$}    {line}", "");
            }
        }
        PageBlock::Item(mark, inside) => {
            let from = text.len();
            for (number, block) in inside.iter().enumerate() {
                if number > 0 {
                    text.push('\n');
                }
                put(text, block, indent + mark.len() + 1, width);
            }
            let mark_at = from + indent + 2;
            if text.len() >= mark_at + mark.len() && text.is_char_boundary(mark_at + mark.len()) {
                text.replace_range(mark_at..mark_at + mark.len(), mark);
            }
        }
        PageBlock::Table { header, rows } => put_table(text, header, rows, indent, width),
    }
}

fn put_line(text: &mut String, words: &str, indent: usize, width: usize) {
    let _ = writeln!(text, "{}", wrapped(words, indent, width));
}

/// Appends each row: the first cell, and behind or below it the others, each with the title of its column if there are several.
fn put_table(text: &mut String, header: &[String], rows: &[Vec<String>], indent: usize, width: usize) {
    let indent = indent + 2;
    let firsts = rows.iter().filter_map(|row| row.first()).map(|cell| cell.chars().count() + 2);
    let about = indent + firsts.filter(|&len| len <= ABOUT).max().unwrap_or(ABOUT);
    for row in rows {
        let Some((first, others)) = row.split_first() else { continue };
        let said = said_of_row(header, others);
        let mut lines: Vec<String> = said.iter().map(|cell| wrapped(cell, about, width)).collect();
        let is_beside = indent + first.chars().count() + 2 <= about;
        if is_beside && !lines.is_empty() {
            let beside = lines.remove(0);
            let pad = about - indent;
            let _ = writeln!(text, "{:indent$}{first:<pad$}{}", "", beside.trim_start());
        } else {
            put_line(text, first, indent, width);
        }
        for line in lines {
            let _ = writeln!(text, "{line}");
        }
    }
}

/// Wraps words in lines of at most `width` columns, each indented by `indent`. A longer word gets its own line.
pub(crate) fn wrapped(words: &str, indent: usize, width: usize) -> String {
    let margin = " ".repeat(indent);
    let (mut lines, mut line) = (Vec::new(), String::new());
    for word in words.split_whitespace() {
        let len = line.chars().count();
        if len > 0 && indent + len + 1 + word.chars().count() > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines.iter().map(|line| format!("{margin}{line}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::help::{markdown, pages};

    #[test]
    fn a_page_has_the_width_that_it_is_given() {
        let page = "# A title\n\nSome words that do not fit.\n\n1. one two three four five\n\n| a | b | c |\n|---|---|---|\n| x | said of it | more |\n| a very long first cell of a row | y | |\n";
        let shown = "A TITLE\n\n  Some words that do not\n  fit.\n\n  1. one two three four\n     five\n\n  x  b: said of it\n     c: more\n  a very long first cell\n  of a row\n     b: y\n";
        assert_eq!(render(&markdown::parse(page), 24), shown);
    }

    #[test]
    fn every_page_fits_but_for_long_words_and_code() {
        for name in pages::names() {
            let blocks = markdown::parse(pages::page(name).expect("a page"));
            let code: Vec<&String> = blocks
                .iter()
                .flat_map(|block| match block {
                    PageBlock::Code(lines) => lines.iter().collect(),
                    PageBlock::Item(_, inside) => inside
                        .iter()
                        .flat_map(|block| {
                            if let PageBlock::Code(lines) = block {
                                lines.iter().collect()
                            } else {
                                Vec::new()
                            }
                        })
                        .collect(),
                    _ => Vec::new(),
                })
                .collect();
            for line in render(&blocks, WIDTH).lines().filter(|line| line.chars().count() > WIDTH) {
                let is_code = code.iter().any(|code| line.ends_with(code.as_str()));
                assert!(is_code || line.split_whitespace().count() == 1, "{name}: {line:?}");
            }
        }
    }
}
