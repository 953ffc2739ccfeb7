//! Parts of manual pages in the format man(7).

use clap_mangen::roff::{Inline, Roff, bold, roman};

use crate::help::markdown::{PageBlock, said_of_row};

/// The macro for each level of heading: a section, or a part of one.
const SECTIONS: [&str; 3] = ["SH", "SH", "SS"];

/// Text with highlighted code.
pub(super) fn inlines(text: &str) -> Vec<Inline> {
    let is_code = |number: usize| number % 2 == 1;
    // With an odd number of marks, the last one is text.
    let whole = text.matches('`').count().is_multiple_of(2);
    if !whole {
        return vec![roman(text)];
    }
    let pieces = text.split('`').enumerate().filter(|(_, piece)| !piece.is_empty());
    pieces.map(|(number, piece)| if is_code(number) { bold(piece) } else { roman(piece) }).collect()
}

/// A word and its description.
pub(super) fn tagged(roff: &mut Roff, word: &str, about: &str) {
    roff.control("TP", []);
    roff.text(if word.contains('`') { inlines(word) } else { vec![bold(word)] });
    roff.text(inlines(about));
}

/// Lines without changes.
pub(super) fn verbatim<'a>(roff: &mut Roff, lines: impl IntoIterator<Item = &'a str>) {
    roff.control("PP", []);
    roff.control("RS", ["4"]);
    roff.control("nf", []);
    for line in lines {
        roff.text([roman(line)]);
    }
    roff.control("fi", []);
    roff.control("RE", []);
}

/// Parts of a page of the documentation.
pub(super) fn blocks(roff: &mut Roff, blocks: &[PageBlock]) {
    for block in blocks {
        match block {
            PageBlock::Heading(level, title) => {
                let macro_name = SECTIONS[(*level).min(3) - 1];
                let title = if macro_name == "SH" { title.to_uppercase() } else { title.clone() };
                roff.control(macro_name, [title.as_str()]);
            }
            PageBlock::Paragraph(text) => {
                roff.control("PP", []);
                roff.text(inlines(text));
            }
            PageBlock::Code(lines) => verbatim(roff, lines.iter().map(String::as_str)),
            PageBlock::Item(mark, inside) => {
                let mark = if mark == "-" { "\\(bu" } else { mark };
                roff.control("IP", [mark, "4"]);
                if let [PageBlock::Paragraph(text), rest @ ..] = inside.as_slice() {
                    roff.text(inlines(text));
                    self::blocks(roff, rest);
                }
            }
            PageBlock::Table { header, rows } => table(roff, header, rows),
        }
    }
}

fn table(roff: &mut Roff, header: &[String], rows: &[Vec<String>]) {
    for row in rows {
        let Some((first, others)) = row.split_first() else { continue };
        tagged(roff, first, &said_of_row(header, others).join("; "));
    }
}
