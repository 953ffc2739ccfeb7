//! The pages of `docs/use`, which the build script packs into the program.

use std::io::Read;
use std::ops::Range;
use std::sync::OnceLock;

use flate2::read::ZlibDecoder;

/// The name of each page, and its range in the joined text.
const TABLE: &[(&str, Range<usize>)] = &include!(concat!(env!("OUT_DIR"), "/pages.in"));
/// The joined text of all pages, compressed.
const PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/pages.zlib"));

/// The names of all pages.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    TABLE.iter().map(|(name, _)| *name)
}

/// The page of this name.
pub(crate) fn page(name: &str) -> Option<&'static str> {
    let (_, range) = TABLE.iter().find(|(known, _)| *known == name)?;
    Some(&all()[range.clone()])
}

fn all() -> &'static str {
    static ALL: OnceLock<String> = OnceLock::new();
    ALL.get_or_init(|| {
        let mut text = String::new();
        ZlibDecoder::new(PACKED).read_to_string(&mut text).expect("the build script packed it");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_page_is_its_file() {
        assert!(names().count() > 20);
        for name in names() {
            let path = format!("{}/docs/{name}.md", env!("CARGO_MANIFEST_DIR"));
            assert_eq!(page(name).unwrap(), std::fs::read_to_string(path).unwrap(), "{name}");
        }
        assert_eq!(page("no-such-page"), None);
    }
}
