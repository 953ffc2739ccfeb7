//! Parses the forms of Markdown that the pages use: headings, paragraphs, lists, tables, and lines of a terminal.

use super::pages;

/// A part of a page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum PageBlock {
    /// A heading: its level (1 is the page's title) and its text.
    Heading(usize, String),
    Paragraph(String),
    /// An item of a list: its mark (`-`, `1.`), and its content.
    Item(String, Vec<PageBlock>),
    /// Code: its lines, unchanged.
    Code(Vec<String>),
    /// A table. A header row of empty cells is not shown.
    Table {
        header: Vec<String>,
        rows: Vec<Vec<String>>,
    },
}

/// The text of a row's cells behind the first one, each with the title of its column if there are several.
pub(crate) fn said_of_row(header: &[String], others: &[String]) -> Vec<String> {
    let cells = others.iter().zip(header.iter().skip(1)).filter(|(cell, _)| !cell.is_empty());
    cells
        .map(|(cell, title)| match title.is_empty() || others.len() == 1 {
            true => cell.clone(),
            false => format!("{title}: {cell}"),
        })
        .collect()
}

/// Parses a page.
pub(crate) fn parse(page: &str) -> Vec<PageBlock> {
    blocks(&page.lines().collect::<Vec<_>>())
}

fn blocks(lines: &[&str]) -> Vec<PageBlock> {
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(line) = lines.get(at) {
        let rest = &lines[at..];
        let (block, taken) = if line.trim().is_empty() {
            (None, 1)
        } else if line.starts_with("```") {
            code(rest)
        } else if line.starts_with('|') {
            table(rest)
        } else if let Some(text) = line.strip_prefix('#') {
            let level = 1 + text.chars().take_while(|&mark| mark == '#').count();
            (Some(PageBlock::Heading(level, plain(text.trim_start_matches('#').trim()))), 1)
        } else if let Some(mark) = mark(line) {
            item(mark, rest)
        } else {
            paragraph(rest)
        };
        found.extend(block);
        at += taken;
    }
    found
}

/// The mark of an item, if the line begins one.
fn mark(line: &str) -> Option<&str> {
    let (mark, _) = line.split_once(' ')?;
    let is_number =
        mark.strip_suffix('.').is_some_and(|number| number.bytes().all(|digit| digit.is_ascii_digit()));
    (mark == "-" || is_number && mark.len() > 1).then_some(mark)
}

fn code(lines: &[&str]) -> (Option<PageBlock>, usize) {
    let inside: Vec<String> =
        lines[1..].iter().take_while(|line| !line.starts_with("```")).map(ToString::to_string).collect();
    let taken = inside.len() + 2;
    (Some(PageBlock::Code(inside)), taken)
}

fn table(lines: &[&str]) -> (Option<PageBlock>, usize) {
    let mut rows: Vec<Vec<String>> =
        lines.iter().take_while(|line| line.starts_with('|')).map(|line| cells(line)).collect();
    let taken = rows.len();
    let header = rows.remove(0);
    // The line below the header only marks it.
    if !rows.is_empty() {
        rows.remove(0);
    }
    (Some(PageBlock::Table { header, rows }), taken)
}

/// The cells of a row; a bar behind a backslash, or in code, is text.
fn cells(line: &str) -> Vec<String> {
    let (mut cells, mut cell, mut is_code, mut is_escaped) = (Vec::new(), String::new(), false, false);
    for letter in line.trim().trim_start_matches('|').chars() {
        match letter {
            '\\' if !is_escaped => {
                is_escaped = true;
                continue;
            }
            '|' if !is_escaped && !is_code => cells.push(plain(std::mem::take(&mut cell).trim())),
            letter => {
                is_code ^= letter == '`';
                if is_escaped && letter != '|' {
                    cell.push('\\');
                }
                cell.push(letter);
            }
        }
        is_escaped = false;
    }
    cells
}

/// Parses an item; its content is indented below it. Returns the number of lines, too.
fn item(mark: &str, lines: &[&str]) -> (Option<PageBlock>, usize) {
    let indent = mark.len() + 1;
    let belongs = |line: &&str| line.is_empty() || line.starts_with(&" ".repeat(indent.min(2)));
    let mut taken = 1 + lines[1..].iter().take_while(|line| belongs(line)).count();
    while lines[taken - 1].is_empty() {
        taken -= 1;
    }
    let mut inside = vec![&lines[0][indent..]];
    inside.extend(lines[1..taken].iter().map(|line| {
        let blanks = line.len() - line.trim_start().len();
        &line[blanks.min(indent)..]
    }));
    (Some(PageBlock::Item(mark.to_owned(), blocks(&inside))), taken)
}

fn paragraph(lines: &[&str]) -> (Option<PageBlock>, usize) {
    let ends = |line: &str| {
        line.trim().is_empty()
            || line.starts_with(['|', '#'])
            || line.starts_with("```")
            || mark(line).is_some()
    };
    let taken = 1 + lines[1..].iter().take_while(|line| !ends(line)).count();
    let text: Vec<&str> = lines[..taken].iter().map(|line| line.trim()).collect();
    (Some(PageBlock::Paragraph(plain(&text.join(" ")))), taken)
}

/// The text without the marks of links and emphasis; code keeps its own.
fn plain(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(['`', '[', '*']) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let (shown, taken) = piece(rest);
        out.push_str(&shown);
        rest = &rest[taken..];
    }
    out + rest
}

/// The visible text of the mark at the start of `rest`, and the number of bytes it takes.
fn piece(rest: &str) -> (String, usize) {
    if let Some(code) = rest.strip_prefix('`')
        && let Some(end) = code.find('`')
    {
        return (rest[..end + 2].to_owned(), end + 2);
    }
    if let Some(link) = rest.strip_prefix('[')
        && let Some(middle) = link.find("](")
        && let Some(end) = link[middle..].find(')')
    {
        let (text, leads) = (&link[..middle], &link[middle + 2..middle + end]);
        return (if text.ends_with(".md") { page_named(leads) } else { plain(text) }, 1 + middle + end + 1);
    }
    if let Some(strong) = rest.strip_prefix("**")
        && let Some(end) = strong.find("**")
    {
        return (plain(&strong[..end]), end + 4);
    }
    if let Some(strong) = rest.strip_prefix('*')
        && let Some(end) = strong.find('*')
        && end > 0
    {
        return (plain(&strong[..end]), end + 2);
    }
    (rest[..1].to_owned(), 1)
}

/// The visible text of a link to a page whose text is only a file name.
fn page_named(leads: &str) -> String {
    let file = leads.split('#').next().unwrap_or(leads);
    match file.strip_suffix(".md").filter(|name| pages::names().any(|page| page == *name)) {
        Some(name) => format!("`creamery help {name}`"),
        None => format!("docs/{} of the sources", file.trim_start_matches("../")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paragraph_of(text: &str) -> PageBlock {
        PageBlock::Paragraph(text.to_owned())
    }

    #[test]
    fn each_form_is_read() {
        let page = "# Title\n\nOne line, [a link](other.md#x)\nand **strong** `*code*`.\n- an item\n  goes on\n- next\n\n  ```console\n  $ ls\n  ```\n\n| a | |\n|---|---|\n| `x|y` | 1 \\| 2 |\n";
        let strings = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(
            parse(page),
            [
                PageBlock::Heading(1, "Title".to_owned()),
                paragraph_of("One line, a link and strong `*code*`."),
                PageBlock::Item("-".to_owned(), vec![paragraph_of("an item goes on")]),
                PageBlock::Item(
                    "-".to_owned(),
                    vec![paragraph_of("next"), PageBlock::Code(strings(&["$ ls"]))]
                ),
                PageBlock::Table { header: strings(&["a", ""]), rows: vec![strings(&["`x|y`", "1 | 2"])] },
            ]
        );
    }

    #[test]
    fn a_link_to_a_page_says_how_to_read_it() {
        let page = "[rescue.md](rescue.md#x), [log.md](../internals/log.md), [paths](paths.md)";
        assert_eq!(
            parse(page),
            [paragraph_of("`creamery help rescue`, docs/internals/log.md of the sources, paths")]
        );
    }

    #[test]
    fn what_is_cut_short_is_read_to_its_end() {
        for page in
            ["", "```", "|", "| a", "-", "- ", "1. ", "[a](", "**", "`", "#", "*", "**a", "- x\n\n", "\\"]
        {
            let _ = parse(page);
        }
        assert_eq!(parse("a * b * c [x] 2."), [paragraph_of("a  b  c [x] 2.")]);
    }

    #[test]
    fn every_table_of_the_pages_has_rows_of_one_length() {
        for name in pages::names() {
            for block in parse(pages::page(name).expect("a page")) {
                if let PageBlock::Table { header, rows } = block {
                    assert!(!rows.is_empty(), "{name}: a table without rows: {header:?}");
                    for row in rows {
                        assert_eq!(row.len(), header.len(), "{name}: {row:?}");
                    }
                }
            }
        }
    }
}
