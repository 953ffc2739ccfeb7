//! `create_dir_all`: makes the directories along a path.

use creamery::ErrorKind;

use crate::paths::{Fixture, fixture, kind};

#[test]
fn directories_are_made_along_links_and_dots_but_not_behind_a_link_that_leads_nowhere() {
    let Fixture { fs, .. } = fixture();
    fs.create_dir_all("/made/there").unwrap();
    fs.symlink("made/there", "/link").unwrap();
    fs.symlink("none", "/dangling").unwrap();
    fs.create_dir_all("/link/../by/./dots/../and/more/").unwrap();
    for made in ["/made/by/dots", "/made/by/and/more"] {
        assert!(fs.metadata(made).unwrap().is_dir(), "{made}");
    }
    fs.create_dir_all("/").unwrap();
    fs.create_dir_all("/link").unwrap();
    for path in ["/dangling", "/dangling/below"] {
        assert_eq!(kind(fs.create_dir_all(path)), ErrorKind::NotFound, "{path}");
    }
    assert_eq!(kind(fs.metadata("/none")), ErrorKind::NotFound);
    fs.write("/file", b"").unwrap();
    assert_eq!(kind(fs.create_dir_all("/file/below")), ErrorKind::NotADirectory);
    assert_eq!(kind(fs.create_dir_all("/file")), ErrorKind::AlreadyExists);
}

#[test]
fn ten_thousand_directories_below_each_other_are_looked_up_once_each() {
    let Fixture { fs, .. } = fixture();
    let path = "/d".repeat(10_000);
    let blocks_looked_at = || fs.statistics().block_cache.hits;
    let before = blocks_looked_at();
    fs.create_dir_all(&path).unwrap();
    let each = (blocks_looked_at() - before) / 10_000;
    assert!(each < 100, "{each} blocks looked at for each directory");
    assert!(fs.metadata(&path).unwrap().is_dir());
}
