//! Arbitrary archives: listed, and unpacked into a directory of a filesystem, also as layers of a container image.

use std::path::{Path, PathBuf};

use creamery::Filesystem;
use creamery::tar::{TarArchive, list_tar};

use crate::base::{base, plain};
use crate::input::Input;
use crate::readers::{assert_clean, opened};

const BLOCK: usize = 512;
/// Maximum bytes of an archive.
const ARCHIVE_MAX: usize = 256 << 10;
/// Maximum bytes of an extended header.
const NAME_MAX: usize = 4 << 20;
const KINDS: &[u8] = b"0123456xgLKS7\0";
const NAMES: [&[u8]; 16] = [
    b"a",
    b"b",
    b"dir",
    b"..",
    b".",
    b"",
    b"up",
    b"far",
    b".wh.a",
    b".wh.dir",
    b".wh.",
    b".wh..",
    b".wh...",
    b".wh..wh..opq",
    b"\xff\n",
    b"a-name-that-is-as-long-as-some-are",
];
const KEYS: [&str; 16] = [
    "path",
    "linkpath",
    "size",
    "uid",
    "gid",
    "mtime",
    "atime",
    "SCHILY.xattr.user.x",
    "SCHILY.acl.access",
    "SCHILY.acl.default",
    "GNU.sparse.major",
    "GNU.sparse.minor",
    "GNU.sparse.realsize",
    "GNU.sparse.name",
    "GNU.sparse.map",
    "GNU.sparse.numblocks",
];
/// Numeric fields of a header: offset and length.
const FIELDS: [(usize, usize); 7] = [(100, 8), (108, 8), (116, 8), (124, 12), (136, 12), (329, 8), (337, 8)];

/// Unpacks an archive made from the input: the input itself, or members with sealed headers.
///
/// ```
/// creamery_fuzzing::archive(b"\x03\x00\x01\x02");
/// ```
pub fn archive(data: &[u8]) {
    let mut input = Input::new(data);
    let how = input.byte();
    let bytes = if how & 1 == 0 { input.rest().to_vec() } else { members(&mut input) };
    let _ = list_tar(&bytes[..], &mut |entry| {
        assert!(entry.name.len() <= NAME_MAX, "a name of {} bytes", entry.name.len());
        Ok(())
    });
    let device = base(0).device();
    let fs = opened(&device).expect("a filesystem of our own");
    prepare(&fs).expect("there is room for a few files");
    let before = outside(&fs);
    let is_layer = how & 2 != 0;
    // Any error is a valid answer.
    let _ = match is_layer {
        true => {
            let layer = TarArchive::in_memory(bytes, Path::new("layer"));
            fs.read_tar("/in").failed(&|_, _| {}).layer(&layer)
        }
        false => fs.read_tar("/in").failed(&|_, _| {}).from(&bytes[..]),
    };
    assert_eq!(outside(&fs), before, "an archive has changed what is outside of its directory");
    for entry in fs.walk("/in").expect("the directory is still there") {
        let path = entry.expect("what was unpacked can be listed").path().to_owned();
        let name = path.file_name().expect("a name").as_encoded_bytes();
        assert!(!is_layer || !name.starts_with(b".wh."), "a whiteout is a file: {}", path.display());
    }
    fs.close().expect("a device that never fails");
    assert_clean(&device);
}

/// Makes the files that archives may meet.
fn prepare(fs: &Filesystem) -> creamery::Result<()> {
    fs.create_dir_all("/in/dir/dir")?;
    fs.write("/in/dir/a", plain(9000))?;
    fs.write("/in/a", "a")?;
    fs.symlink("..", "/in/up")?;
    fs.symlink("/many", "/in/far")
}

/// The state that no archive may change.
fn outside(fs: &Filesystem) -> Vec<(PathBuf, u64, u32, String)> {
    let walk = fs.walk("/").expect("a filesystem of our own");
    let all = walk.map(|entry| entry.expect("a filesystem of our own"));
    all.filter(|entry| entry.path() != Path::new("/") && !entry.path().starts_with("/in"))
        .map(|entry| {
            let meta = entry.metadata().expect("it was listed");
            let times = format!("{:?} {:?}", meta.mtime(), meta.ctime());
            (entry.path().to_owned(), meta.len(), meta.nlink(), times)
        })
        .collect()
}

fn members(input: &mut Input<'_>) -> Vec<u8> {
    let mut archive = Vec::new();
    while !input.is_empty() && archive.len() < ARCHIVE_MAX {
        let (kind, shape) = (KINDS[input.below(KINDS.len())], input.byte());
        let mut header = [0; BLOCK];
        put(&mut header[..100], &name(input));
        put(&mut header[157..257], &name(input));
        for (at, text) in [(100, "0000644"), (108, "0000001"), (116, "0000002"), (136, "00000000005")] {
            put(&mut header[at..], text.as_bytes());
        }
        put(&mut header[257..265], if shape & 1 == 0 { b"ustar\x0000" } else { b"ustar  \0" });
        let data = match kind {
            b'x' | b'g' => records(input),
            b'L' | b'K' => name(input),
            _ => {
                let len = usize::from(input.byte()) << (input.byte() % 8);
                if shape & 2 == 0 { plain(len) } else { input.take(len).to_vec() }
            }
        };
        put(&mut header[124..], format!("{:011o}", data.len()).as_bytes());
        if kind == b'S' {
            let map = input.take(BLOCK - 386);
            put(&mut header[386..], map);
        }
        if shape & 4 != 0 {
            let (at, len) = FIELDS[input.below(FIELDS.len())];
            put(&mut header[at..at + len], input.take(len));
        }
        header[156] = kind;
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
        put(&mut header[148..156], format!("{sum:06o}\0 ").as_bytes());
        archive.extend_from_slice(&header);
        archive.extend_from_slice(&data);
        archive.resize(archive.len().next_multiple_of(BLOCK), 0);
    }
    archive
}

fn put(field: &mut [u8], bytes: &[u8]) {
    let len = bytes.len().min(field.len());
    field[..len].copy_from_slice(&bytes[..len]);
}

fn name(input: &mut Input<'_>) -> Vec<u8> {
    let parts: Vec<&[u8]> = (0..=input.byte() % 4).map(|_| NAMES[input.below(NAMES.len())]).collect();
    parts.join(&b'/')
}

/// Records of an extended header, some of them with a wrong length.
fn records(input: &mut Input<'_>) -> Vec<u8> {
    let mut records = Vec::new();
    for _ in 0..=input.byte() % 4 {
        let key = KEYS[input.below(KEYS.len())];
        let value = match input.byte() % 4 {
            0 => name(input),
            1 => input.number(8, 1).to_string().into_bytes(),
            2 => b"0,1,4096,1".to_vec(),
            _ => {
                let len = input.byte();
                input.take(len.into()).to_vec()
            }
        };
        let rest = key.len() + value.len() + 3;
        let digits = (1..4).find(|digits| (rest + digits).to_string().len() == *digits).unwrap_or(4);
        let lie = if input.byte() == 255 { 1 } else { 0 };
        records.extend_from_slice(format!("{} {key}=", rest + digits + lie).as_bytes());
        records.extend_from_slice(&value);
        records.push(b'\n');
    }
    records
}
