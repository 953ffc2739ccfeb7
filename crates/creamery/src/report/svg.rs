//! Writes SVG: rectangles and text, escaped so that no name can break out.

use std::fmt::Write as _;

use creamery_base::Escaped;

/// The only address in a picture.
const NAMESPACE: &str = "http://www.w3.org/2000/svg";

/// The look of every picture, with colours for light and dark.
pub(super) const STYLE: &str = "\
:root,svg{--ground:#ffffff;--ink:#1d2129;--faint:#8a919e;--edge:#c9ced6;--data:#4c8bd6;--metadata:#e0902f;--system:#8a5cc7;\
--mixed:#3f9f8f;--empty:#eef1f5;--shared:#b3c7e2;--alone:#4c8bd6;--bad:#d4353a}\
@media (prefers-color-scheme:dark){:root,svg{--ground:#16191f;--ink:#e4e7ec;--faint:#868d99;--edge:#3a404b;--data:#4a7fc0;\
--metadata:#c77f2c;--system:#8660b8;--mixed:#38897c;--empty:#242932;--shared:#3d5878;--alone:#5b93d6;--bad:#ef5a5f}}\
svg{background:var(--ground);font:12px system-ui,sans-serif}\
svg text{fill:var(--ink)}svg .faint{fill:var(--faint)}svg .data{fill:var(--data)}svg .metadata{fill:var(--metadata)}\
svg .system{fill:var(--system)}svg .mixed{fill:var(--mixed)}svg .empty{fill:var(--empty)}svg .shared{fill:var(--shared)}\
svg .alone{fill:var(--alone)}svg .bad{fill:var(--bad)}svg .light{opacity:.35}svg .frame{fill:none;stroke:var(--edge)}\
svg .ours{fill:none;stroke:var(--ink);stroke-width:2}";

/// An area of a picture, in pixels.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Area {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

impl Area {
    /// Removes a margin of `margin` pixels.
    pub(super) fn inset(self, margin: f64) -> Self {
        Self {
            x: self.x + margin,
            y: self.y + margin,
            width: (self.width - 2.0 * margin).max(0.0),
            height: (self.height - 2.0 * margin).max(0.0),
        }
    }
}

/// A picture in progress.
pub(super) struct Picture {
    text: String,
}

impl Picture {
    /// Begins a picture with this size in pixels; `named` is its title.
    pub(super) fn new(width: f64, height: f64, named: &str) -> Self {
        let mut text = String::new();
        let named = xml(named);
        let _ = writeln!(
            text,
            "<svg xmlns=\"{NAMESPACE}\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\" \
             aria-label=\"{named}\"><style>{STYLE}</style>"
        );
        Self { text }
    }

    /// Draws a rectangle with these classes; `told` is its tooltip.
    pub(super) fn area(&mut self, at: Area, class: &str, told: Option<&str>) {
        let Area { x, y, width, height } = at;
        let _ = write!(
            self.text,
            "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{height:.2}\" class=\"{class}\""
        );
        match told {
            Some(told) => {
                let _ = writeln!(self.text, "><title>{}</title></rect>", xml(told));
            }
            None => self.text.push_str("/>\n"),
        }
    }

    /// Draws text; its baseline begins at the point.
    pub(super) fn words(&mut self, x: f64, y: f64, class: &str, words: &str) {
        let words = xml(words);
        let _ = writeln!(self.text, "<text x=\"{x:.2}\" y=\"{y:.2}\" class=\"{class}\">{words}</text>");
    }

    /// Ends the picture and returns its text.
    pub(super) fn finish(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }
}

/// Escapes a name from the disk for XML and HTML.
pub(super) fn escaped(name: &[u8]) -> String {
    xml(&Escaped(name).to_string())
}

/// Escapes text for XML and HTML, for use in text and in attributes.
pub(super) fn xml(words: &str) -> String {
    let mut text = String::new();
    for letter in words.chars() {
        match letter {
            '&' => text.push_str("&amp;"),
            '<' => text.push_str("&lt;"),
            '>' => text.push_str("&gt;"),
            '"' => text.push_str("&quot;"),
            '\'' => text.push_str("&#39;"),
            // XML does not allow these characters.
            '\u{fffe}' | '\u{ffff}' => text.push('\u{fffd}'),
            letter if letter.is_control() => text.push('\u{fffd}'),
            letter => text.push(letter),
        }
    }
    text
}

/// The beginning of `words` that fits in `width` pixels.
pub(super) fn clipped(words: &str, width: f64) -> String {
    /// Width of a letter in pixels, a bit more than average for common fonts.
    const LETTER: f64 = 7.0;
    let room = (width / LETTER).max(0.0);
    let count = words.chars().count();
    // A picture has fewer letters than the largest integer.
    if (count as f64) <= room {
        return words.to_owned();
    }
    let kept = words.chars().take((room as usize).saturating_sub(1)).collect::<String>();
    if kept.is_empty() { kept } else { format!("{kept}\u{2026}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_breaks_out() {
        let name = b"</text><script>alert('1')</script>\"&\n\xff\x01\xef\xbf\xbe";
        let shown = escaped(name);
        assert!(!shown.contains(['<', '>', '"', '\'', '\n', '\u{1}', '\u{fffe}']), "{shown}");
        let mut picture = Picture::new(10.0, 10.0, "\"><x");
        picture.area(Area::default(), "data", Some("</title><x"));
        picture.words(0.0, 0.0, "", "<x");
        assert_eq!(picture.finish().matches("<x").count(), 0);
    }

    #[test]
    fn words_are_clipped() {
        assert_eq!(clipped("abc", 21.0), "abc");
        assert_eq!(clipped("abcdefgh", 21.0), "ab\u{2026}");
        assert_eq!(clipped("abc", 3.0), "");
    }
}
